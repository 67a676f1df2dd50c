//! Why a retained copy is still there: what its delete permit waits for, told range by range and
//! counted. The counterpart of `due`'s permits, in words.

use std::collections::BTreeMap;

use annulus_ring::{Epoch, NodeId, SessionId, Slot, TransitionId};

use crate::{
    Reports, RingState, State,
    decide::is_whole,
    due::{current, differs},
};

/// Copies of one node from one session, and what they wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Who keeps them.
    pub node: NodeId,
    /// The session whose end made them.
    pub session: SessionId,
    /// The epoch of that end.
    pub since_epoch: Epoch,
    /// How long ago it is, in ms of ring time.
    pub age_ms: u64,
    /// What is left of the grace, in ms of ring time.
    pub grace_left_ms: u64,
    /// How many have no leave to be deleted.
    pub kept: u32,
    /// How many have it and are not yet reported deleted.
    pub permitted: u32,
    /// What they wait for, and how many of them each. One copy may wait for several things.
    pub waits: Vec<(Lack, u32)>,
}

/// One thing that a copy waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Its node has leave and did not say yet that it is gone.
    Deleting,
    /// The grace.
    Grace {
        /// Ring time left, in ms.
        left_ms: u64,
    },
    /// The operator's hold.
    Held {
        /// Why.
        reason: String,
    },
    /// The operator's pause.
    Paused {
        /// Why.
        reason: String,
    },
    /// A transition: no permit is given meanwhile.
    Transition {
        /// Which.
        transition: TransitionId,
    },
    /// A member of the range is not linked to the leader, in its life.
    NotLinked {
        /// Who.
        node: NodeId,
    },
    /// A member has not adopted the end of the transition.
    NotAdopted {
        /// Who.
        node: NodeId,
        /// The epoch it acts by.
        found: Epoch,
        /// The epoch of that end.
        wanted: Epoch,
    },
    /// A member's copy was not yet compared with the owner's, or differed.
    NotVerified {
        /// Who.
        node: NodeId,
    },
    /// The range has fewer members, or is in fewer zones, than it should.
    TooFew,
    /// Nothing: its permit is due.
    Due,
}

impl Lack {
    /// Stable, for scripts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Deleting => "Deleting",
            Self::Grace { .. } => "Grace",
            Self::Held { .. } => "Held",
            Self::Paused { .. } => "Paused",
            Self::Transition { .. } => "Transition",
            Self::NotLinked { .. } => "NotLinked",
            Self::NotAdopted { .. } => "NotAdopted",
            Self::NotVerified { .. } => "NotVerified",
            Self::TooFew => "TooFew",
            Self::Due => "Due",
        }
    }

    /// A sentence, with the command that would help where one would.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Deleting => {
                "they may be deleted; their node has not said yet that they are".into()
            }
            Self::Grace { left_ms } => {
                format!(
                    "their grace has {} s of ring time left",
                    left_ms.div_ceil(1000)
                )
            }
            Self::Held { reason } => {
                format!("deletion is on hold ({reason}); `annulus ring unhold` allows it again")
            }
            Self::Paused { reason } => {
                format!("movement is paused ({reason}); `annulus ring resume` lets it go on")
            }
            Self::Transition { transition } => {
                format!("transition {transition} runs; permits are given when it has ended")
            }
            Self::NotLinked { node } => {
                format!(
                    "{node} is not linked and must say that it holds the range; check its agent"
                )
            }
            Self::NotAdopted {
                node,
                found,
                wanted,
            } => format!("{node} acts by epoch {found}, epoch {wanted} is needed"),
            Self::NotVerified { node } => {
                format!("the copy of {node} was not yet found equal to its owner's")
            }
            Self::TooFew => {
                "there are fewer copies elsewhere, or in fewer zones, than there should be; join a \
                 node"
                    .into()
            }
            Self::Due => "nothing: the permit is due".into(),
        }
    }
}

/// What retained copies wait for, those of one node or one range only where that is given. Sorted
/// by node and session. O(copies x rf).
#[must_use]
pub fn why_kept(
    state: &State,
    ring: &RingState,
    reports: &Reports,
    node: Option<&NodeId>,
    slot: Option<Slot>,
) -> Vec<Kept> {
    let asked = |one: &Slot| slot.is_none_or(|slot| slot == *one);
    let mut all = Vec::new();
    for copies in &ring.retained {
        if node.is_some_and(|node| *node != copies.node) {
            continue;
        }
        let grace_ends_ms = copies.since_ms + ring.config.grace_ms;
        let grace_left_ms = grace_ends_ms.saturating_sub(state.ring_time_ms);
        let mut waits: BTreeMap<Lack, u32> = BTreeMap::new();
        let mut kept = 0;
        for slot in copies.kept.iter().filter(|slot| asked(slot)) {
            kept += 1;
            let mut lacks = lacks(ring, reports, *slot, copies.since_epoch, grace_left_ms);
            if lacks.is_empty() {
                lacks.push(Lack::Due);
            }
            for lack in lacks {
                *waits.entry(lack).or_default() += 1;
            }
        }
        let permitted = copies.permitted.iter().filter(|slot| asked(slot)).count();
        let permitted = u32::try_from(permitted).unwrap_or(u32::MAX);
        if permitted > 0 {
            waits.insert(Lack::Deleting, permitted);
        }
        if kept + permitted > 0 {
            all.push(Kept {
                node: copies.node.clone(),
                session: copies.session,
                since_epoch: copies.since_epoch,
                age_ms: state.ring_time_ms.saturating_sub(copies.since_ms),
                grace_left_ms,
                kept,
                permitted,
                waits: waits.into_iter().collect(),
            });
        }
    }
    all.sort_by(|one, other| (&one.node, one.session).cmp(&(&other.node, other.session)));
    all
}

fn lacks(
    ring: &RingState,
    reports: &Reports,
    slot: Slot,
    since: Epoch,
    grace_left_ms: u64,
) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if grace_left_ms > 0 {
        lacks.push(Lack::Grace {
            left_ms: grace_left_ms,
        });
    }
    if let Some(brake) = &ring.held {
        let reason = brake.reason.clone();
        lacks.push(Lack::Held { reason });
    }
    if let Some(brake) = &ring.paused {
        let reason = brake.reason.clone();
        lacks.push(Lack::Paused { reason });
    }
    if let Some(transition) = &ring.transition {
        let transition = transition.id;
        lacks.push(Lack::Transition { transition });
    }
    if !is_whole(ring, slot) {
        lacks.push(Lack::TooFew);
    }
    for handle in ring.slots.list(slot) {
        let Some(member) = ring.by_handle(*handle) else {
            continue;
        };
        let node = member.node_id.clone();
        let Some(report) = current(ring, reports, &node).filter(|report| report.linked) else {
            lacks.push(Lack::NotLinked { node });
            continue;
        };
        if report.adopted < since {
            lacks.push(Lack::NotAdopted {
                node,
                found: report.adopted,
                wanted: since,
            });
        } else if grace_left_ms == 0 && differs(ring, reports, slot, &node, since) {
            // Nobody is asked to compare before the grace is over.
            lacks.push(Lack::NotVerified { node });
        }
    }
    lacks
}
