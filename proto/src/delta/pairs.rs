//! (slot, list) pairs as bytes: gaps between slots, then packed lists.

use annulus_ring::{List, Slot, SlotChange};

use super::DeltaError;
use crate::{packing, v1};

/// Packs changes that are sorted by slot, each once.
pub(super) fn pack(changes: &[SlotChange], rf: usize) -> v1::SlotPairs {
    let (bits, handles) =
        packing::pack(changes.iter().map(|change| List::as_slice(&change.to)), rf);
    let mut before = 0;
    let gap = |change: &SlotChange| {
        let gap = change.slot.0 - before;
        before = change.slot.0;
        gap
    };
    v1::SlotPairs {
        gaps: changes.iter().map(gap).collect(),
        bits,
        handles,
    }
}

/// The changes in `pairs`, of a table of `slots` slots.
pub(super) fn unpack(
    pairs: &v1::SlotPairs,
    rf: usize,
    slots: usize,
) -> Result<Vec<SlotChange>, DeltaError> {
    let shape = |what| DeltaError::Shape { what };
    if pairs.gaps.len() > slots {
        return Err(shape("more pairs than slots"));
    }
    let mut changes = Vec::with_capacity(pairs.gaps.len());
    let mut slot = 0_u32;
    for (at, gap) in pairs.gaps.iter().enumerate() {
        if at > 0 && *gap == 0 {
            return Err(shape("a slot twice"));
        }
        slot = slot
            .checked_add(*gap)
            .filter(|slot| (*slot as usize) < slots)
            .ok_or(shape("a slot out of bounds"))?;
        changes.push(SlotChange {
            slot: Slot(slot),
            to: List::new(),
        });
    }
    let mut next = changes.iter_mut();
    packing::unpack(&pairs.handles, pairs.bits, rf, pairs.gaps.len(), |list| {
        if let Some(change) = next.next() {
            change.to = list;
        }
    })
    .map_err(|damage| shape(damage.as_str()))?;
    Ok(changes)
}
