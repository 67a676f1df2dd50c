//! The promises of the state, checked after every applied entry against what nodes truly hold.

use std::collections::{BTreeMap, BTreeSet};

use annulus_membership::{Command, HandOver, RingCommand, RingState, State};
use annulus_ring::{Availability, Handle, MemberState, NodeId, Slot, Snapshot, Step};

use super::node::Node;

#[derive(Default)]
pub struct Promises {
    /// Lists when the running transition began, as sets.
    before_transition: BTreeMap<Slot, BTreeSet<Handle>>,
    pub aborts: u32,
    pub flips_back: u32,
    pub switches: u32,
    pub hand_overs: u32,
    pub permits: u32,
    pub removals: u32,
    pub conversions: u32,
}

impl Promises {
    pub fn check(
        &mut self,
        before: &State,
        after: &State,
        history: &[Snapshot],
        command: &Command,
        nodes: &BTreeMap<NodeId, Node>,
    ) {
        chain(history);
        for (name, ring) in &after.rings {
            let Some(old) = before.rings.get(name) else {
                continue;
            };
            let risen = ring.epoch.0 - old.epoch.0;
            assert!(risen <= 1, "EPOCH-CHAIN: one entry, at most one epoch");
            if risen == 0 {
                assert_eq!(view(old), view(ring), "something changed without an epoch");
            }
            assert!(ring.layout_epoch <= ring.epoch);
            distinct(ring);
            edges(old, ring);
            if ring.converted == old.converted {
                pinned(old, ring);
                owners(self, old, ring, command, nodes);
            } else {
                converted(old, ring, nodes);
                self.conversions += 1;
            }
            self.transition(old, ring, nodes);
            self.deletions(old, ring, command, nodes);
        }
    }

    fn transition(&mut self, old: &RingState, ring: &RingState, nodes: &BTreeMap<NodeId, Node>) {
        match (&old.transition, &ring.transition) {
            (None, Some(_)) => {
                self.before_transition = old
                    .slots
                    .slots()
                    .map(|slot| (slot, old.slots.list(slot).iter().copied().collect()))
                    .collect();
            }
            (Some(was), Some(is)) => {
                assert_eq!(was.id, is.id, "ONE-TRANSITION");
                if is.step == Step::FlippingBack {
                    let from = [Step::Switched, Step::FlippingBack];
                    assert!(
                        from.contains(&was.step),
                        "LEGAL-EDGES: flip back from {}",
                        was.step
                    );
                }
                if was.step != is.step && is.step == Step::Switched {
                    self.switches += 1;
                    if !ring.config.is_cache() {
                        evidence(ring, nodes);
                    }
                }
            }
            (Some(was), None) if was.step != Step::Switched => {
                self.aborts += 1;
                self.flips_back += u32::from(was.step == Step::FlippingBack);
                for (slot, list) in &self.before_transition {
                    let now: BTreeSet<Handle> = ring.slots.list(*slot).iter().copied().collect();
                    assert_eq!(now, *list, "ABORT-CLEAN: slot {slot}");
                }
            }
            _ => {}
        }
        for slot in ring.slots.slots() {
            let sets = ring.sets(slot);
            if sets.step != Some(Step::Switched) {
                let early = sets
                    .gainers()
                    .any(|gainer| sets.read_set().contains(&gainer));
                assert!(!early, "NO-EARLY-READ: slot {slot}");
            }
        }
    }

    fn deletions(
        &mut self,
        old: &RingState,
        ring: &RingState,
        command: &Command,
        nodes: &BTreeMap<NodeId, Node>,
    ) {
        if let Command::Ring {
            command: RingCommand::Permit { copies, .. },
            ..
        } = command
            && old.retained != ring.retained
        {
            self.permits += 1;
            if ring.config.is_cache() {
                return;
            }
            for slot in &copies.slots {
                for handle in ring.slots.list(*slot) {
                    let member = ring.by_handle(*handle).unwrap();
                    let node = &nodes[&member.node_id];
                    assert!(
                        node.live.contains(slot),
                        "LAST-COPY: {} lacks {slot}",
                        node.id()
                    );
                }
            }
        }
        for node in old
            .members
            .keys()
            .filter(|node| !ring.members.contains_key(*node))
        {
            if old.transition.is_some() == ring.transition.is_some() {
                self.removals += 1;
            }
            assert!(
                !ring.retained.iter().any(|copies| copies.node == *node),
                "{node} was removed while it keeps copies"
            );
        }
    }
}

fn chain(history: &[Snapshot]) {
    if let [.., previous, newest] = history {
        assert_eq!(newest.epoch.0, previous.epoch.0 + 1, "EPOCH-CHAIN");
        assert_ne!(
            newest.previous_checksum, previous.previous_checksum,
            "EPOCH-CHAIN"
        );
    }
}

/// All that a snapshot shows.
fn view(ring: &RingState) -> impl PartialEq + std::fmt::Debug {
    let transition = ring
        .transition
        .as_ref()
        .map(|t| (t.id, t.step, t.target.clone()));
    (
        ring.quorums(),
        ring.members.clone(),
        ring.slots.clone(),
        transition,
        ring.reigns.clone(),
    )
}

fn distinct(ring: &RingState) {
    for slot in ring.slots.slots() {
        let sets = ring.sets(slot);
        for list in [sets.old, sets.new] {
            let unique: BTreeSet<_> = list.iter().collect();
            assert_eq!(unique.len(), list.len(), "PLACE-DISTINCT: slot {slot}");
            assert!(list.iter().all(|handle| ring.by_handle(*handle).is_some()));
        }
        if sets.old.iter().any(|handle| sets.new.contains(handle)) {
            assert!(
                sets.old.contains(&sets.new[0]),
                "the new owner never held slot {slot}"
            );
        }
    }
}

/// Pins hold from the end of their transition on, whatever else the entry did.
fn pinned(old: &RingState, ring: &RingState) {
    if old.slots == ring.slots && old.pins == ring.pins {
        return;
    }
    for (slot, node, _) in ring.pins.iter() {
        let handle = ring.members[node].handle;
        let held = ring.slots.list(slot).contains(&handle);
        assert!(held, "slot {slot} is pinned to {node} and does not list it");
    }
}

fn edges(old: &RingState, ring: &RingState) {
    use MemberState::{Active, CatchingUp, Copying, Draining, Joining};
    for (node, member) in &ring.members {
        let Some(was) = old.members.get(node) else {
            continue;
        };
        assert_eq!(was.handle, member.handle, "a handle is for life");
        let legal = was.state == member.state
            || matches!(
                (was.state, member.state),
                (Joining, Copying)
                    | (Copying, CatchingUp)
                    | (CatchingUp, Active)
                    | (Active, CatchingUp)
                    | (Active, Draining)
                    | (Draining, Active)
            );
        assert!(
            legal,
            "LEGAL-EDGES: {node} {} -> {}",
            was.state, member.state
        );
    }
    for (node, entry) in &old.roster {
        assert!(
            ring.roster[node].incarnation >= entry.incarnation,
            "LEGAL-EDGES: incarnations"
        );
    }
}

fn owners(
    promises: &mut Promises,
    old: &RingState,
    ring: &RingState,
    command: &Command,
    nodes: &BTreeMap<NodeId, Node>,
) {
    if !old.founded {
        return;
    }
    let step = |ring: &RingState| ring.transition.as_ref().map(|transition| transition.step);
    // A cache needs no seal: its owners may change with the lists.
    let switches = ring.config.is_cache()
        && step(old) != step(ring)
        && matches!(step(ring), Some(Step::Switched | Step::FlippingBack));
    let mut changed = false;
    for slot in ring.slots.slots() {
        let (was, is) = (old.sets(slot).owner(), ring.sets(slot).owner());
        if was == is {
            assert_eq!(
                old.reigns[slot.index()],
                ring.reigns[slot.index()],
                "ONE-OWNER"
            );
            continue;
        }
        changed |= !switches;
        assert_eq!(
            ring.reigns[slot.index()],
            ring.epoch,
            "ONE-OWNER: a new owner, a new reign"
        );
        if ring.config.is_cache() {
            continue;
        }
        let Some(wave) = &old.wave else {
            panic!("ONE-OWNER: slot {slot} without a wave")
        };
        if wave.intent.is_some() {
            assert!(old.members[&wave.owner].availability == Availability::Down);
            continue;
        }
        let owner = &nodes[&wave.owner];
        let sealed = owner.sealed.as_ref().is_some_and(|(id, _)| *id == wave.id);
        assert!(sealed, "ONE-OWNER: {} did not seal slot {slot}", owner.id());
    }
    if changed {
        promises.hand_overs += 1;
        assert!(
            matches!(
                command,
                Command::Ring {
                    command: RingCommand::HandOver(
                        HandOver::Commit { .. } | HandOver::Succeed { .. }
                    ),
                    ..
                }
            ),
            "ONE-OWNER: only a committed hand-over changes who is first"
        );
    }
}

/// Nobody served under the old coordinates any more; every key keeps its list, pins and all, and
/// every range begins a reign.
fn converted(old: &RingState, ring: &RingState, nodes: &BTreeMap<NodeId, Node>) {
    let begun = old.conversion.as_ref().unwrap().begun;
    for node in ring.members.keys() {
        assert!(
            nodes[node].adopted >= begun,
            "ONE-OWNER: {node} may still serve"
        );
    }
    let parent = |slot: Slot| Slot(slot.0 >> (ring.slots.bits() - old.slots.bits()));
    for slot in ring.slots.slots() {
        assert_eq!(
            ring.slots.list(slot),
            old.slots.list(parent(slot)),
            "slot {slot}"
        );
        assert_eq!(
            ring.reigns[slot.index()],
            ring.epoch,
            "ONE-OWNER: slot {slot}"
        );
        assert_eq!(ring.last_changes[slot.index()], ring.epoch, "slot {slot}");
        assert_eq!(
            ring.pins.owner(slot),
            old.pins.owner(parent(slot)),
            "slot {slot}"
        );
    }
    assert_eq!(ring.reigns.len(), ring.slots.slot_count());
    assert_eq!(ring.last_changes.len(), ring.slots.slot_count());
}

/// EVIDENCE: at the switch every gainer truly has its copy.
fn evidence(ring: &RingState, nodes: &BTreeMap<NodeId, Node>) {
    let transition = ring.transition.as_ref().unwrap();
    for slot in transition.target.keys() {
        for gainer in ring.sets(*slot).gainers() {
            let member = ring.by_handle(gainer).unwrap();
            let node = &nodes[&member.node_id];
            let copied = node.staging.get(&(transition.session(), *slot)) == Some(&true)
                || node.live.contains(slot);
            assert!(
                copied,
                "EVIDENCE: {} was switched on without slot {slot}",
                node.id()
            );
        }
    }
}
