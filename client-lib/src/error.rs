//! What a caller of this library may be told, by what it would do about it.

use annulus_ring::{Endpoint, Epoch, NameError, NodeId, RingName};

use crate::dial::DialError;

/// An error of the user's own protocol, as the router hands it through.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client that was not built: something given makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A ring name or endpoint is malformed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The endpoint has the right form and is still no address.
    #[error(transparent)]
    Endpoint(#[from] DialError),
    /// Nobody to ask.
    #[error("no endpoint of the control plane was given; name at least one as host:port")]
    NoEndpoints,
    /// Two settings, or a setting and its bounds, do not go together.
    #[error("{setting}: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong, and what would be right.
        why: &'static str,
    },
    /// The watch needs a runtime to live in.
    #[error("not called within a tokio runtime, in which the watch would run")]
    NoRuntime,
}

/// Why a key has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// Nothing was ever received, and no file was found; wait with `Client::ready`.
    #[error("no snapshot yet; wait for the first one with `ready`")]
    NoSnapshot,
    /// The range has no owner at this epoch.
    #[error(transparent)]
    NoOwner(#[from] annulus_ring::LookupError),
}

/// Why a wait or a routed request came to nothing.
///
/// Variants of routing carry the epoch that the request was routed by (`held`) and, where a
/// node told it, the node's (`seen`).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No control plane answered before the deadline, and there was no file to start from.
    #[error("ring {ring}: no snapshot before the deadline; last trouble: {last_error}")]
    NoSnapshot {
        /// Which ring.
        ring: RingName,
        /// What the watch last met, or `none`.
        last_error: String,
    },
    /// A newer epoch was waited for and did not come in time.
    #[error("ring {ring}: still at epoch {held} at the deadline, waited for one after {after}")]
    NoNewer {
        /// Which ring.
        ring: RingName,
        /// What is held; 0 = nothing.
        held: Epoch,
        /// Something newer than this was wanted.
        after: Epoch,
    },
    /// The key has no owner.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Nodes kept saying that they do not serve the key, or that we are behind.
    #[error("{node} at epoch {seen} does not serve this for epoch {held}, after {tries} tries")]
    Stale {
        /// Who said so last.
        node: NodeId,
        /// Our epoch.
        held: Epoch,
        /// The node's epoch.
        seen: Epoch,
        /// Attempts made.
        tries: u32,
    },
    /// The node is at an older epoch and did not catch up in time.
    #[error("{node} is still at epoch {seen}, the request needs {held}, after {tries} tries")]
    Behind {
        /// Which node.
        node: NodeId,
        /// Our epoch.
        held: Epoch,
        /// The node's epoch.
        seen: Epoch,
        /// Attempts made.
        tries: u32,
    },
    /// The range stayed sealed: a hand-over did not end in time.
    #[error("{node} has sealed the range at epoch {held}, after {tries} tries")]
    Sealed {
        /// Which node.
        node: NodeId,
        /// Our epoch.
        held: Epoch,
        /// Attempts made.
        tries: u32,
    },
    /// Nobody who may serve the key could be reached; nothing was done.
    #[error(
        "{node} at {endpoint} does not serve this at epoch {held}, after {tries} tries: {source}"
    )]
    Unavailable {
        /// Who was asked last.
        node: NodeId,
        /// Where.
        endpoint: Endpoint,
        /// Our epoch.
        held: Epoch,
        /// Attempts made.
        tries: u32,
        /// Why.
        source: BoxError,
    },
    /// An attempt may have been carried out; ask before doing it again.
    #[error("{node} gave no answer at epoch {held}, it may have done it, {tries} tries: {source}")]
    Unknown {
        /// Who was asked last.
        node: NodeId,
        /// Our epoch.
        held: Epoch,
        /// Attempts made.
        tries: u32,
        /// Why.
        source: BoxError,
    },
    /// The node answered, and the answer is no. Final.
    #[error("{node} at epoch {held}: {source}")]
    Failed {
        /// Who.
        node: NodeId,
        /// Our epoch.
        held: Epoch,
        /// Its own words.
        source: BoxError,
    },
}

impl Error {
    /// Whether the same request may succeed later, without harm if it is made again.
    ///
    /// [`Error::Unknown`] is not: it may have been carried out.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoSnapshot { .. }
            | Self::NoNewer { .. }
            | Self::Stale { .. }
            | Self::Behind { .. }
            | Self::Sealed { .. }
            | Self::Unavailable { .. } => true,
            Self::Lookup(LookupError::NoSnapshot) => true,
            Self::Lookup(LookupError::NoOwner(_)) | Self::Unknown { .. } | Self::Failed { .. } => {
                false
            }
        }
    }
}
