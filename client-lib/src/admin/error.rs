//! What an operator's call came to, by what one would do about it.

use annulus_proto::v1;
use annulus_ring::Endpoint;
use prost::Message as _;
use tonic::{Code, Status};

use crate::explain;

/// Why an admin call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The rules say no; nothing was changed, and trying again changes nothing.
    #[error("refused: {message} ({name})")]
    Refused {
        /// The rejection's name, such as `NotRegistered`.
        name: String,
        /// A sentence that says what to do next.
        message: String,
    },
    /// The request itself makes no sense; nothing was changed.
    #[error("invalid: {message}")]
    Invalid {
        /// What is wrong with it.
        message: String,
    },
    /// No server could take it; nothing was changed.
    #[error("unavailable: {}", list(tried))]
    Unavailable {
        /// Every server asked, and what it met last.
        tried: Vec<(Endpoint, String)>,
    },
    /// It was sent, and nobody said what came of it. With the same request id it can be asked
    /// again; without, look at the status first.
    #[error("outcome unknown: {}", list(tried))]
    Unknown {
        /// Every server asked, and what it met last.
        tried: Vec<(Endpoint, String)>,
    },
    /// A server's answer is damaged.
    #[error("{endpoint} gave a broken answer: {what}")]
    Broken {
        /// Whose.
        endpoint: Endpoint,
        /// What is wrong with it.
        what: String,
    },
}

impl AdminError {
    /// Whether the same call, with the same request id, may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Unknown { .. } => true,
            Self::Refused { .. } | Self::Invalid { .. } | Self::Broken { .. } => false,
        }
    }
}

fn list(tried: &[(Endpoint, String)]) -> String {
    if tried.is_empty() {
        return "no server was asked in the time given".to_owned();
    }
    let each = tried
        .iter()
        .map(|(endpoint, why)| format!("{endpoint}: {why}"));
    each.collect::<Vec<_>>().join("; ")
}

/// The name of the refusal that counts only when every server says so.
pub(super) const NOT_INITIALISED: &str = "NotInitialised";

/// What one server's failure means for the call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The answer is no, wherever it is asked.
    Final(AdminError),
    /// This server did nothing; another may.
    NotDone(String),
    /// This server did nothing, as it belongs to no founded cluster, or does not know yet.
    NotInitialised(String),
    /// This server may have done it.
    MayBeDone(String),
}

/// The one table from a status to its meaning.
pub(super) fn judge(status: &Status) -> Verdict {
    if explain::is_no_grpc(status) {
        let why = explain::status(status);
        return Verdict::NotDone(format!("what answers there speaks no gRPC ({why})"));
    }
    if explain::is_transport(status) {
        let why = explain::status(status);
        return if explain::never_sent(status) {
            Verdict::NotDone(why)
        } else {
            Verdict::MayBeDone(why)
        };
    }
    let message = status.message().to_owned();
    let cause = v1::Refused::decode(status.details())
        .ok()
        .filter(|cause| !cause.name.is_empty());
    match (status.code(), cause) {
        (Code::Unavailable, Some(cause)) if cause.name == NOT_INITIALISED => {
            Verdict::NotInitialised(cause.message)
        }
        // By the servers' own table: no leader, no quorum, stopping. Nothing was appended.
        (Code::Unavailable, _) | (Code::ResourceExhausted, None) => {
            Verdict::NotDone(explain::status(status))
        }
        (Code::DeadlineExceeded, _) => Verdict::MayBeDone(explain::status(status)),
        // Whatever else names its cause was decided before anything was proposed.
        (_, Some(v1::Refused { name, message })) => {
            Verdict::Final(AdminError::Refused { name, message })
        }
        (Code::InvalidArgument | Code::OutOfRange, None) => {
            Verdict::Final(AdminError::Invalid { message })
        }
        (
            Code::FailedPrecondition
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated,
            None,
        ) => {
            let name = format!("{:?}", status.code());
            Verdict::Final(AdminError::Refused { name, message })
        }
        (Code::Unimplemented, None) => {
            Verdict::NotDone("something else than a control-plane server answers there".to_owned())
        }
        (
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::Aborted
            | Code::Internal
            | Code::DataLoss,
            None,
        ) => Verdict::MayBeDone(explain::status(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_details(code: Code) -> Status {
        let cause = v1::Refused {
            name: "NotRegistered".into(),
            message: "start it".into(),
        };
        Status::with_details(code, "text", cause.encode_to_vec().into())
    }

    #[test]
    fn a_refusal_is_read_from_the_details() {
        let refused = Verdict::Final(AdminError::Refused {
            name: "NotRegistered".into(),
            message: "start it".into(),
        });
        for code in [
            Code::FailedPrecondition,
            Code::NotFound,
            Code::InvalidArgument,
            Code::ResourceExhausted,
            Code::Aborted,
        ] {
            assert_eq!(judge(&with_details(code)), refused, "{code:?}");
        }
        let bare = Status::failed_precondition("text");
        let Verdict::Final(AdminError::Refused { name, message }) = judge(&bare) else {
            panic!("{bare:?} is a refusal without a name");
        };
        assert_eq!((&*name, &*message), ("FailedPrecondition", "text"));
    }

    #[test]
    fn kinds_are_kept_apart() {
        let invalid = judge(&Status::invalid_argument("empty id"));
        assert_eq!(
            invalid,
            Verdict::Final(AdminError::Invalid {
                message: "empty id".into()
            })
        );
        // Even with details: a server without a leader has refused nothing.
        assert!(matches!(
            judge(&with_details(Code::Unavailable)),
            Verdict::NotDone(_)
        ));
        assert!(matches!(
            judge(&Status::unimplemented("")),
            Verdict::NotDone(_)
        ));
        let proposed = with_details(Code::DeadlineExceeded);
        assert!(matches!(judge(&proposed), Verdict::MayBeDone(_)));
        for code in [Code::Unknown, Code::Internal, Code::Aborted] {
            let bare = Status::new(code, "text");
            assert!(matches!(judge(&bare), Verdict::MayBeDone(_)), "{code:?}");
        }
    }
}
