//! How far a failed send got. The rule of this file: "not sent" only where that is certain.
//!
//! | seen | told |
//! |---|---|
//! | the request could not be built | not sent |
//! | this machine is short of descriptors or memory, before the request | not sent |
//! | the connection could not be made (DNS, TCP, proxy, TLS) | not sent |
//! | a body that is not empty was dropped without having been asked for | not sent |
//! | anything else | maybe sent |
//!
//! Within each half the class only says what a person and a rule may want to know; a wrong one
//! there costs nothing. The texts of the libraries are looked at for that alone.

use std::error::Error;
use std::io;

use rustix::io::Errno;

use super::body::Progress;
use crate::model::outcome::{Outcome, TransportClass};

/// What is known of a send that ended in an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How far the body got; `None` for an empty one, which nobody ever asks for.
    pub(super) body: Option<Progress>,
    /// The address is https.
    pub(super) tls: bool,
    /// It goes by a proxy.
    pub(super) proxy: bool,
}

/// Tells a failed send's outcome.
pub(super) fn outcome(error: reqwest::Error, seen: Seen) -> Outcome {
    // The address may hold a key, or what should not stand in a log.
    let error = error.without_url();
    Outcome::failed(class(&error, seen), words(&error))
}

fn class(error: &reqwest::Error, seen: Seen) -> TransportClass {
    if error.is_builder() {
        local_class(error)
    } else if error.is_connect() {
        connecting(error, seen)
    } else if seen.body == Some(Progress::NeverAsked) {
        if find::<rustls::Error>(error).is_some() {
            TransportClass::TlsHandshakeFailed
        } else if error.is_timeout() {
            TransportClass::ConnectTimeout
        } else {
            TransportClass::ClosedBeforeWrite
        }
    } else {
        sending(error, seen)
    }
}

/// What could not be made ready on this side. A shortage passes, and is no fault of the item or
/// of its destination: it is like a network that is down. The rest waits for a person.
pub(super) fn local_class(error: &(dyn Error + 'static)) -> TransportClass {
    if is_shortage(error) {
        TransportClass::ConnectUnreachable
    } else {
        TransportClass::LocalError
    }
}

/// This machine, or this process by its limits, has no descriptor or no memory left.
fn is_shortage(error: &(dyn Error + 'static)) -> bool {
    const SHORT: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    walk(error, &mut |error| {
        error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
            .is_some_and(|code| SHORT.iter().any(|short| short.raw_os_error() == code))
    })
}

/// The connection was not made.
fn connecting(error: &reqwest::Error, seen: Seen) -> TransportClass {
    if let Some(tls) = find::<rustls::Error>(error) {
        return if matches!(tls, rustls::Error::InvalidCertificate(_)) {
            TransportClass::TlsCertInvalid
        } else {
            TransportClass::TlsHandshakeFailed
        };
    }
    if is_shortage(error) {
        return TransportClass::ConnectUnreachable;
    }
    let tunnel = says(error, "tunnel error");
    let tcp = says(error, "tcp connect error");
    if seen.proxy && (tunnel || tcp || error.is_dns()) {
        TransportClass::ProxyConnectFailed
    } else if error.is_dns() {
        TransportClass::DnsFailure
    } else if error.is_timeout() {
        TransportClass::ConnectTimeout
    } else if io_kind(error) == Some(io::ErrorKind::ConnectionRefused) {
        TransportClass::ConnectRefused
    } else if seen.tls && !tcp {
        TransportClass::TlsHandshakeFailed
    } else {
        TransportClass::ConnectUnreachable
    }
}

/// The connection was made, and then something went wrong.
fn sending(error: &reqwest::Error, seen: Seen) -> TransportClass {
    let hyper = find::<hyper::Error>(error);
    if hyper.is_some_and(hyper::Error::is_parse) {
        TransportClass::MalformedResponse
    } else if seen.body == Some(Progress::Begun) || says(error, "error writing a body") {
        TransportClass::WriteInterrupted
    } else if error.is_timeout() {
        TransportClass::TimeoutAfterSend
    } else if io_kind(error).is_some_and(|kind| {
        matches!(
            kind,
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
        )
    }) {
        TransportClass::ResetAfterSend
    } else {
        TransportClass::ClosedNoResponse
    }
}

/// Visits an error and everything below it. `io::Error` hides the error it carries from
/// `source()`, and TLS puts its own exactly there, so that one is opened as well.
fn walk<'a>(
    error: &'a (dyn Error + 'static),
    visit: &mut dyn FnMut(&'a (dyn Error + 'static)) -> bool,
) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if visit(error) {
            return true;
        }
        let carried = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(carried) = carried
            && walk(carried, visit)
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// The first error of a type.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut found = None;
    walk(error, &mut |error| {
        found = error.downcast_ref::<T>();
        found.is_some()
    });
    found
}

/// The kind of the innermost error of the system.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut kind = None;
    walk(error, &mut |error| {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = Some(error.kind());
        }
        false
    });
    kind
}

fn says(error: &(dyn Error + 'static), text: &str) -> bool {
    walk(error, &mut |error| error.to_string().starts_with(text))
}

/// One line for a person: every layer's own words once, outermost first.
pub(super) fn words(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    walk(error, &mut |error| {
        let text = error.to_string();
        // These name a layer of a library and no cause.
        let noise = text.starts_with("error sending request")
            || text.starts_with("client error (")
            || text == "builder error";
        if !noise && !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
        false
    });
    let line: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if line.is_empty() {
        error.to_string()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_every_layer_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot connect")]
        struct Outer(#[source] io::Error);

        let error = Outer(io::Error::other(rustls::Error::DecryptError));
        assert_eq!(
            words(&error),
            "cannot connect: cannot decrypt peer's message"
        );
        assert!(find::<rustls::Error>(&error).is_some());
        assert_eq!(io_kind(&error), Some(io::ErrorKind::Other));
        let twice = Outer(io::Error::other("cannot connect\r\n"));
        assert_eq!(words(&twice), "cannot connect: cannot connect  ");
    }
}
