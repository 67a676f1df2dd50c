//! Leave to delete that should not be given, and deletions without leave.

use std::collections::BTreeSet;

use annulus_membership::{
    Command, CopySet, NodeEvidence, RetainedCopies, RingCommand, RingState, SlotEvidence,
};
use annulus_ring::{Epoch, Incarnation, SessionId, Slot, Zone};

use super::{Forgery, founded, pick_of};
use crate::world::World;

pub const FORGERIES: &[Forgery] = &[
    ("permit-in-grace", |world, pick| {
        let ring = founded(world)?;
        let in_grace = |known: &&RetainedCopies| !grace_over(world, ring, known);
        let known = pick_of(kept(ring).filter(in_grace), pick)?;
        let slot = pick_of(known.kept.iter(), pick)?;
        permit(world, ring, known, *slot, |_| Some(()))
    }),
    ("permit-of-what-moves", |world, pick| {
        let (ring, known, slot) =
            over(world, pick, |ring, _, slot| ring.sets(slot).step.is_some())?;
        permit(world, ring, known, slot, |_| Some(()))
    }),
    ("permit-of-the-last", |world, pick| {
        let (ring, known, slot) = over(world, pick, |ring, _, slot| is_thin(ring, slot))?;
        permit(world, ring, known, slot, |_| Some(()))
    }),
    ("permit-on-hold", |world, pick| {
        let braked = |ring: &RingState| ring.held.is_some() || ring.paused.is_some();
        let (ring, known, slot) = over(world, pick, |ring, _, _| braked(ring))?;
        permit(world, ring, known, slot, |_| Some(()))
    }),
    ("permit-without-a-member", |world, pick| {
        let (ring, known, slot) = over(world, pick, |_, _, _| true)?;
        permit(world, ring, known, slot, |proof| {
            let at = pick_of(0..proof.members.len(), pick)?;
            proof.members.remove(at);
            Some(())
        })
    }),
    ("permit-of-another-life", |world, pick| {
        let (ring, known, slot) = over(world, pick, |_, _, _| true)?;
        permit(world, ring, known, slot, |proof| {
            let said = pick_of(&mut proof.members, pick)?;
            said.incarnation = Incarnation(said.incarnation.0 + 1);
            Some(())
        })
    }),
    ("permit-from-before", |world, pick| {
        let (ring, known, slot) = over(world, pick, |_, _, _| true)?;
        let before = Epoch(known.since_epoch.0 - 1);
        permit(world, ring, known, slot, |proof| {
            pick_of(&mut proof.members, pick)?.acked_epoch = before;
            Some(())
        })
    }),
    ("permit-without-proof", |world, pick| {
        let (_, known, slot) = over(world, pick, |_, _, _| true)?;
        let command = RingCommand::Permit {
            copies: copies(known, slot),
            evidence: Vec::new(),
        };
        Some(world.on_ring(command))
    }),
    ("permit-of-no-copy", |world, pick| {
        let (ring, known, _) = over(world, pick, |_, _, _| true)?;
        let others = ring.slots.slots().filter(|slot| !known.kept.contains(slot));
        let slot = pick_of(others, pick)?;
        permit(world, ring, known, slot, |_| Some(()))
    }),
    ("released-without-leave", |world, pick| {
        let ring = founded(world)?;
        let known = pick_of(kept(ring), pick)?;
        let slot = pick_of(known.kept.iter(), pick)?;
        let copies = copies(known, *slot);
        Some(world.on_ring(RingCommand::Released { copies }))
    }),
    ("released-by-a-stranger", |world, pick| {
        let ring = founded(world)?;
        let known = pick_of(&ring.retained, pick)?;
        let slot = pick_of(known.permitted.iter().chain(&known.kept), pick)?;
        let mut copies = copies(known, *slot);
        copies.incarnation = Incarnation(copies.incarnation.0 + 1);
        Some(world.on_ring(RingCommand::Released { copies }))
    }),
];

fn kept(ring: &RingState) -> impl Iterator<Item = &RetainedCopies> {
    ring.retained.iter().filter(|known| !known.kept.is_empty())
}

fn grace_over(world: &World, ring: &RingState, known: &RetainedCopies) -> bool {
    world.state.ring_time_ms >= known.since_ms + ring.config.grace_ms
}

/// A copy whose grace is over and that fits.
fn over(
    world: &World,
    pick: usize,
    fits: impl Fn(&RingState, &RetainedCopies, Slot) -> bool,
) -> Option<(&RingState, &RetainedCopies, Slot)> {
    let ring = founded(world)?;
    let known = kept(ring).filter(|known| grace_over(world, ring, known));
    let slots = known.flat_map(|known| known.kept.iter().map(move |slot| (ring, known, *slot)));
    pick_of(
        slots.filter(|(ring, known, slot)| fits(ring, known, *slot)),
        pick,
    )
}

/// Fewer copies, or in fewer zones, than rf and the members allow.
fn is_thin(ring: &RingState, slot: Slot) -> bool {
    let candidates = ring.candidates();
    let weighty = || candidates.iter().filter(|one| one.weight.get() > 0);
    let all: BTreeSet<&Zone> = weighty().map(|one| &one.zone).collect();
    let members = ring
        .slots
        .list(slot)
        .iter()
        .filter_map(|handle| ring.by_handle(*handle));
    let spread: BTreeSet<&Zone> = members.clone().map(|member| &member.zone).collect();
    let rf = usize::from(ring.config.replication.rf);
    members.count() < rf.min(weighty().count()) || spread.len() < rf.min(all.len())
}

fn copies(known: &RetainedCopies, slot: Slot) -> CopySet {
    CopySet {
        node: known.node.clone(),
        incarnation: known.incarnation,
        session: known.session,
        slots: vec![slot],
    }
}

/// A permit with a whole proof, bent: nobody said so.
fn permit(
    world: &World,
    ring: &RingState,
    known: &RetainedCopies,
    slot: Slot,
    bend: impl FnOnce(&mut SlotEvidence) -> Option<()>,
) -> Option<Command> {
    let members = ring
        .slots
        .list(slot)
        .iter()
        .filter_map(|handle| ring.by_handle(*handle));
    let mut members: Vec<NodeEvidence> = members
        .map(|member| NodeEvidence {
            node: member.node_id.clone(),
            incarnation: member.incarnation,
            session: SessionId(0),
            acked_epoch: ring.epoch,
            hit_permille: None,
        })
        .collect();
    members.sort_by(|one, other| one.node.cmp(&other.node));
    let mut proof = SlotEvidence { slot, members };
    bend(&mut proof)?;
    let command = RingCommand::Permit {
        copies: copies(known, slot),
        evidence: vec![proof],
    };
    Some(world.on_ring(command))
}
