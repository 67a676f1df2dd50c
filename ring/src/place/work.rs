//! The table while it is being made: rows of node indexes, counts, quotas.

use smallvec::SmallVec;

use super::{order::Order, pins::Pins, quota, scatter, spread::Spread};
use crate::{Handle, Slot, SlotTable};

/// A candidate with weight. Its place among them is its index.
pub(super) struct Node {
    pub handle: Handle,
    /// Number of its zone.
    pub zone: usize,
    pub weight: u64,
}

/// Indexes of nodes.
pub(super) type Row = SmallVec<[u16; 8]>;

/// What a change of one row must leave as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keep {
    /// The owner stays, and where it is gone already, somebody who can follow it.
    Owner,
    /// Somebody who can follow the owner stays: a hand-over, but no gainer becomes first.
    Successor,
    /// Nothing: only for tables of one replica.
    Nothing,
}

pub(super) struct Work<'a> {
    pub nodes: &'a [Node],
    pub spread: &'a Spread,
    /// Replicas per node: as they should be, and as they are.
    pub quota: Vec<u32>,
    pub count: Vec<u32>,
    /// Per slot: the members with weight of the table started from, in its order.
    pub old: Vec<Row>,
    /// Per slot: whether the first of `old` is its owner.
    pub owned: Vec<bool>,
    /// Per slot: the list in the making; its order means nothing yet.
    pub rows: Vec<Row>,
    /// Per node: slots that it holds or once held.
    holds: Vec<Vec<u32>>,
    order: Order,
    pub pins: &'a Pins,
    /// The table started from has lists of one: nobody but a gainer can follow an owner.
    pub single: bool,
}

impl<'a> Work<'a> {
    /// Takes over what is valid of the table, and adds pinned members that it lacks.
    pub fn new(table: &SlotTable, nodes: &'a [Node], spread: &'a Spread, pins: &'a Pins) -> Self {
        let index = index_by_handle(nodes);
        let mut count = vec![0; nodes.len()];
        let (mut old, mut owned) = (Vec::new(), Vec::new());
        for slot in table.slots() {
            let list = table.list(slot);
            let mut row = Row::new();
            for node in list.iter().filter_map(|handle| *index.get(handle.index())?) {
                if !row.contains(&node) {
                    row.push(node);
                    count[usize::from(node)] += 1;
                }
            }
            let first = list.first().and_then(|handle| *index.get(handle.index())?);
            owned.push(first.is_some());
            old.push(row);
        }
        let pinned = pins.counts(nodes.len());
        let quota = quota::replicas(nodes, spread, table.slot_count() as u64, &count, &pinned);
        let order = Order::new(nodes, &quota, &count, spread.zones.len());
        let mut holds = vec![Vec::new(); nodes.len()];
        for (slot, row) in (0..).zip(&old) {
            row.iter()
                .for_each(|node| holds[usize::from(*node)].push(slot));
        }
        let mut work = Self {
            nodes,
            spread,
            quota,
            count,
            rows: old.clone(),
            old,
            owned,
            holds,
            order,
            pins,
            single: table.rf() == 1,
        };
        for slot in pins.slots() {
            for node in pins.row(slot) {
                if !work.rows[slot].contains(node) {
                    work.give(slot, *node);
                }
            }
        }
        work
    }

    /// Takes members out of rows that have more of a zone than they may.
    pub fn strip(&mut self) {
        for slot in 0..self.rows.len() {
            while let Some(node) = self.superfluous(slot) {
                self.take(slot, node);
            }
        }
    }

    /// Of members in zones with excess: no owner if possible, then who is furthest above its
    /// quota.
    fn superfluous(&self, slot: usize) -> Option<u16> {
        let row = &self.rows[slot];
        let excess = |node: &&u16| {
            self.spread
                .excess(self.nodes, row, self.nodes[usize::from(**node)].zone)
        };
        let pinned = self.pins.row(slot);
        let free = row.iter().filter(|node| !pinned.contains(node));
        let candidates = free.filter(excess);
        candidates.copied().max_by_key(|node| {
            let at = usize::from(*node);
            let above = i64::from(self.count[at]) - i64::from(self.quota[at]);
            let tie = scatter(slot as u32, self.nodes[at].handle.0.into());
            (!self.owns(slot, *node), above, tie)
        })
    }

    /// Completes every row, with those who lack most of their quota.
    pub fn fill(&mut self) {
        for slot in 0..self.rows.len() {
            while self.rows[slot].len() < self.spread.length {
                let Some(node) = self.best(&self.rows[slot], false) else {
                    break;
                };
                self.give(slot, node);
            }
        }
    }

    /// Who should get a place in `row`; with `under`, only a node below its quota.
    pub fn best(&self, row: &[u16], under: bool) -> Option<u16> {
        self.order
            .first(row, under, |zone| self.spread.room(self.nodes, row, zone))
    }

    /// Whether `node` is the owner of the slot in the table started from.
    fn owns(&self, slot: usize, node: u16) -> bool {
        self.owned[slot] && self.old[slot].first() == Some(&node)
    }

    /// Whether `node` may leave the row.
    pub fn may_lose(&self, slot: usize, node: u16, keep: Keep) -> bool {
        if self.pins.row(slot).contains(&node) {
            return false;
        }
        let old = &self.old[slot];
        if keep == Keep::Nothing || !old.contains(&node) {
            return true;
        }
        if keep == Keep::Owner && self.owns(slot, node) {
            return false;
        }
        self.rows[slot]
            .iter()
            .any(|other| *other != node && old.contains(other))
    }

    /// Slots that a node holds, each once, in order of number.
    pub fn held(&self, node: u16) -> Vec<u32> {
        let mut held = self.holds[usize::from(node)].clone();
        held.sort_unstable();
        held.dedup();
        held.retain(|slot| self.rows[*slot as usize].contains(&node));
        held
    }

    /// A node leaves a row and another takes its place.
    pub fn replace(&mut self, slot: usize, from: u16, to: u16) {
        self.take(slot, from);
        self.give(slot, to);
    }

    fn take(&mut self, slot: usize, node: u16) {
        self.rows[slot].retain(|other| *other != node);
        self.count[usize::from(node)] -= 1;
        self.order
            .update(self.nodes, &self.quota, &self.count, node.into());
    }

    fn give(&mut self, slot: usize, node: u16) {
        self.rows[slot].push(node);
        self.holds[usize::from(node)].push(slot as u32);
        self.count[usize::from(node)] += 1;
        self.order
            .update(self.nodes, &self.quota, &self.count, node.into());
    }

    /// How many replicas a node has beyond its quota; negative: lacks.
    pub fn surplus(&self, node: u16) -> i64 {
        let at = usize::from(node);
        i64::from(self.count[at]) - i64::from(self.quota[at])
    }

    /// All nodes.
    pub fn indexes(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.nodes.len() as u16
    }

    /// The row without one of its members.
    pub fn without(&self, slot: usize, node: u16) -> Row {
        self.rows[slot]
            .iter()
            .copied()
            .filter(|other| *other != node)
            .collect()
    }
}

/// Place of a handle among `nodes`.
pub(super) fn index_by_handle(nodes: &[Node]) -> Vec<Option<u16>> {
    let highest = nodes.last().map_or(0, |node| node.handle.index() + 1);
    let mut index = vec![None; highest];
    for (at, node) in (0..).zip(nodes) {
        index[node.handle.index()] = Some(at);
    }
    index
}

/// The slot with this number.
pub(super) fn slot(number: usize) -> Slot {
    Slot(number as u32)
}
