//! Pins: who must be in which range's list, and who must own it, whatever balance says.

use std::collections::BTreeMap;

use annulus_ring::{
    AssignError, Candidate, Handle, NodeId, Slot, Weight, Zone,
    place::{self, Pin, Rules},
};
use serde::{Deserialize, Serialize};

use crate::{Rejection, Spans};

/// What a pin asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinKind {
    /// The range's list names the node; who is first is not said.
    Member,
    /// The node owns the range, from the first evening after it holds it.
    Owner,
}

/// An operator's pins, by slot and node. As many pins as rf make a list that nobody else is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeMap<Slot, BTreeMap<NodeId, PinKind>>);

/// Zone and weight by node, as `fold` expects them.
type Members = BTreeMap<NodeId, (Zone, Weight)>;

impl Pins {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many (slot, node) pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Every pin, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &NodeId, PinKind)> {
        self.0
            .iter()
            .flat_map(|(slot, row)| row.iter().map(move |(node, kind)| (*slot, node, *kind)))
    }

    /// Slots pinned to a node.
    #[must_use]
    pub fn of(&self, node: &NodeId) -> Spans {
        let slots = self.0.iter().filter(|(_, row)| row.contains_key(node));
        Spans::of(slots.map(|(slot, _)| *slot))
    }

    /// Slots by node and kind, for people.
    #[must_use]
    pub fn by_node(&self) -> BTreeMap<(&NodeId, PinKind), Spans> {
        let mut slots: BTreeMap<(&NodeId, PinKind), Vec<Slot>> = BTreeMap::new();
        for (slot, node, kind) in self.iter() {
            slots.entry((node, kind)).or_default().push(slot);
        }
        slots
            .into_iter()
            .map(|(key, slots)| (key, Spans::of(slots)))
            .collect()
    }

    /// Whom an operator made owner of a slot.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<&NodeId> {
        let mut row = self.0.get(&slot)?.iter();
        row.find(|(_, kind)| **kind == PinKind::Owner)
            .map(|(node, _)| node)
    }

    /// Pins slots to a node; a pin that is there gets the new kind. Whether anything changed.
    pub fn add(&mut self, node: &NodeId, slots: &Spans, kind: PinKind) -> bool {
        let mut changed = false;
        for slot in slots.slots() {
            let row = self.0.entry(slot).or_default();
            changed |= row.insert(node.clone(), kind) != Some(kind);
        }
        changed
    }

    /// Lifts a node's pins in `slots`, or all of them. Whether there was one.
    pub fn remove(&mut self, node: &NodeId, slots: Option<&Spans>) -> bool {
        let all = self.of(node);
        let mut changed = false;
        for slot in slots.unwrap_or(&all).slots() {
            if let Some(row) = self.0.get_mut(&slot) {
                changed |= row.remove(node).is_some();
            }
        }
        self.0.retain(|_, row| !row.is_empty());
        changed
    }

    /// A replacement takes over the pins of the node that it replaces.
    pub fn hand_on(&mut self, node: &NodeId, by: &NodeId) {
        for row in self.0.values_mut() {
            if let Some(kind) = row.remove(node) {
                row.insert(by.clone(), kind);
            }
        }
    }

    /// As the assigner takes them. A node without a handle has no pin there.
    #[must_use]
    pub fn rules(&self, handle: impl Fn(&NodeId) -> Option<Handle>) -> Rules {
        let mut rules = Rules::default();
        for (slot, node, kind) in self.iter() {
            let Some(handle) = handle(node) else {
                continue;
            };
            let pin = Pin { slot, handle };
            match kind {
                PinKind::Member => rules.pins.push(pin),
                PinKind::Owner => rules.owners.push(pin),
            }
        }
        rules
    }

    /// Whether lists over these members can honour every pin. O(pins x rf + members).
    ///
    /// # Errors
    /// [`Rejection::Pinned`] names a node with pins that will hold nothing,
    /// [`Rejection::NoRoomForPin`] a slot whose pins do not go together.
    pub(crate) fn check(&self, bits: u8, rf: u8, members: &Members) -> Result<(), Rejection> {
        if self.is_empty() {
            return Ok(());
        }
        let holds = |node: &NodeId| members.get(node).is_some_and(|(_, w)| w.get() > 0);
        if let Some((_, node, _)) = self.iter().find(|(_, node, _)| !holds(node)) {
            return Err(Rejection::Pinned {
                node: node.clone(),
                slots: self.of(node),
            });
        }
        // Handles of this question alone: who joins has none yet.
        let handles: BTreeMap<&NodeId, Handle> = members.keys().zip((0..).map(Handle)).collect();
        let candidates: Vec<Candidate> = members
            .iter()
            .map(|(node, (zone, weight))| Candidate {
                handle: handles[node],
                zone: zone.clone(),
                weight: *weight,
            })
            .collect();
        let rules = self.rules(|node| handles.get(node).copied());
        match place::check_pins(bits, rf, &candidates, &rules) {
            Ok(()) => Ok(()),
            Err(AssignError::Pin { slot, handle }) => {
                let named = handles.iter().find(|(_, one)| one.0 == handle);
                let node = named.map(|(node, _)| (*node).clone());
                Err(node.map_or(Rejection::Assign(slot.to_string()), |node| {
                    Rejection::NoRoomForPin {
                        slot,
                        zone: members[&node].0.clone(),
                        node,
                    }
                }))
            }
            Err(error) => Err(error.into()),
        }
    }
}
