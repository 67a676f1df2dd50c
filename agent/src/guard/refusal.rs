//! Why a request was not admitted.

use annulus_ring::{Epoch, Generation, Incarnation, SessionId, Slot};

use super::Peer;

/// Why a request was not admitted. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The slot changed after the sender's epoch: refresh, then route anew.
    #[error(
        "slot {slot} changed since the sender's epoch; this node is at epoch {epoch}: refresh and route anew"
    )]
    Stale {
        /// This node's.
        generation: Generation,
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
        /// Its read set, owner first.
        list: Vec<Peer>,
    },
    /// The sender knows a newer epoch, and it did not come here in time: try again.
    #[error("this node is at epoch {epoch}, the sender at {asked}: try again shortly")]
    Behind {
        /// This node's.
        generation: Generation,
        /// This node's.
        epoch: Epoch,
        /// The sender's.
        asked: Epoch,
    },
    /// A hand-over of the slot is under way: try again soon.
    #[error("slot {slot} is sealed for a hand-over at epoch {epoch}: try again shortly")]
    Sealed {
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
    },
    /// The ring is being converted, and nobody serves: try again soon.
    #[error("slot {slot}: the ring is being converted at epoch {epoch}: try again shortly")]
    Converting {
        /// This node's.
        generation: Generation,
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
    },
    /// The ring was converted after the slot was named: locate the key again.
    #[error(
        "slot {slot} was named before the ring was converted, now at epoch {epoch}: route anew"
    )]
    Converted {
        /// This node's.
        epoch: Epoch,
        /// As named.
        slot: Slot,
    },
    /// Another node owns the slot (or, for reads of any kind, this one is not in its read set).
    #[error(
        "slot {slot} is not served here at epoch {epoch}: ask {}",
        owner_of(list)
    )]
    NotOwner {
        /// This node's.
        generation: Generation,
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
        /// Its read set, owner first.
        list: Vec<Peer>,
    },
    /// This node is no member of the ring, or not in the slot's write set.
    #[error("this node does not hold slot {slot} at epoch {epoch}: refresh and route anew")]
    NotMember {
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
    },
    /// Another incarnation of this node's id is the member: this one is over.
    #[error(
        "incarnation {own} of this node is over, {member} is the member: start with an empty directory"
    )]
    Removed {
        /// This node's.
        own: Incarnation,
        /// The member's.
        member: Incarnation,
    },
    /// The sender's reign is over, or is not the slot's.
    #[error("slot {slot}: reign {asked} is over, reign {reign} runs at epoch {epoch}: refresh")]
    Deposed {
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
        /// The reign that runs.
        reign: Epoch,
        /// The sender's.
        asked: Epoch,
    },
    /// A packet of a session that is closed, or that never was.
    #[error("session {asked:?} is closed, {running:?} runs at epoch {epoch}: drop the packet")]
    SessionClosed {
        /// This node's.
        epoch: Epoch,
        /// The packet's.
        asked: Option<SessionId>,
        /// The one that runs.
        running: Option<SessionId>,
    },
    /// A list of the slot is shorter than w.
    #[error("slot {slot} has {found} replicas at epoch {epoch}, a write needs {w}: join a node")]
    UnderReplicated {
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
        /// Replicas in the shortest list.
        found: usize,
        /// Replicas needed.
        w: usize,
    },
    /// The list names this node, but it holds no live copy: it never serves what it has not got.
    #[error("slot {slot} is listed here at epoch {epoch} but no copy is held: see this node's log")]
    NoCopy {
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
    },
    /// The control plane is not heard, and the ring's nodes then serve nobody.
    #[error(
        "slot {slot}: this node hears nothing from the control plane since epoch {epoch} and its \
         ring does not serve then: ask another member, or mend its link"
    )]
    Isolated {
        /// This node's.
        epoch: Epoch,
        /// Which slot.
        slot: Slot,
    },
}

impl Refusal {
    /// A short word for counters and wire enums.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Behind { .. } => "behind",
            Self::Sealed { .. } => "sealed",
            Self::Converting { .. } => "converting",
            Self::Converted { .. } => "converted",
            Self::NotOwner { .. } => "not_owner",
            Self::NotMember { .. } => "not_member",
            Self::Removed { .. } => "removed",
            Self::Deposed { .. } => "deposed",
            Self::SessionClosed { .. } => "session_closed",
            Self::UnderReplicated { .. } => "under_replicated",
            Self::NoCopy { .. } => "no_copy",
            Self::Isolated { .. } => "isolated",
        }
    }

    /// The owner to forward to, where the refusal names one.
    #[must_use]
    pub fn owner(&self) -> Option<&Peer> {
        match self {
            Self::Stale { list, .. } | Self::NotOwner { list, .. } => list.first(),
            _ => None,
        }
    }
}

fn owner_of(list: &[Peer]) -> String {
    match list.first() {
        Some(owner) => format!("{} at {}", owner.node_id, owner.endpoint),
        None => "nobody, the slot has no owner".to_owned(),
    }
}
