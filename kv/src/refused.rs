//! Why a node did not serve a request, as a value and as a message.

use annulus_agent::{guard::Refusal, store::StoreError};
use annulus_ring::{Epoch, NodeId};

use crate::{limits::LimitError, pb};

/// Why a request was not served. Everything but [`Cause::Unknown`] means that nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at epoch {epoch}: {cause}")]
pub struct Refused {
    /// The node's epoch.
    pub epoch: Epoch,
    /// The reason.
    pub cause: Cause,
}

/// The reason for a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The range changed after the sender's epoch.
    #[error("the range changed since the sender's epoch, now on {nodes:?}: refresh, route anew")]
    Stale {
        /// The range's list now, owner first; may be empty.
        nodes: Vec<NodeId>,
    },
    /// The node has not heard of the sender's epoch yet.
    #[error("the sender's epoch is newer: try again shortly")]
    Behind,
    /// The range is being handed over.
    #[error("the range is sealed for a hand-over: try again shortly")]
    Sealed,
    /// Somebody else owns the range.
    #[error("not the owner, ask {}", owner.as_ref().map_or("the ring", NodeId::as_str))]
    NotOwner {
        /// Who does, where the node knows.
        owner: Option<NodeId>,
    },
    /// The node is in none of the range's sets, or not in this session.
    #[error("not a member of the range: refresh and route anew")]
    NotMember,
    /// Nothing is wrong with the request.
    #[error("{0}")]
    Unavailable(String),
    /// The write was given a position and not acknowledged in time: it may or may not be seen.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The request breaks a limit.
    #[error("{name}: {message}")]
    Invalid {
        /// [`LimitError::name`], or another name.
        name: String,
        /// What was found and what is allowed.
        message: String,
    },
}

impl Cause {
    /// A short word for counters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Behind => "behind",
            Self::Sealed => "sealed",
            Self::NotOwner { .. } => "not_owner",
            Self::NotMember => "not_member",
            Self::Unavailable(_) => "unavailable",
            Self::Unknown(_) => "unknown",
            Self::Invalid { .. } => "invalid",
        }
    }

    pub(crate) fn at(self, epoch: Epoch) -> Refused {
        Refused { epoch, cause: self }
    }
}

impl From<LimitError> for Cause {
    fn from(error: LimitError) -> Self {
        Self::Invalid {
            name: error.name().to_owned(),
            message: error.to_string(),
        }
    }
}

impl From<StoreError> for Cause {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        let nodes = |list: Vec<annulus_agent::guard::Peer>| {
            list.into_iter()
                .map(|peer| peer.node_id)
                .collect::<Vec<_>>()
        };
        match refusal {
            Refusal::Stale { epoch, list, .. } => Cause::Stale { nodes: nodes(list) }.at(epoch),
            Refusal::Behind { epoch, .. } => Cause::Behind.at(epoch),
            Refusal::Sealed { epoch, .. } | Refusal::Converting { epoch, .. } => {
                Cause::Sealed.at(epoch)
            }
            Refusal::NotOwner { epoch, list, .. } => Cause::NotOwner {
                owner: nodes(list).into_iter().next(),
            }
            .at(epoch),
            Refusal::NotMember { epoch, .. } | Refusal::SessionClosed { epoch, .. } => {
                Cause::NotMember.at(epoch)
            }
            // The sender's reign is over, or its slots are: it learns by which epoch when it refreshes.
            Refusal::Deposed { epoch, .. } | Refusal::Converted { epoch, .. } => {
                Cause::Stale { nodes: Vec::new() }.at(epoch)
            }
            Refusal::UnderReplicated { epoch, .. }
            | Refusal::NoCopy { epoch, .. }
            | Refusal::Isolated { epoch, .. } => Cause::Unavailable(text).at(epoch),
            Refusal::Removed { .. } => Cause::NotMember.at(Epoch(0)),
            // The enum may grow: what this version does not know is safe to try again.
            _ => Cause::Unavailable(text).at(Epoch(0)),
        }
    }
}

impl From<Refused> for pb::Refused {
    fn from(refused: Refused) -> Self {
        use pb::refused::Cause as Wire;
        let cause = match refused.cause {
            Cause::Stale { nodes } => {
                let nodes = nodes.into_iter().map(String::from).collect();
                Wire::Stale(pb::Stale { nodes })
            }
            Cause::Behind => Wire::Behind(pb::Behind {}),
            Cause::Sealed => Wire::Sealed(pb::Sealed {}),
            Cause::NotOwner { owner } => {
                let owner = owner.map(String::from).unwrap_or_default();
                Wire::NotOwner(pb::NotOwner { owner })
            }
            Cause::NotMember => Wire::NotMember(pb::NotMember {}),
            Cause::Unavailable(message) => Wire::Unavailable(pb::Unavailable { message }),
            Cause::Unknown(message) => Wire::Unknown(pb::Unknown { message }),
            Cause::Invalid { name, message } => Wire::Invalid(pb::Invalid { name, message }),
        };
        Self {
            epoch: refused.epoch.0,
            cause: Some(cause),
        }
    }
}

impl From<pb::Refused> for Refused {
    fn from(message: pb::Refused) -> Self {
        use pb::refused::Cause as Wire;
        let cause = match message.cause {
            Some(Wire::Stale(stale)) => {
                // A name that makes no sense is left out: the list is a hint, the ring decides.
                Cause::Stale {
                    nodes: stale
                        .nodes
                        .iter()
                        .filter_map(|n| NodeId::new(n).ok())
                        .collect(),
                }
            }
            Some(Wire::Behind(_)) => Cause::Behind,
            Some(Wire::Sealed(_)) => Cause::Sealed,
            Some(Wire::NotOwner(not)) => Cause::NotOwner {
                owner: NodeId::new(not.owner).ok(),
            },
            Some(Wire::NotMember(_)) => Cause::NotMember,
            Some(Wire::Unavailable(unavailable)) => Cause::Unavailable(unavailable.message),
            Some(Wire::Unknown(unknown)) => Cause::Unknown(unknown.message),
            Some(Wire::Invalid(invalid)) => Cause::Invalid {
                name: invalid.name,
                message: invalid.message,
            },
            // A reason from the future may be one where something was done.
            None => {
                Cause::Unknown("refused for a reason that this version does not know".to_owned())
            }
        };
        cause.at(Epoch(message.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_comes_back_from_the_wire() {
        let node = NodeId::new("n1").unwrap();
        let causes = [
            Cause::Stale {
                nodes: vec![node.clone()],
            },
            Cause::Behind,
            Cause::Sealed,
            Cause::NotOwner { owner: Some(node) },
            Cause::NotOwner { owner: None },
            Cause::NotMember,
            Cause::Unavailable("queue".to_owned()),
            Cause::Unknown("late".to_owned()),
            LimitError::KeyEmpty.into(),
        ];
        for cause in causes {
            let refused = cause.at(Epoch(7));
            assert_eq!(Refused::from(pb::Refused::from(refused.clone())), refused);
        }
        let future = Refused::from(pb::Refused {
            epoch: 7,
            cause: None,
        });
        assert_eq!(future.cause.kind(), "unknown");
    }
}
