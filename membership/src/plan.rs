//! Plans: what a set of changes would make of a ring, computed, shown and kept before anything is
//! committed.
//!
//! ```text
//!   changes --plan_command (the leader)--> StorePlan { target } --decide checks--> Plan, kept
//!   Plan + Base + Facts --outlook()---> who copies what from whom, load, disk, time, ways back
//!   CommitPlan --decide--> one entry: all of its changes, and a transition to its very target
//! ```
//!
//! A plan holds for one layout. Whatever changes that (another change, a hand-over) makes it a
//! document of the past: it can still be shown and compared, and no longer be committed.

mod estimate;
mod lists;
mod report;
mod undo;
mod warn;

use std::fmt;

use annulus_ring::{
    Candidate, Epoch, Handle, Incarnation, Member, NodeId, RingName, SlotChange, Weight, Zone,
};
use serde::{Deserialize, Serialize};

pub use estimate::Facts;
pub use lists::Base;
pub use report::{
    HandOvers, Load, NodeOutlook, Outlook, PairOutlook, SpreadOutlook, ZoneOutlook, outlook,
};
pub use undo::{Undo, WayBack};

use crate::{
    Change, ChangeId, ChangePhase, Rejection, RingCommand, RingState,
    fold::{self, Fold},
};

/// Most changes of one plan.
pub const MAX_PLAN_CHANGES: usize = 100;
/// Plans that one ring keeps; the oldest go first.
pub const MAX_PLANS: usize = 32;
/// Memory of one ring's kept plans, in bytes as [`Plan::bytes`] counts them; the oldest go first,
/// the newest stays. One plan alone is bounded by the log entry that stores it.
pub const MAX_PLAN_BYTES: usize = 16 << 20;

/// Number of a plan within its ring, from 1; never given twice.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PlanId(pub u64);

impl PlanId {
    /// No plan was ever stored.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A kept plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What is to be changed, in the order asked; 1 to [`MAX_PLAN_CHANGES`].
    pub changes: Vec<Change>,
    /// The only layout that it may be committed on.
    pub base_layout_epoch: Epoch,
    /// Version of the assigner that computed the target; for people.
    pub assigner_version: u32,
    /// Changed slots and their new lists, sorted.
    pub target: Vec<SlotChange>,
    /// Who may hold ranges afterwards, sorted by node, as known when it was made.
    pub holders: Vec<Holder>,
    /// Wall clock of the entry that stored it; for people.
    pub created_at_ms: u64,
    /// The changes that it became; empty while it is only a plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed: Vec<ChangeId>,
}

/// A node that may hold ranges when a plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Who.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// Its number; a newcomer's is the one that it will get.
    pub handle: Handle,
    /// Its zone.
    pub zone: Zone,
    /// Its share.
    pub weight: Weight,
}

impl Plan {
    /// About how much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const HOLDER: usize = size_of::<Holder>() + 64;
        self.target.len() * size_of::<SlotChange>()
            + self.holders.len() * HOLDER
            + self.changes.len() * size_of::<Change>()
    }

    /// Those that may hold ranges, for the assigner and for shortfalls.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let candidate = |holder: &Holder| Candidate {
            handle: holder.handle,
            zone: holder.zone.clone(),
            weight: holder.weight,
        };
        self.holders.iter().map(candidate).collect()
    }
}

/// The command that stores a plan for `changes`: what the leader computes.
///
/// # Errors
/// What `decide` would say; the first change that cannot be, by its own rejection.
pub fn plan_command(
    name: &RingName,
    ring: &RingState,
    changes: &[Change],
) -> Result<RingCommand, Rejection> {
    plannable(name, ring, changes)?;
    let fold = whole(ring, changes)?;
    Ok(RingCommand::StorePlan {
        changes: changes.to_vec(),
        base_layout_epoch: ring.layout_epoch,
        assigner_version: annulus_ring::ASSIGNER_VERSION,
        target: fold.target(ring)?,
    })
}

/// Whether a plan can be made now: of a founded ring whose layout no accepted change is about to
/// change.
pub(crate) fn plannable(
    name: &RingName,
    ring: &RingState,
    changes: &[Change],
) -> Result<(), Rejection> {
    if !ring.founded {
        return Err(Rejection::NotFounded { ring: name.clone() });
    }
    if changes.is_empty() {
        return Err(Rejection::EmptyPlan);
    }
    if changes.len() > MAX_PLAN_CHANGES {
        return Err(Rejection::TooManyPlanned {
            found: changes.len(),
            limit: MAX_PLAN_CHANGES,
        });
    }
    nothing_pending(ring)
}

/// No change waits or runs.
pub(crate) fn nothing_pending(ring: &RingState) -> Result<(), Rejection> {
    let pending: Vec<ChangeId> = ring
        .changes
        .iter()
        .filter(|(_, record)| match &record.phase {
            ChangePhase::Queued | ChangePhase::Running(_) => true,
            ChangePhase::Done | ChangePhase::Aborted | ChangePhase::Refused(_) => false,
        })
        .map(|(id, _)| *id)
        .collect();
    match pending.first() {
        None => Ok(()),
        Some(first) => Err(Rejection::ChangesPending {
            first: *first,
            count: pending.len(),
        }),
    }
}

/// The fold of all these changes and nothing else, under the numbers that they would get.
///
/// # Errors
/// The first change's own rejection, or [`Rejection::PlanSplits`] if one would have to wait for
/// another transition.
pub(crate) fn whole(ring: &RingState, changes: &[Change]) -> Result<Fold, Rejection> {
    let ids = (ring.next_change.0..).map(ChangeId);
    let fold = fold::fold_of(ring, ids.clone().zip(changes));
    if let Some((_, rejection)) = fold.refused.first() {
        return Err(rejection.clone());
    }
    let late = ids
        .zip(changes)
        .find(|(id, _)| !fold.accepted.contains(id))
        .map(|(_, change)| change);
    match late {
        None => Ok(fold),
        Some(change) => Err(Rejection::PlanSplits {
            change: match change.node() {
                Some(node) => format!("{} {node}", change.kind()),
                None => change.kind().to_owned(),
            },
        }),
    }
}

/// Who may hold ranges after `fold`, sorted by node.
pub(crate) fn holders(ring: &RingState, fold: &Fold) -> Vec<Holder> {
    let known = |handle: Handle| -> Option<&Member> {
        let joiner = fold.joiners.iter().find(|joiner| joiner.handle == handle);
        joiner.or_else(|| ring.by_handle(handle))
    };
    let mut holders: Vec<Holder> = fold
        .candidates
        .iter()
        .filter_map(|candidate| {
            let member = known(candidate.handle)?;
            Some(Holder {
                node: member.node_id.clone(),
                incarnation: member.incarnation,
                handle: candidate.handle,
                zone: candidate.zone.clone(),
                weight: candidate.weight,
            })
        })
        .collect();
    holders.sort_by(|one, other| one.node.cmp(&other.node));
    holders
}
