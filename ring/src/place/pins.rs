//! Who must be in which list, whatever balance says.

use std::collections::BTreeMap;

use super::{
    AssignError, Pin, Rules,
    spread::Spread,
    work::{Node, Row, index_by_handle},
};

/// Pins that go together, by slot.
pub(super) struct Pins {
    rows: BTreeMap<usize, Row>,
    owners: BTreeMap<usize, u16>,
}

impl Pins {
    /// Checks pins against the number of slots, the nodes and each other.
    pub fn of(
        slots: usize,
        nodes: &[Node],
        spread: &Spread,
        rules: &Rules,
    ) -> Result<Self, AssignError> {
        let index = index_by_handle(nodes);
        let mut sorted = rules.pins.clone();
        sorted.extend(&rules.owners);
        sorted.sort_unstable();
        sorted.dedup();
        let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
        let refused = |Pin { slot, handle }| AssignError::Pin {
            slot,
            handle: handle.0,
        };
        for pin in sorted {
            let Pin { slot, handle } = pin;
            let node = index.get(handle.index()).copied().flatten();
            let Some(node) = node.filter(|_| slot.index() < slots) else {
                return Err(refused(pin));
            };
            let row = rows.entry(slot.index()).or_default();
            let zone = nodes[usize::from(node)].zone;
            if row.len() >= spread.length || !spread.room(nodes, row, zone) {
                return Err(refused(pin));
            }
            row.push(node);
        }
        let mut owners = BTreeMap::new();
        for pin in &rules.owners {
            // Found above: an owner is pinned like the others.
            let Some(node) = index.get(pin.handle.index()).copied().flatten() else {
                return Err(refused(*pin));
            };
            if owners
                .insert(pin.slot.index(), node)
                .is_some_and(|other| other != node)
            {
                return Err(refused(*pin));
            }
        }
        Ok(Self { rows, owners })
    }

    /// Who must own a slot.
    pub fn owner(&self, slot: usize) -> Option<u16> {
        self.owners.get(&slot).copied()
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
