//! Another hash, or twice as many slots: at rest, with everybody there.

use annulus_ring::{Epoch, HashName, RingName};

use super::{Decision, brake};
use crate::{
    Coordinates, Event, EvidenceFault, MAX_PINS, NodeEvidence, Rejection, RingState, SLOT_BITS,
    bait, conversion,
};

/// The kind of layout that every ring of the log has.
const LAYOUT: &str = "slots";

pub(super) fn begin(
    name: &RingName,
    ring: &RingState,
    hash: Option<HashName>,
    layout: Option<&str>,
    double: bool,
) -> Result<Decision, Rejection> {
    let now = ring.coordinates();
    if let Some(layout) = layout.filter(|layout| *layout != LAYOUT) {
        if ring.config.is_cache() {
            let layout = layout.to_owned();
            return Err(Rejection::OnlySlots { layout });
        }
        let what = format!("layout {LAYOUT} to {layout}");
        return Err(Rejection::OtherCoordinates { what });
    }
    let to = Coordinates {
        hash: hash.unwrap_or(now.hash),
        slot_bits: now.slot_bits + u8::from(double),
    };
    if to == now {
        return Err(Rejection::SameCoordinates);
    }
    if to.hash != now.hash && !ring.config.is_cache() {
        let what = format!("hash {} to {}", now.hash, to.hash);
        return Err(Rejection::OtherCoordinates { what });
    }
    if !SLOT_BITS.contains(&to.slot_bits) {
        let found = to.slot_bits;
        return Err(Rejection::SlotBits { found });
    }
    if double && 2 * ring.pins.len() > MAX_PINS {
        let found = 2 * ring.pins.len();
        return Err(Rejection::TooManyPins {
            found,
            limit: MAX_PINS,
        });
    }
    if !ring.founded {
        return Err(Rejection::NotFounded { ring: name.clone() });
    }
    brake::moves(ring)?;
    if to.hash != now.hash {
        brake::deletes(ring)?;
    }
    at_rest(ring)?;
    if let Some(node) = conversion::absent(ring) {
        return Err(Rejection::NodeDown { node: node.clone() });
    }
    let mut notes = vec![format!(
        "every member stops serving for a moment; if one does not within {} s, all goes on as before",
        conversion::CONVERSION_BUDGET_MS / 1000
    )];
    if ring.config.is_cache() {
        notes.push("the cache begins cold".to_owned());
    }
    let events = vec![Event::ConversionBegun { to }];
    Ok(Decision { events, notes })
}

/// Nothing moves, waits or is handed over: all of that names slots.
fn at_rest(ring: &RingState) -> Result<(), Rejection> {
    let what = if let Some(transition) = &ring.transition {
        format!("transition {} runs", transition.id)
    } else if let Some(wave) = &ring.wave {
        format!("wave {} runs", wave.id)
    } else if let Some((id, _)) = ring.changes.iter().find(|(_, one)| !one.phase.ended()) {
        format!("change {id} waits")
    } else {
        return Ok(());
    };
    Err(Rejection::NotAtRest { what })
}

pub(super) fn finish(
    ring: &RingState,
    begun: Epoch,
    evidence: &[NodeEvidence],
) -> Result<Decision, Rejection> {
    running(ring, begun)?;
    check(ring, begun, evidence).map_err(|reason| Rejection::Evidence { reason })?;
    Ok(vec![Event::Converted].into())
}

/// Every member, in the life that the ring knows, serves nobody since `begun`.
fn check(ring: &RingState, begun: Epoch, evidence: &[NodeEvidence]) -> Result<(), EvidenceFault> {
    let named = evidence.iter().map(|one| &one.node);
    if !named.eq(ring.members.keys()) && !bait::on("conversion-without-everyone") {
        return Err(EvidenceFault::Nodes);
    }
    for one in evidence {
        let member = ring.members.get(&one.node);
        if member.is_none_or(|member| member.incarnation != one.incarnation) {
            return Err(EvidenceFault::Incarnation(one.node.clone()));
        }
        if one.acked_epoch < begun && !bait::on("conversion-before-acks") {
            let node = one.node.clone();
            return Err(EvidenceFault::Epoch {
                node,
                wanted: begun,
                found: one.acked_epoch,
            });
        }
    }
    Ok(())
}

pub(super) fn abort(ring: &RingState, begun: Epoch) -> Result<Decision, Rejection> {
    running(ring, begun)?;
    Ok(vec![Event::ConversionAborted].into())
}

fn running(ring: &RingState, begun: Epoch) -> Result<(), Rejection> {
    match &ring.conversion {
        Some(conversion) if conversion.begun == begun => Ok(()),
        _ => Err(Rejection::NotConverting { begun }),
    }
}
