//! A gRPC failure in words that name the cause, which tonic hides behind "transport error".

use std::{error::Error, io};

use tonic::{Code, ConnectError, Status, transport};

/// The status with the innermost cause that says more than it does.
pub(crate) fn status(status: &Status) -> String {
    let mut text = match status.code() {
        Code::Unavailable | Code::Unknown | Code::Internal => String::new(),
        code => format!("{code:?}: "),
    };
    text.push_str(status.message());
    let mut cause = status.source();
    let mut innermost = None;
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    if let Some(innermost) = innermost.filter(|innermost| !text.contains(innermost)) {
        text.push_str(": ");
        text.push_str(&innermost);
    }
    if text.is_empty() {
        format!("{:?}", status.code())
    } else {
        text
    }
}

/// Whether the request certainly never left: no connection came up.
pub(crate) fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    let mut under_transport = false;
    while let Some(error) = cause {
        // The connect timeout is laid around the connector, outside of `ConnectError`; on an
        // established connection a timed out socket is wrapped by hyper first.
        let timed_out = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if error.is::<ConnectError>() || (under_transport && timed_out) {
            return true;
        }
        under_transport = error.is::<transport::Error>();
        cause = error.source();
    }
    false
}

/// Whether tonic made the status itself, out of a failed connection; a server's has no source.
pub(crate) fn is_transport(status: &Status) -> bool {
    status.source().is_some()
}

/// Whether a server answered in another protocol, such as a web server. Goes by the texts of
/// h2 and tonic, as neither has a kind for it; a text that is not known here only makes an
/// outcome count as unknown.
pub(crate) fn is_no_grpc(status: &Status) -> bool {
    let text = self::status(status);
    ["invalid compression flag", "frame with invalid size"]
        .iter()
        .any(|sign| text.contains(sign))
}
