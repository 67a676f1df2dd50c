//! LAST-COPY: leave to delete a retained copy is given only when grace is over, nothing stands still
//! or moves the range, and every member of its list truly holds it; nothing else deletes.

use std::collections::{BTreeMap, BTreeSet};

use annulus_membership::{CopySet, RetainedCopies, RingCommand, RingState, SlotEvidence};
use annulus_ring::{NodeId, Slot, Zone};

use super::{Memory, Seen, ensure};
use crate::node::Node;

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let Some(command) = seen.done() else {
        return Ok(());
    };
    // What the dead keep is out of anybody's reach.
    let reached = |ring: &RingState, count: fn(&RetainedCopies) -> usize| -> usize {
        let all = ring.retained.iter();
        let of_living = all.filter(|one| !before.buried(&one.node));
        of_living.map(count).sum()
    };
    let kept = |ring: &RingState| reached(ring, |one| one.kept.len());
    let may_go = |ring: &RingState| reached(ring, |one| one.permitted.len());
    match command {
        RingCommand::Permit { copies, evidence } => permitted(seen, before, copies, evidence),
        RingCommand::Released { copies } => {
            let known = of(before, copies);
            let had_leave = known.is_some_and(|known| {
                copies
                    .slots
                    .iter()
                    .all(|slot| known.permitted.contains(slot))
            });
            ensure(had_leave, || {
                format!("{} deleted without leave", copies.node)
            })?;
            truly_deleted(seen, copies)
        }
        _ => {
            // Of a range that was split, each half is kept.
            let parts = 1 << (after.slots.bits() - before.slots.bits());
            let same =
                kept(after) >= parts * kept(before) && may_go(after) == parts * may_go(before);
            ensure(same, || "copies went without a permit".to_owned())
        }
    }
}

/// Nobody takes a copy for deleted that is still on its disk: it would never be deleted.
fn truly_deleted(seen: &Seen<'_>, copies: &CopySet) -> Result<(), String> {
    let node = seen.nodes.get(&copies.node);
    let kept = node
        .and_then(|node| node.life(copies.incarnation))
        .and_then(|node| node.kept.get(&copies.session));
    let mut slots = copies.slots.iter();
    let still = slots.find(|slot| kept.is_some_and(|kept| kept.contains(slot)));
    ensure(still.is_none(), || {
        format!(
            "{} still keeps slot {still:?}, taken for deleted",
            copies.node
        )
    })
}

fn of<'a>(ring: &'a RingState, copies: &CopySet) -> Option<&'a RetainedCopies> {
    ring.retained.iter().find(|known| {
        (&known.node, known.incarnation, known.session)
            == (&copies.node, copies.incarnation, copies.session)
    })
}

fn permitted(
    seen: &Seen<'_>,
    ring: &RingState,
    copies: &CopySet,
    evidence: &[SlotEvidence],
) -> Result<(), String> {
    let Some(known) = of(ring, copies) else {
        return Err(format!("{} keeps no such copies", copies.node));
    };
    let braked = ring.paused.is_some() || ring.held.is_some();
    ensure(!braked, || {
        "deleted while the ring is paused or held".to_owned()
    })?;
    let over_at = known.since_ms + ring.config.grace_ms;
    ensure(seen.before.ring_time_ms >= over_at, || {
        "deleted in its grace".to_owned()
    })?;
    ensure(evidence.len() == copies.slots.len(), || {
        "a proof is missing".to_owned()
    })?;
    for (slot, proof) in copies.slots.iter().zip(evidence) {
        ensure(proof.slot == *slot && known.kept.contains(slot), || {
            format!("slot {slot} is not kept, or its proof is another's")
        })?;
        ensure(ring.sets(*slot).step.is_none(), || {
            format!("slot {slot} moves")
        })?;
        proven(ring, known, proof)?;
        enough(ring, *slot)?;
        for handle in ring.slots.list(*slot) {
            let holder = seen.holder(ring, *handle);
            let holds = holder.is_some_and(|node| node.live.contains_key(slot));
            ensure(holds, || {
                format!(
                    "handle {} lacks slot {slot}, and a copy may be deleted",
                    handle.0
                )
            })?;
        }
    }
    Ok(())
}

/// Every member of the list spoke, in its life, after the end of the transition.
fn proven(ring: &RingState, known: &RetainedCopies, proof: &SlotEvidence) -> Result<(), String> {
    let slot = proof.slot;
    let listed: BTreeSet<&NodeId> = ring
        .slots
        .list(slot)
        .iter()
        .filter_map(|handle| ring.by_handle(*handle))
        .map(|member| &member.node_id)
        .collect();
    let spoke: BTreeSet<&NodeId> = proof.members.iter().map(|said| &said.node).collect();
    ensure(listed == spoke, || {
        format!("slot {slot}: {spoke:?} spoke, listed are {listed:?}")
    })?;
    for said in &proof.members {
        let life = ring
            .members
            .get(&said.node)
            .map(|member| member.incarnation);
        let young = said.acked_epoch >= known.since_epoch;
        ensure(life == Some(said.incarnation) && young, || {
            format!(
                "slot {slot}: {} spoke in another life, or before",
                said.node
            )
        })?;
    }
    Ok(())
}

/// min(rf, nodes with weight) copies, spread as rf asks.
fn enough(ring: &RingState, slot: Slot) -> Result<(), String> {
    let candidates = ring.candidates();
    let weighty = || candidates.iter().filter(|one| one.weight.get() > 0);
    let rf = usize::from(ring.config.replication.rf);
    let list = ring.slots.list(slot);
    let zones: BTreeSet<&Zone> = weighty().map(|one| &one.zone).collect();
    let members = list.iter().filter_map(|handle| ring.by_handle(*handle));
    let spread: BTreeSet<&Zone> = members.map(|member| &member.zone).collect();
    let good = list.len() >= rf.min(weighty().count()) && spread.len() >= rf.min(zones.len());
    ensure(good, || format!("slot {slot} has too few copies elsewhere"))
}

/// When a node has deleted retained copies: everybody whom its list names must truly hold the range,
/// but for those that an operator has taken for dead since the permit.
pub fn after_deletion(
    ring: &RingState,
    nodes: &BTreeMap<NodeId, Node>,
    deleter: &NodeId,
    deleted: &[Slot],
) -> Result<(), String> {
    for slot in deleted {
        let holds = |handle: &&annulus_ring::Handle| {
            let member = ring.by_handle(**handle);
            let node = member.and_then(|one| nodes.get(&one.node_id)?.life(one.incarnation));
            node.is_some_and(|node| node.holds(*slot))
        };
        let buried = |handle: &&annulus_ring::Handle| {
            let member = ring.by_handle(**handle);
            member.is_some_and(|member| ring.buried(&member.node_id))
        };
        let list = ring.slots.list(*slot);
        let held = list.iter().filter(holds).count();
        let needed = list.iter().filter(|one| !buried(one) || holds(one)).count();
        ensure(held == needed && held > 0, || {
            format!("{deleter} deleted slot {slot}, and {held} of {needed} hold it")
        })?;
    }
    Ok(())
}
