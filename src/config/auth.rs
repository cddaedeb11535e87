//! `auth`: how requests prove who we are, by reference to a secret that stands elsewhere.
//!
//! No fault shows a value: whoever pasted a secret here must not find it in a log as well.

use std::path::Path;

use super::reader::{Section, Value};
use super::{Auth, SecretRef};
use crate::model::envelope::check_header;

const SHAPES: &str = "{ bearer = … }, { basic = { user = …, password = … } } or \
                      { header = { name = …, prefix = …, value = … } }";
const REFERENCES: &str = "name where it stands: { file = \"…\" }, { env = \"…\" } or \
                          { credential = \"…\" }; no secret stands in this file";

/// Reads `auth`.
pub(super) fn read(value: &Value<'_>, base: &Path) -> Option<Auth> {
    let mut section = table(value, "holds a secret in plain text")?;
    let bearer = section.take("bearer");
    let basic = section.take("basic");
    let header = section.take("header");
    let auth = match (bearer, basic, header) {
        (Some(bearer), None, None) => secret(&bearer, base).map(Auth::Bearer),
        (None, Some(value), None) => basic_auth(&value, base),
        (None, None, Some(value)) => header_auth(&value, base),
        _ => {
            section.refuse("must be one of bearer, basic and header", SHAPES);
            None
        }
    };
    section.finish();
    auth
}

fn basic_auth(value: &Value<'_>, base: &Path) -> Option<Auth> {
    let mut section = table(value, "holds a secret in plain text")?;
    let user = section.take("user");
    let password = section.take("password");
    if user.is_none() {
        section.missing("user", "the user's name, in plain text");
    }
    if password.is_none() {
        section.missing("password", REFERENCES);
    }
    section.finish();
    let user = user.and_then(|value| {
        let user = value.text()?;
        // RFC 7617, section 2: the first colon ends the user.
        if user.contains(|c: char| c == ':' || c.is_control()) {
            value.refuse(
                "holds a colon or a control character",
                "basic auth has no way to send it",
            );
            return None;
        }
        Some(user.to_owned())
    });
    let password = password.and_then(|value| secret(&value, base));
    user.zip(password)
        .map(|(user, password)| Auth::Basic { user, password })
}

fn header_auth(value: &Value<'_>, base: &Path) -> Option<Auth> {
    let mut section = table(value, "holds a secret in plain text")?;
    let name = section.take("name");
    let prefix = section.take("prefix");
    let secret_value = section.take("value");
    if name.is_none() {
        section.missing("name", "the header's name, such as \"X-Api-Key\"");
    }
    if secret_value.is_none() {
        section.missing("value", REFERENCES);
    }
    section.finish();
    let prefix = match &prefix {
        Some(value) => {
            let text = value.text()?;
            if check_header("x", text).is_err() {
                value.refuse("holds a control character", "such as \"Token \"");
                return None;
            }
            text.to_owned()
        }
        None => String::new(),
    };
    let name = name.and_then(|value| {
        let name = value.text()?;
        if let Err(error) = check_header(name, "") {
            value.refuse(format!("cannot be sent: {error}"), "such as \"X-Api-Key\"");
            return None;
        }
        Some(name.to_owned())
    });
    let value = secret_value.and_then(|value| secret(&value, base));
    name.zip(value).map(|(name, value)| Auth::Header {
        name,
        prefix,
        value,
    })
}

fn secret(value: &Value<'_>, base: &Path) -> Option<SecretRef> {
    let mut section = table(value, "holds a secret in plain text")?;
    let file = section.take("file");
    let env = section.take("env");
    let credential = section.take("credential");
    let found = match (file, env, credential) {
        (Some(file), None, None) => file.filled().map(|path| SecretRef::File(base.join(path))),
        (None, Some(env), None) => variable(&env).map(SecretRef::Env),
        (None, None, Some(name)) => credential_name(&name).map(SecretRef::Credential),
        _ => {
            section.refuse("must be one of file, env and credential", REFERENCES);
            None
        }
    };
    section.finish();
    found
}

fn variable(value: &Value<'_>) -> Option<String> {
    let name = value.filled()?;
    if name.contains(['=', '\0']) {
        value.refuse(
            "is no name of an environment variable",
            "such as \"SHOP_TOKEN\"",
        );
        return None;
    }
    Some(name.to_owned())
}

fn credential_name(value: &Value<'_>) -> Option<String> {
    let name = value.filled()?;
    // It becomes a path below $CREDENTIALS_DIRECTORY and must stay there.
    if name == "." || name == ".." || name.contains(['/', '\0']) {
        let hint = "the name that LoadCredential= gives it, such as \"shop-token\"";
        value.refuse("is no name of a systemd credential", hint);
        return None;
    }
    Some(name.to_owned())
}

/// The table that must stand here; a string in its place is a secret that was pasted.
fn table<'a>(value: &Value<'a>, pasted: &str) -> Option<Section<'a>> {
    if value.is_text() {
        value.refuse(pasted, REFERENCES);
        return None;
    }
    value.section(SHAPES)
}
