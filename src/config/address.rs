//! `base_url` and `proxy`: addresses that no secret and no item's parameter stands in.
//!
//! What was written is never shown again: it may hold a password.

use url::{Host, Url};

use super::units::Wrong;

/// Reads a `base_url`: scheme, host, port and path, nothing else.
pub(super) fn base_url(text: &str) -> Result<Url, Wrong> {
    let example = "such as \"https://api.example.com\"";
    let url = address(text, example)?;
    if url.query().is_some() || url.fragment().is_some() {
        let hint = "query parameters belong to the items: enqueue --query K=V";
        return Err(Wrong::new("holds a `?` or `#`", hint));
    }
    Ok(url)
}

/// Reads a `proxy`: host and port.
pub(super) fn proxy(text: &str) -> Result<Url, Wrong> {
    let example = "such as \"http://proxy.example.com:3128\"";
    let url = address(text, example)?;
    if url.scheme() != "http" {
        let hint = "write http://: https requests go through it in a tunnel of their own";
        return Err(Wrong::new("must be an http:// address", hint));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(Wrong::new("holds more than host and port", example));
    }
    Ok(url)
}

/// Whether what is sent there stays on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn address(text: &str, example: &str) -> Result<Url, Wrong> {
    // The URL standard drops blanks and turns `\` into `/`; neither was meant.
    if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
        return Err(Wrong::new(
            "holds a blank, a control character or a backslash",
            example,
        ));
    }
    let scheme = text
        .split_once("://")
        .map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
    let Some((scheme, rest)) = scheme else {
        return Err(Wrong::new("is no address with a scheme", example));
    };
    if scheme != "http" && scheme != "https" {
        return Err(Wrong::new("must start with https:// or http://", example));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(Wrong::new("names no host", example));
    }
    if authority.contains('@') {
        let hint = "no secret stands in this file; a user and password for the destination go into \
                    auth = { basic = { user = \"…\", password = { file = \"…\" } } }";
        return Err(Wrong::new("holds a user or a password", hint));
    }
    Url::parse(text).map_err(|error| Wrong::new(format!("is no address: {error}"), example))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_only() {
        let rows = [
            ("http://localhost", true),
            ("http://LOCALHOST:80/x", true),
            ("http://127.0.0.1", true),
            ("http://127.9.9.9:8080", true),
            ("http://2130706433", true), // 127.0.0.1 in another spelling.
            ("http://[::1]:1", true),
            ("http://localhost.example.com", false),
            ("http://127.0.0.1.example.com", false),
            ("http://128.0.0.1", false),
            ("http://[::2]", false),
            ("http://0.0.0.0", false),
        ];
        for (text, want) in rows {
            assert_eq!(
                base_url(text).map(|url| is_loopback(&url)),
                Ok(want),
                "{text}"
            );
        }
    }

    #[test]
    fn addresses_that_say_too_much_or_too_little() {
        for text in [
            "",
            "api.example.com",
            "https:api.example.com",
            "https:///x",
            "ftp://x",
            "https://",
            "https://user@x",
            "https://user:pw@x",
            "https://@x",
            "https://x?",
            "https://x/#",
            "https://x y",
            "https://x\\@y",
            "https://x\n",
            "https://x:99999",
            "file:///etc/passwd",
        ] {
            assert!(base_url(text).is_err(), "{text:?}");
        }
        for text in ["https://p:1", "http://p:1/x", "http://u:p@p:1", "p:1"] {
            assert!(proxy(text).is_err(), "{text:?}");
        }
        assert!(proxy("http://p:1").is_ok());
    }
}
