//! The only maker of `tonic::Status`: which refusal gets which code, name and text.
//!
//! | kind | code | what a caller does |
//! |---|---|---|
//! | malformed | `INVALID_ARGUMENT` | corrects the call |
//! | refused by the rules | `NOT_FOUND`, `ALREADY_EXISTS`, `RESOURCE_EXHAUSTED`, `FAILED_PRECONDITION` | does what the text says |
//! | stale: another layout than the caller saw | `ABORTED` | looks again |
//! | unavailable: nothing was done | `UNAVAILABLE` | backs off, tries again |
//! | unknown outcome | `DEADLINE_EXCEEDED` | asks again with the same request id |
//!
//! Every one carries a [`v1::Refused`] in its details, so that callers tell the causes apart
//! by name and need not read the text.

use annulus_membership::Rejection;
use annulus_proto::{convert::ConvertError, v1};
use annulus_ring::{Epoch, NameError, RingName, hash::UnknownHash};
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

use crate::raft::{InitError, ProposeError, ReadError};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// A field that breaks its rules.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// A hash that is not known here.
    #[error(transparent)]
    Hash(#[from] UnknownHash),
    /// A field that cannot be read.
    #[error("{field}: {reason}")]
    Field {
        /// As in the .proto file.
        field: &'static str,
        /// What was found and what was expected.
        reason: String,
    },
    /// The rules say no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The cluster cannot be founded like this.
    #[error("{0}")]
    Init(InitError),
    /// A server named for a new cluster does not do.
    #[error("server {id} at {endpoint} {reason}; nothing was changed")]
    BadPeer {
        /// As named.
        id: u64,
        /// As named.
        endpoint: String,
        /// What it answered instead.
        reason: String,
        /// It may do later.
        silent: bool,
    },
    /// Founded already, and this server does not know.
    #[error(
        "server {member} belongs to a cluster of these very servers, and server {own}, which was \
         asked, does not know it: it was started without its own data directory; give it that one back"
    )]
    Forgotten {
        /// Who was asked.
        own: u64,
        /// Who knows better.
        member: u64,
    },
    /// Not kept.
    #[error("ring {ring} keeps no epoch {epoch}; kept are {oldest} to {newest}")]
    UnknownEpoch {
        /// Which ring.
        ring: RingName,
        /// As asked.
        epoch: u64,
        /// The oldest kept.
        oldest: Epoch,
        /// The newest.
        newest: Epoch,
    },
    /// Too few servers answer.
    #[error(
        "no quorum: {reachable} of {total} reachable, not answering: {silent}; start them, or read with local mode"
    )]
    NoQuorum {
        /// Answering, this one among them.
        reachable: usize,
        /// All voters.
        total: usize,
        /// The others: id and endpoint.
        silent: String,
    },
    /// Enough servers answer, nobody leads.
    #[error(
        "no leader: {reachable} of {total} reachable, an election is under way; nothing was changed, try again"
    )]
    NoLeader {
        /// Answering, this one among them.
        reachable: usize,
        /// All voters.
        total: usize,
    },
    /// A call that was passed on already came to a server that does not lead.
    #[error("the leader changed while the call was passed on; nothing was changed, try again")]
    LeaderMoved,
    /// The leader did not answer.
    #[error("the leader at {leader} did not answer: {reason}; try again")]
    LeaderSilent {
        /// Its endpoint.
        leader: String,
        /// What happened.
        reason: String,
    },
    /// No cluster yet.
    #[error(
        "this server belongs to no cluster: `annulus cluster init` founds one, once; if it belonged \
         to one, it was started without its own data directory"
    )]
    NotInitialised,
    /// It may have been done.
    #[error("the outcome is unknown: {0}; ask again with the same request id")]
    Unknown(String),
    /// Too many at once.
    #[error("{limit} watch streams are open at this server, which is the most; use another server")]
    TooManyStreams {
        /// The limit.
        limit: u32,
    },
    /// This server ends.
    #[error("this server stops: {0}; use another server")]
    Stopping(String),
    /// What another server answered, as it stands.
    #[error("{0}")]
    Passed(Box<Status>),
}

impl ApiError {
    /// A field that cannot be read.
    pub(crate) fn field(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Field {
            field,
            reason: reason.into(),
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Convert(_) | Self::Hash(_) | Self::Field { .. } => Code::InvalidArgument,
            Self::Rejected(rejection) => code_of(rejection),
            Self::Init(error) => match error {
                InitError::AlreadyInitialised => Code::FailedPrecondition,
                InitError::BadServers { .. } => Code::InvalidArgument,
                InitError::Unknown { .. } => Code::DeadlineExceeded,
                InitError::NotEnlisted { .. } => Code::Unavailable,
                InitError::Fatal { .. } => Code::Unavailable,
            },
            Self::BadPeer { silent: true, .. } => Code::Unavailable,
            Self::BadPeer { silent: false, .. } | Self::Forgotten { .. } => {
                Code::FailedPrecondition
            }
            Self::UnknownEpoch { .. } => Code::NotFound,
            Self::NoQuorum { .. }
            | Self::NoLeader { .. }
            | Self::LeaderMoved
            | Self::LeaderSilent { .. }
            | Self::NotInitialised
            | Self::Stopping(_) => Code::Unavailable,
            Self::Unknown(_) => Code::DeadlineExceeded,
            Self::TooManyStreams { .. } => Code::ResourceExhausted,
            Self::Passed(status) => status.code(),
        }
    }

    /// Stable, for scripts: `Refused.name`.
    fn name(&self) -> String {
        let name = match self {
            Self::Convert(ConvertError::Name { source, .. }) => match source {
                NameError::Empty { .. } => "EmptyName",
                NameError::TooLong { .. } => "NameTooLong",
                NameError::Character { .. } => "BadCharacter",
                NameError::Endpoint { .. } => "BadEndpoint",
            },
            Self::Convert(ConvertError::Missing { .. }) => "MissingField",
            Self::Convert(
                ConvertError::Length { .. }
                | ConvertError::Value { .. }
                | ConvertError::Order { .. },
            )
            | Self::Field { .. } => "BadField",
            Self::Hash(_) => "UnknownHash",
            Self::Rejected(rejection) => return rejection.name(),
            Self::Init(InitError::AlreadyInitialised) => "AlreadyInitialised",
            Self::Init(InitError::BadServers { .. }) => "BadServers",
            Self::Init(InitError::NotEnlisted { .. }) => "ServerSilent",
            Self::Init(InitError::Unknown { .. }) | Self::Unknown(_) => "UnknownOutcome",
            Self::Init(InitError::Fatal { .. }) | Self::Stopping(_) => "Stopping",
            Self::BadPeer { silent: true, .. } => "ServerSilent",
            Self::BadPeer { silent: false, .. } => "ServerDiffers",
            Self::Forgotten { .. } => "ServerForgot",
            Self::UnknownEpoch { .. } => "UnknownEpoch",
            Self::NoQuorum { .. } => "NoQuorum",
            Self::NoLeader { .. } => "NoLeader",
            Self::LeaderMoved => "LeaderMoved",
            Self::LeaderSilent { .. } => "LeaderSilent",
            Self::NotInitialised => "NotInitialised",
            Self::TooManyStreams { .. } => "TooManyStreams",
            Self::Passed(_) => "Passed",
        };
        name.to_owned()
    }
}

/// The table of rejections. No wildcard: a new one asks here which kind it is.
fn code_of(rejection: &Rejection) -> Code {
    match rejection {
        Rejection::SlotBits { .. }
        | Rejection::NotACache { .. }
        | Rejection::HitRatio { .. }
        | Rejection::Replication(_)
        | Rejection::TickTooLong { .. }
        | Rejection::BadSteps { .. }
        | Rejection::NoSteps { .. }
        | Rejection::MaintenanceTime { .. }
        | Rejection::BadSlots { .. }
        | Rejection::BadReason { .. }
        | Rejection::EmptyPlan
        | Rejection::TooManyPlanned { .. } => Code::InvalidArgument,
        Rejection::UnknownRing { .. }
        | Rejection::NotRegistered { .. }
        | Rejection::NotMember { .. }
        | Rejection::UnknownChange { .. }
        | Rejection::UnknownPlan { .. }
        | Rejection::NoTransition { .. }
        | Rejection::NoWave { .. }
        | Rejection::NotPinned { .. }
        | Rejection::UnknownZone { .. }
        | Rejection::NoSuchCopy { .. } => Code::NotFound,
        Rejection::RingExists { .. }
        | Rejection::AlreadyFounded { .. }
        | Rejection::AlreadyMember { .. }
        | Rejection::EndpointTaken { .. }
        | Rejection::PlanCommitted { .. }
        | Rejection::AlreadyDraining { .. } => Code::AlreadyExists,
        Rejection::TooManyRings { .. }
        | Rejection::TooManyMembers { .. }
        | Rejection::TooManyPins { .. }
        | Rejection::QueueFull { .. } => Code::ResourceExhausted,
        Rejection::StaleLayout { .. }
        | Rejection::StaleTarget
        | Rejection::StalePlan { .. }
        | Rejection::PlanOutdated { .. } => Code::Aborted,
        Rejection::NotInitialised
        | Rejection::AlreadyInitialised
        | Rejection::SingleReplica
        | Rejection::NotFounded { .. }
        | Rejection::NotLinked { .. }
        | Rejection::NoFounders
        | Rejection::FounderChanged { .. }
        | Rejection::TooFewNodes { .. }
        | Rejection::TooFewZones { .. }
        | Rejection::NoWeight
        | Rejection::NotActive { .. }
        | Rejection::ZoneDiffers { .. }
        | Rejection::WeightDiffers { .. }
        | Rejection::EmptiedDirectory { .. }
        | Rejection::RemovedIncarnation { .. }
        | Rejection::WrongIncarnation { .. }
        | Rejection::FactsDiffer { .. }
        | Rejection::ForeignData { .. }
        | Rejection::ShortensLists { .. }
        | Rejection::EmptiesZone { .. }
        | Rejection::TransitionRuns { .. }
        | Rejection::NothingToSettle
        | Rejection::WrongStep { .. }
        | Rejection::ChangeEnded { .. }
        | Rejection::ChangesPending { .. }
        | Rejection::PlanSplits { .. }
        | Rejection::FlipsBack
        | Rejection::NodeDown { .. }
        | Rejection::NodeUp { .. }
        | Rejection::TakenForDead { .. }
        | Rejection::NoSurvivor { .. }
        | Rejection::MayLose { .. }
        | Rejection::NotStopped { .. }
        | Rejection::AutoRemoveTooSoon { .. }
        | Rejection::JoinerSilent { .. }
        | Rejection::TooLateToReplan { .. }
        | Rejection::NothingToReplan { .. }
        | Rejection::SameWeight { .. }
        | Rejection::SamePins { .. }
        | Rejection::SameZone { .. }
        | Rejection::RowBroken { .. }
        | Rejection::OtherCoordinates { .. }
        | Rejection::SameCoordinates
        | Rejection::OnlySlots { .. }
        | Rejection::NotAtRest { .. }
        | Rejection::Converting
        | Rejection::NotConverting { .. }
        | Rejection::NotMaintained { .. }
        | Rejection::TooManyAway { .. }
        | Rejection::SameReplication { .. }
        | Rejection::RfNeedsNodes { .. }
        | Rejection::CarriesAll { .. }
        | Rejection::ZoneShortens { .. }
        | Rejection::ZoneLost { .. }
        | Rejection::ZoneHoldsAll { .. }
        | Rejection::PinWeight { .. }
        | Rejection::OwnerPinned { .. }
        | Rejection::Pinned { .. }
        | Rejection::NoRoomForPin { .. }
        | Rejection::ReplacementZone { .. }
        | Rejection::ReplacementWeight { .. }
        | Rejection::ReplacesOnlyHolder { .. }
        | Rejection::Paused { .. }
        | Rejection::Held { .. }
        | Rejection::NotPaused
        | Rejection::NotHeld
        | Rejection::BadTarget { .. }
        | Rejection::Evidence { .. }
        | Rejection::WaveRuns { .. }
        | Rejection::BadWave { .. }
        | Rejection::OwnersLeave { .. }
        | Rejection::Soaking { .. }
        | Rejection::NotPermitted { .. }
        | Rejection::Assign(_) => Code::FailedPrecondition,
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        if let ApiError::Passed(status) = error {
            return *status;
        }
        let message = error.to_string();
        let refused = v1::Refused {
            name: error.name(),
            message: message.clone(),
        };
        Self::with_details(error.code(), message, Bytes::from(refused.encode_to_vec()))
    }
}

impl From<ProposeError> for ApiError {
    fn from(error: ProposeError) -> Self {
        match error {
            // Who asked replaces it by a count of the servers that answer.
            ProposeError::NoLeader { .. } => Self::NoLeader {
                reachable: 0,
                total: 0,
            },
            ProposeError::NotInitialised => Self::NotInitialised,
            ProposeError::Unavailable { leader, reason } => Self::LeaderSilent { leader, reason },
            ProposeError::Unknown { reason } => Self::Unknown(reason),
            ProposeError::TooLarge { bytes, limit } => Self::Field {
                field: "request",
                reason: format!("makes an entry of {bytes} bytes, at most {limit} are possible"),
            },
            ProposeError::Fatal { reason } => Self::Stopping(reason),
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoLeader { .. } => Self::NoLeader {
                reachable: 0,
                total: 0,
            },
            ReadError::NotInitialised => Self::NotInitialised,
            ReadError::Fatal { reason } => Self::Stopping(reason),
        }
    }
}

/// What a status says of its cause; none where it was not made here (a broken connection).
pub(crate) fn cause(status: &Status) -> Option<v1::Refused> {
    if status.details().is_empty() {
        return None;
    }
    v1::Refused::decode(status.details())
        .ok()
        .filter(|refused| !refused.name.is_empty())
}

#[cfg(test)]
mod tests {
    use annulus_proto::convert::node_id;

    use super::*;

    #[test]
    fn the_kinds_are_told_apart_by_code_and_name() {
        let unknown_ring = Rejection::UnknownRing {
            ring: RingName::new("r").unwrap(),
        };
        let stale = Rejection::StaleLayout {
            expected: Epoch(3),
            found: Epoch(4),
        };
        let cases: Vec<(ApiError, Code, &str)> = vec![
            (
                node_id("node", "").unwrap_err().into(),
                Code::InvalidArgument,
                "EmptyName",
            ),
            (
                node_id("node", "a\u{7}").unwrap_err().into(),
                Code::InvalidArgument,
                "BadCharacter",
            ),
            (unknown_ring.into(), Code::NotFound, "UnknownRing"),
            (stale.into(), Code::Aborted, "StaleLayout"),
            (
                ApiError::NoQuorum {
                    reachable: 1,
                    total: 3,
                    silent: "2 (b:1)".to_owned(),
                },
                Code::Unavailable,
                "NoQuorum",
            ),
            (
                ApiError::Unknown("timed out".to_owned()),
                Code::DeadlineExceeded,
                "UnknownOutcome",
            ),
        ];
        for (error, code, name) in cases {
            let status = Status::from(error);
            assert_eq!(status.code(), code, "{status:?}");
            let refused = cause(&status).unwrap();
            assert_eq!(refused.name, name);
            assert_eq!(refused.message, status.message());
        }
        assert_eq!(cause(&Status::unavailable("connection reset")), None);
    }
}
