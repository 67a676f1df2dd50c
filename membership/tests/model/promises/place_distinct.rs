//! PLACE-DISTINCT: no list names a node twice, or one that is no member; and no change makes a list
//! shorter or its spread narrower than rf asks for.

use std::collections::BTreeSet;

use annulus_membership::{Change, RingState};
use annulus_ring::{Handle, MemberState, Zone};

use super::{Memory, Seen, as_set, changed_lists, ended, ensure};

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    if seen.done().is_none() {
        return Ok(());
    }
    let is_member = |handle: &Handle| after.by_handle(*handle).is_some();
    let handles: BTreeSet<Handle> = after.members.values().map(|one| one.handle).collect();
    ensure(handles.len() == after.members.len(), || {
        "two members have one handle".to_owned()
    })?;
    for slot in after.slots.slots() {
        let sets = after.sets(slot);
        for list in [sets.old, sets.new] {
            let distinct = as_set(list).len() == list.len();
            ensure(distinct, || format!("slot {slot} names a node twice"))?;
            ensure(list.iter().all(is_member), || {
                format!("slot {slot} names a node that is no member")
            })?;
        }
        if before.founded && sets.new.first() != sets.old.first() {
            let led = sets
                .new
                .first()
                .is_some_and(|first| sets.old.contains(first));
            let stays = sets
                .old
                .first()
                .is_some_and(|owner| sets.new.contains(owner));
            ensure(led && !stays, || {
                format!("slot {slot}: the owner stays, or the new one never held it")
            })?;
        }
    }
    if matches!(ended(before, after, seen.done()), Some((_, true))) {
        settled(before, after)?;
    }
    Ok(())
}

/// At the end of a transition: as long and as spread as before, or as rf asks.
fn settled(before: &RingState, after: &RingState) -> Result<(), String> {
    let rf = usize::from(after.config.replication.rf);
    let carried_out = before.transition.iter().flat_map(|one| &one.changes);
    let carried_out = carried_out.filter_map(|id| before.changes.get(id));
    let carried_out: Vec<&Change> = carried_out.map(|record| &record.change).collect();
    let fewer_zones = carried_out
        .iter()
        .any(|change| matches!(change, Change::DrainZone { accept: true, .. }));
    // A zone that was drained when rf asked for fewer is not missed by a larger rf after it.
    let asked = carried_out.iter().filter_map(|change| match change {
        Change::Replication { to, .. } => Some(usize::from(to.rf)),
        _ => None,
    });
    let spread = asked.fold(rf, usize::min);
    for (slot, was, is) in changed_lists(before, after) {
        ensure(is.len() >= was.len().min(rf), || {
            format!("slot {slot} has {} replicas, had {}", is.len(), was.len())
        })?;
        let (then, now) = (zones(before, was), zones(after, is));
        ensure(fewer_zones || now >= then.min(spread), || {
            format!("slot {slot} spreads over {now} zones, over {then} before")
        })?;
    }
    for member in after.members.values() {
        let leaves = member.state == MemberState::Draining || member.weight.get() == 0;
        let listed = |slot| after.slots.list(slot).contains(&member.handle);
        ensure(!leaves || !after.slots.slots().any(listed), || {
            format!("{} leaves and still has ranges", member.node_id)
        })?;
    }
    Ok(())
}

fn zones(ring: &RingState, list: &[Handle]) -> usize {
    let zones = list.iter().filter_map(|handle| ring.by_handle(*handle));
    let zones: BTreeSet<&Zone> = zones.map(|member| &member.zone).collect();
    zones.len()
}
