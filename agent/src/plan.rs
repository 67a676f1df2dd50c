//! What a view asks of this node's copies: pure, from (view, own handle, what is held).

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Epoch, Handle, RangeSets, SessionId, Slot, Step};

use crate::{
    store::{Copy, Holding},
    wire::View,
};

/// Everything held, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub live: BTreeMap<Slot, Holding>,
    pub staging: BTreeMap<(SessionId, Slot), Holding>,
    pub retained: BTreeMap<SessionId, BTreeSet<Slot>>,
}

impl From<Vec<Holding>> for Held {
    fn from(holdings: Vec<Holding>) -> Self {
        let mut held = Self::default();
        for holding in holdings {
            match holding.copy {
                Copy::Live => {
                    held.live.insert(holding.slot, holding);
                }
                Copy::Staging(session) => {
                    held.staging.insert((session, holding.slot), holding);
                }
                Copy::Retained(session) => {
                    held.retained
                        .entry(session)
                        .or_default()
                        .insert(holding.slot);
                }
            }
        }
        held
    }
}

impl Held {
    /// No copy of any kind: the directory is empty of data.
    pub(crate) fn nothing(&self) -> bool {
        self.live.is_empty() && self.staging.is_empty() && self.retained.is_empty()
    }

    /// Sessions with staging copies.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionId> {
        self.staging.keys().map(|(session, _)| *session).collect()
    }
}

/// What must be durable before the guard obeys a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Staging copies that become live, by session.
    pub promote: BTreeMap<SessionId, Vec<Slot>>,
    /// Founding: empty live copies to open.
    pub found: Vec<Slot>,
    /// Reigns whose base the copies then hold.
    pub begin: Vec<(Slot, Epoch)>,
    /// Listed here, and no copy is held: refused, loudly.
    pub unheld: BTreeSet<Slot>,
}

/// Whether a live copy of the slot belongs here: as a member of the old list, or of the new one
/// from the switch on.
fn listed(sets: &RangeSets<'_>, own: Handle) -> bool {
    sets.old.contains(&own) || (sets.step == Some(Step::Switched) && sets.new.contains(&own))
}

/// Slots that the running transition gives to this node.
pub(crate) fn gained(view: &View, own: Handle) -> Vec<Slot> {
    let snapshot = view.lookup.snapshot();
    let Some(transition) = &snapshot.transition else {
        return Vec::new();
    };
    let slots = transition.target.iter().map(|change| change.slot);
    slots
        .filter(|slot| snapshot.sets(*slot).gainers().any(|gainer| gainer == own))
        .collect()
}

/// Whether the running transition takes slots from this node.
pub(crate) fn loses(view: &View, own: Handle) -> bool {
    let snapshot = view.lookup.snapshot();
    let Some(transition) = &snapshot.transition else {
        return false;
    };
    let mut slots = transition.target.iter().map(|change| change.slot);
    slots.any(|slot| snapshot.sets(slot).losers().any(|loser| loser == own))
}

/// What to do before the guard obeys the view. `ever_held`: a copy was opened in this
/// incarnation, so that a missing one is a loss and never made up for by an empty one.
pub(crate) fn before(view: &View, own: Handle, held: &Held, ever_held: bool) -> Before {
    let mut plan = Before::default();
    let snapshot = view.lookup.snapshot();
    let running = snapshot
        .transition
        .as_ref()
        .map(|transition| SessionId::from(transition.id));
    let mut founded_reign = None;
    let mut founded_elsewhere = Vec::new();
    for slot in snapshot.layout.slots.slots() {
        let sets = snapshot.sets(slot);
        if !listed(&sets, own) {
            continue;
        }
        let owner = sets.owner() == Some(own);
        let reign = view.reigns[slot.index()];
        if let Some(live) = held.live.get(&slot) {
            // A new owner confirmed F before its reign was committed: it holds the base.
            if owner && live.watermark.is_some_and(|held| held.reign < reign) {
                plan.begin.push((slot, reign));
            } else if owner && live.watermark.is_none() {
                // Opened at founding, then interrupted: nobody else ever ordered its writes.
                plan.begin.push((slot, reign));
            }
            continue;
        }
        // The running session's copy while its transition touches the slot; else the newest
        // complete one, which the transition that ended was evidence for.
        let staged = match sets.step {
            Some(_) => running.filter(|session| held.staging.contains_key(&(*session, slot))),
            None => held
                .staging
                .range(..)
                .filter(|((_, of), copy)| *of == slot && copy.complete)
                .map(|((session, _), _)| *session)
                .max(),
        };
        if let Some(session) = staged.filter(|session| held.staging[&(*session, slot)].complete) {
            plan.promote.entry(session).or_default().push(slot);
        } else if !ever_held && sets.old.contains(&own) {
            plan.found.push(slot);
            if owner {
                // Only this node could have ordered writes in its reign, and it was not there.
                plan.begin.push((slot, reign));
                founded_reign = Some(reign);
            } else {
                founded_elsewhere.push((slot, reign));
            }
        } else {
            plan.unheld.insert(slot);
        }
    }
    // In the founding reign the base is empty. A slot of a younger reign was handed over before
    // this node came up: its base comes from its owner.
    let empty_base = founded_elsewhere
        .into_iter()
        .filter(|(_, reign)| Some(*reign) == founded_reign);
    plan.begin.extend(empty_base);
    plan.begin.sort_unstable();
    plan
}

/// Live copies of slots that no longer list this node, neither to read nor to write.
pub(crate) fn given_up(view: &View, own: Handle, held: &Held) -> Vec<Slot> {
    let snapshot = view.lookup.snapshot();
    let live = held.live.keys().copied();
    live.filter(|slot| !snapshot.sets(*slot).write_set().contains(&own))
        .collect()
}

/// Slots that changed after `acked`: what must be drained before the view is acked.
pub(crate) fn changed_since(view: &View, acked: Epoch) -> Vec<Slot> {
    let changes = (0..).map(Slot).zip(view.last_changes.iter());
    changes
        .filter(|(_, change)| **change > acked)
        .map(|(slot, _)| slot)
        .collect()
}
