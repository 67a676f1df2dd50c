//! Who must be in which list, whatever balance says.

use std::collections::BTreeMap;

use super::{
    AssignError, Pin,
    spread::Spread,
    work::{Node, Row, index_by_handle},
};
use crate::SlotTable;

/// Pins that go together, by slot.
pub(super) struct Pins {
    rows: BTreeMap<usize, Row>,
}

impl Pins {
    /// Checks pins against the table's bounds, the nodes and each other.
    pub fn of(
        table: &SlotTable,
        nodes: &[Node],
        spread: &Spread,
        pins: &[Pin],
    ) -> Result<Self, AssignError> {
        let index = index_by_handle(nodes);
        let mut sorted = pins.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
        for Pin { slot, handle } in sorted {
            let refused = AssignError::Pin {
                slot,
                handle: handle.0,
            };
            let node = index.get(handle.index()).copied().flatten();
            let Some(node) = node.filter(|_| slot.index() < table.slot_count()) else {
                return Err(refused);
            };
            let row = rows.entry(slot.index()).or_default();
            let zone = nodes[usize::from(node)].zone;
            if row.len() >= spread.length || !spread.room(nodes, row, zone) {
                return Err(refused);
            }
            row.push(node);
        }
        Ok(Self { rows })
    }

    /// Nodes pinned to a slot.
    pub fn row(&self, slot: usize) -> &[u16] {
        // Most rings have none, and this is asked for every row that might change.
        if self.rows.is_empty() {
            return &[];
        }
        self.rows.get(&slot).map_or(&[], Row::as_slice)
    }

    /// Slots pinned to each of `nodes` nodes.
    pub fn counts(&self, nodes: usize) -> Vec<u32> {
        let mut counts = vec![0; nodes];
        for node in self.rows.values().flatten() {
            counts[usize::from(*node)] += 1;
        }
        counts
    }

    /// Slots with pins, in order.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.rows.keys().copied()
    }
}
