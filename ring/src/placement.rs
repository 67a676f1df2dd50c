//! What lies between two slot tables: changed slots, and who gains and loses them.

use serde::{Deserialize, Serialize};

use crate::{Handle, List, Slot, SlotTable};

/// A slot's new list, as carried in entries and snapshots (changed slots only, sorted).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotChange {
    /// Which slot.
    pub slot: Slot,
    /// Its list in the target.
    pub to: List,
}

/// What a changed slot means for its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which slot.
    pub slot: Slot,
    /// N minus O: these copy the range.
    pub gainers: List,
    /// O minus N: these give it up.
    pub losers: List,
    /// The owner changes: a hand-over, which moves no data.
    pub owner_changes: bool,
}

/// The slots whose list differs in `new`, in order. One pass over both tables.
///
/// # Panics
/// If the tables differ in k.
#[must_use]
pub fn diff(old: &SlotTable, new: &SlotTable) -> Vec<SlotChange> {
    assert_eq!(old.bits(), new.bits(), "tables of one k");
    old.slots()
        .filter(|slot| old.list(*slot) != new.list(*slot))
        .map(|slot| SlotChange {
            slot,
            to: List::from_slice(new.list(slot)),
        })
        .collect()
}

/// Puts the changed lists into `table`: `apply(old, diff(old, new)) == new`.
pub fn apply(table: &mut SlotTable, changes: &[SlotChange]) {
    for change in changes {
        table.set(change.slot, &change.to);
    }
}

/// Who gains and who loses at one changed slot.
#[must_use]
pub fn movement(slot: Slot, old: &[Handle], new: &[Handle]) -> Move {
    let without = |list: &[Handle], other: &[Handle]| -> List {
        list.iter()
            .copied()
            .filter(|handle| !other.contains(handle))
            .collect()
    };
    Move {
        slot,
        gainers: without(new, old),
        losers: without(old, new),
        owner_changes: old.first() != new.first(),
    }
}
