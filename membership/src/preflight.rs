//! Constraints of changes that make nobody come or go by itself: zones, quorums, pins.

use annulus_ring::{NodeId, Replication, ReplicationError, Slot, Zone};

use crate::{
    Change, MAX_PINS, PinKind, Rejection, RingState, Spans, expected::Expected, spans::MAX_SPANS,
};

/// No zone that lists need is left empty, and nobody becomes the one that holds everything.
pub(crate) fn rezone(
    expected: &Expected,
    node: &NodeId,
    zone: &Zone,
    accept: bool,
) -> Result<(), Rejection> {
    let (old, _) = &expected.members[node];
    if old == zone {
        return Err(Rejection::SameZone {
            node: node.clone(),
            zone: zone.clone(),
        });
    }
    let rf = expected.replication.rf;
    let mut after = expected.clone();
    if let Some(known) = after.members.get_mut(node) {
        known.0 = zone.clone();
    }
    if after.spread(rf) < expected.spread(rf) {
        return Err(Rejection::EmptiesZone {
            node: node.clone(),
            zone: old.clone(),
            left: after.zones().len(),
            now: expected.zones().len(),
        });
    }
    if !accept && after.carries_all(node, rf) && !expected.carries_all(node, rf) {
        return Err(Rejection::CarriesAll {
            node: node.clone(),
            zone: zone.clone(),
        });
    }
    Ok(())
}

/// Of a member that is replaced, others hold the ranges too once every change before this one is
/// done. Lists name min(rf, nodes with weight) members, so only a node that alone has weight (and
/// with rf 1, which is refused on its own) holds them by itself.
pub(crate) fn leaves_a_holder(
    ring: &RingState,
    expected: &Expected,
    change: &Change,
) -> Result<(), Rejection> {
    let Change::Replace { node, by, .. } = change else {
        return Ok(());
    };
    let known = expected.members.get(node);
    let alone = known.is_some_and(|one| one.1.get() > 0) && expected.weighty() == 1;
    if alone && ring.founded && !ring.config.is_cache() {
        return Err(Rejection::ReplacesOnlyHolder {
            node: node.clone(),
            by: by.clone(),
        });
    }
    Ok(())
}

/// Lists stay as long, and as spread unless that is accepted, without a zone.
pub(crate) fn drain_zone(expected: &Expected, zone: &Zone, accept: bool) -> Result<(), Rejection> {
    let rf = expected.replication.rf;
    let mut after = expected.clone();
    after.members.retain(|_, one| one.0 != *zone);
    let left = after.weighty();
    if left < usize::from(rf) {
        let zone = zone.clone();
        return Err(Rejection::ZoneShortens { zone, left, rf });
    }
    if !accept && after.spread(rf) < expected.spread(rf) {
        return Err(Rejection::ZoneLost {
            zone: zone.clone(),
            left: after.zones().len(),
            now: expected.zones().len(),
        });
    }
    Ok(())
}

/// Quorums that go together, and as many nodes as replicas.
pub(crate) fn replication(
    expected: &Expected,
    to: Replication,
    accept: bool,
) -> Result<(), Rejection> {
    match to.check() {
        Ok(()) => {}
        Err(error @ ReplicationError::OutOfRange { .. }) => return Err(error.into()),
        Err(error) if !accept => return Err(error.into()),
        Err(_) => {}
    }
    if to == expected.replication {
        return Err(Rejection::SameReplication { to });
    }
    let found = expected.weighty();
    if to.rf > expected.replication.rf && found < usize::from(to.rf) {
        return Err(Rejection::RfNeedsNodes { rf: to.rf, found });
    }
    Ok(())
}

/// Slots of this ring, well formed.
pub(crate) fn of_ring(ring: &RingState, slots: &Spans) -> Result<(), Rejection> {
    let count = ring.slots.slot_count();
    if slots.check(count) {
        return Ok(());
    }
    Err(Rejection::BadSlots {
        slots: slots.clone(),
        limit: MAX_SPANS,
        last: Slot((count - 1) as u32),
    })
}

/// The node can hold ranges, and nobody else is to own these.
pub(crate) fn pin(
    ring: &RingState,
    expected: &Expected,
    node: &NodeId,
    slots: &Spans,
    kind: PinKind,
) -> Result<(), Rejection> {
    of_ring(ring, slots)?;
    if expected.members[node].1.get() == 0 {
        return Err(Rejection::PinWeight { node: node.clone() });
    }
    let other = |slot: Slot| {
        let by = expected.pins.owner(slot).filter(|by| *by != node)?;
        Some((slot, by.clone()))
    };
    if kind == PinKind::Owner
        && let Some((slot, by)) = slots.slots().find_map(other)
    {
        return Err(Rejection::OwnerPinned { slot, by });
    }
    let mut pins = expected.pins.clone();
    if !pins.add(node, slots, kind) {
        return Err(Rejection::SamePins {
            node: node.clone(),
            slots: slots.clone(),
        });
    }
    if pins.len() > MAX_PINS {
        return Err(Rejection::TooManyPins {
            found: pins.len(),
            limit: MAX_PINS,
        });
    }
    Ok(())
}
