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

impl Held {
    /// The newest session of which a copy of the slot is retained.
    pub fn kept(&self, slot: Slot) -> Option<SessionId> {
        let mut sessions = self.retained.iter().rev();
        let kept = sessions.find(|(_, slots)| slots.contains(&slot));
        kept.map(|(session, _)| *session)
    }
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
    /// Flipping back: live copies that become staging copies of the session again.
    pub demote: Option<(SessionId, Vec<Slot>)>,
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

/// Ranges that list this node, that another owns, and of whose present reign the base is missing.
pub(crate) fn behind(view: &View, own: Handle, held: &Held) -> u32 {
    let snapshot = view.lookup.snapshot();
    let lacks = |(slot, live): &(&Slot, &Holding)| {
        let sets = snapshot.sets(**slot);
        let reign = view.reigns[slot.index()];
        let base = live.watermark.is_some_and(|held| held.reign >= reign);
        listed(&sets, own) && sets.owner() != Some(own) && !base
    };
    let count = held.live.iter().filter(lacks).count();
    u32::try_from(count).unwrap_or(u32::MAX)
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
    let snapshot_step = snapshot
        .transition
        .as_ref()
        .map(|transition| transition.step);
    let cache = view.terms.is_cache();
    if let (Some(session), Some(Step::FlippingBack)) = (running, snapshot_step) {
        let live = gained(view, own)
            .into_iter()
            .filter(|slot| held.live.contains_key(slot));
        let slots: Vec<Slot> = live.collect();
        plan.demote = (!slots.is_empty()).then_some((session, slots));
    }
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
                .filter(|((_, of), copy)| *of == slot && (copy.complete || cache))
                .map(|((session, _), _)| *session)
                .max(),
        };
        let whole = |session: &SessionId| cache || held.staging[&(*session, slot)].complete;
        if let Some(session) = staged.filter(whole) {
            plan.promote.entry(session).or_default().push(slot);
            if owner && cache {
                // Made owner by the switch itself, with whatever entries came.
                plan.begin.push((slot, reign));
            }
        } else if !ever_held && sets.old.contains(&own) {
            plan.found.push(slot);
            if owner {
                // Only this node could have ordered writes in its reign, and it was not there.
                plan.begin.push((slot, reign));
                founded_reign = Some(reign);
            } else {
                founded_elsewhere.push((slot, reign));
            }
        } else if cache {
            // A cache that lost its entries, or never got them, begins cold: each is a miss.
            plan.found.push(slot);
            if owner {
                plan.begin.push((slot, reign));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annulus_ring::{
        Availability, Checksum, ClusterId, Endpoint, Generation, HashName, Incarnation, Layout,
        Lookup, Member, MemberState, NodeId, Position, Replication, RingName, SlotChange,
        SlotTable, Snapshot, Transition, TransitionId, Weight, Zone,
    };

    use super::*;
    use crate::terms::Terms;

    const OWN: Handle = Handle(1);
    const A: Handle = Handle(0);
    const B: Handle = OWN;
    const C: Handle = Handle(2);

    /// Two slots with these lists and reigns; at `step`, session 7 gives slot 0 a new list.
    fn view(lists: [&[Handle]; 2], reigns: [u64; 2], step: Option<(Step, &[Handle])>) -> View {
        let mut slots = SlotTable::empty(1, 2);
        slots.set(Slot(0), lists[0]);
        slots.set(Slot(1), lists[1]);
        let members = (0..).zip(["a", "b", "c"]).map(|(handle, node)| Member {
            node_id: NodeId::new(node).unwrap(),
            incarnation: Incarnation(1),
            handle: Handle(handle),
            zone: Zone::new("z").unwrap(),
            weight: Weight::new(1).unwrap(),
            endpoint: Endpoint::new("h:1").unwrap(),
            state: MemberState::Active,
            availability: Availability::Up,
        });
        let snapshot = Snapshot {
            format: annulus_ring::snapshot::FORMAT,
            cluster_id: ClusterId(1),
            ring: RingName::new("r").unwrap(),
            generation: Generation(1),
            epoch: Epoch(9),
            previous_checksum: Checksum::default(),
            created_at_ms: 0,
            layout: Layout {
                placement_version: 1,
                hash: HashName::Xxh3_64,
                seed: 0,
                replication: Replication { rf: 2, w: 2, r: 1 },
                slots,
            },
            members: members.collect(),
            transition: step.map(|(step, list)| Transition {
                replication: None,
                id: TransitionId(7),
                step,
                target: vec![SlotChange {
                    slot: Slot(0),
                    to: list.into(),
                }],
            }),
        };
        View {
            checksum: Checksum::default(),
            lookup: Arc::new(Lookup::compile(Arc::new(snapshot)).unwrap()),
            reigns: reigns.map(Epoch).into(),
            last_changes: [Epoch(2), Epoch(5)].into(),
            terms: Terms::default(),
            converting: false,
            converted: Epoch(0),
        }
    }

    /// The same, of a cache ring.
    fn cache(lists: [&[Handle]; 2], reigns: [u64; 2], step: Option<(Step, &[Handle])>) -> View {
        let terms = Terms {
            kind: annulus_ring::RingKind::Cache,
            ..Terms::default()
        };
        View {
            terms,
            ..view(lists, reigns, step)
        }
    }

    fn holding(slot: u32, copy: Copy, reign: Option<u64>, complete: bool) -> Holding {
        let watermark = reign.map(|reign| Position::new(Epoch(reign), 3));
        Holding {
            slot: Slot(slot),
            copy,
            attempt: 1,
            watermark,
            complete,
        }
    }

    #[test]
    fn founding_opens_what_was_never_held_and_nothing_else() {
        let founded = view([&[B, A], &[A, B]], [2, 2], None);
        let plan = before(&founded, OWN, &Held::default(), false);
        assert_eq!(plan.found, [Slot(0), Slot(1)]);
        assert_eq!(plan.begin, [(Slot(0), Epoch(2)), (Slot(1), Epoch(2))]);
        // The other slot was handed over before this founder came up: its base is not empty.
        let late = view([&[B, A], &[A, B]], [2, 6], None);
        let plan = before(&late, OWN, &Held::default(), false);
        assert_eq!(plan.begin, [(Slot(0), Epoch(2))]);
        // A store that held something once is never refilled with emptiness.
        let plan = before(&founded, OWN, &Held::default(), true);
        assert_eq!((plan.found, plan.begin), (vec![], vec![]));
        assert_eq!(plan.unheld, BTreeSet::from([Slot(0), Slot(1)]));
    }

    #[test]
    fn staging_is_promoted_at_the_switch_and_not_before() {
        let session = SessionId(7);
        let held =
            |complete| Held::from(vec![holding(0, Copy::Staging(session), Some(2), complete)]);
        let lists: [&[Handle]; 2] = [&[A, C], &[A, C]];
        for step in Step::ALL {
            let plan = before(
                &view(lists, [2, 2], Some((step, &[A, B]))),
                OWN,
                &held(true),
                true,
            );
            let promotes = plan.promote.contains_key(&session);
            assert_eq!(promotes, step == Step::Switched, "{step}");
        }
        // After a restart that slept through the switch's own epoch.
        let settled = view([&[A, B], &[A, C]], [2, 2], None);
        let plan = before(&settled, OWN, &held(true), true);
        assert_eq!(plan.promote, BTreeMap::from([(session, vec![Slot(0)])]));
        let plan = before(&settled, OWN, &held(false), true);
        assert!(plan.promote.is_empty());
        assert_eq!(
            plan.unheld,
            BTreeSet::from([Slot(0)]),
            "half a copy is no copy"
        );
    }

    #[test]
    fn a_cache_serves_with_what_it_has() {
        let session = SessionId(7);
        let half = Held::from(vec![holding(0, Copy::Staging(session), None, false)]);
        // Of rf 1: the switch makes the gainer owner, in a new reign.
        let lists: [&[Handle]; 2] = [&[A], &[C]];
        let switched = cache(lists, [9, 2], Some((Step::Switched, &[B])));
        let plan = before(&switched, OWN, &half, true);
        assert_eq!(plan.promote, BTreeMap::from([(session, vec![Slot(0)])]));
        assert_eq!(plan.begin, [(Slot(0), Epoch(9))]);
        assert!(plan.unheld.is_empty());
        let joint = cache(lists, [2, 2], Some((Step::Joint, &[B])));
        assert_eq!(before(&joint, OWN, &half, true), Before::default());
        // Nothing left at all: cold, and never unheld.
        let plan = before(&switched, OWN, &Held::default(), true);
        assert_eq!((plan.found, plan.unheld), (vec![Slot(0)], BTreeSet::new()));
    }

    #[test]
    fn flipping_back_hides_what_was_gained_and_nothing_else() {
        let session = SessionId(7);
        let lists: [&[Handle]; 2] = [&[A, C], &[A, B]];
        let held = Held::from(vec![
            holding(0, Copy::Live, Some(2), true),
            holding(1, Copy::Live, Some(2), true),
        ]);
        for step in Step::ALL {
            let plan = before(
                &view(lists, [2, 2], Some((step, &[A, B]))),
                OWN,
                &held,
                true,
            );
            let back = (step == Step::FlippingBack).then(|| (session, vec![Slot(0)]));
            assert_eq!(plan.demote, back, "{step}");
        }
        // Who slept through the switch has nothing to hide.
        let slept = Held::from(vec![
            holding(0, Copy::Staging(session), Some(2), true),
            holding(1, Copy::Live, Some(2), true),
        ]);
        let back = view(lists, [2, 2], Some((Step::FlippingBack, &[A, B])));
        let plan = before(&back, OWN, &slept, true);
        assert_eq!((plan.demote, plan.promote), (None, BTreeMap::new()));
    }

    #[test]
    fn a_new_owner_begins_its_reign_and_a_member_does_not() {
        let handed = view([&[B, A], &[A, B]], [8, 8], None);
        let held = Held::from(vec![
            holding(0, Copy::Live, Some(2), true),
            holding(1, Copy::Live, Some(2), true),
        ]);
        assert_eq!(
            before(&handed, OWN, &held, true).begin,
            [(Slot(0), Epoch(8))]
        );
        let begun = Held::from(vec![
            holding(0, Copy::Live, Some(8), true),
            holding(1, Copy::Live, Some(2), true),
        ]);
        assert_eq!(before(&handed, OWN, &begun, true), Before::default());
    }

    #[test]
    fn a_loser_gives_up_its_copy_only_when_nobody_writes_to_it() {
        let held = Held::from(vec![holding(0, Copy::Live, Some(2), true)]);
        let losing = |step| view([&[A, B], &[A, C]], [2, 2], Some((step, &[A, C])));
        for step in Step::ALL {
            assert!(given_up(&losing(step), OWN, &held).is_empty(), "{step}");
            assert!(loses(&losing(step), OWN));
        }
        let settled = view([&[A, C], &[A, C]], [2, 2], None);
        assert_eq!(given_up(&settled, OWN, &held), [Slot(0)]);
        assert_eq!(changed_since(&settled, Epoch(2)), [Slot(1)]);
        assert_eq!(gained(&losing(Step::Copying), C), [Slot(0)]);
    }
}
