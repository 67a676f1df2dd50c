//! The assigner of the `slots` layout: members, zones and weights to lists.
//!
//! What it aims at, in this order:
//!
//! 1. Every list has min(rf, members with weight) members, no member twice.
//! 2. Zones are spread as widely as their sizes allow (`spread.rs`).
//! 3. Replicas and owners are balanced by weight, to within one slot of the share that zones
//!    leave a member (`quota.rs`).
//! 4. As little moves as that allows: members stay where they are, and only those above
//!    their share give to those below (`balance.rs`).
//! 5. Owners stay first; a member gives up ranges that it does not own, so a join needs no
//!    hand-over. Where an owner leaves, a member that stays follows it, never a gainer
//!    (`owners.rs`).
//!
//! The result is a function of the table and the *set* of candidates: order, map and machine
//! have no part in it. It does depend on the table it starts from: moving least means that
//! two histories may end in two maps, both balanced.
//!
//! A member whose share is below one slot (weight 1 beside 1,000,000) may hold none.
//!
//! Six nodes in three zones, rf 3, and what one more node in `z1` does:
//!
//! ```text
//!    zone   before        after
//!    z1     a1 a2         a1 a2 x     x takes a third of a1's and a2's ranges,
//!    z2     b1 b2         b1 b2       those that they do not own;
//!    z3     c1 c2         c1 c2       nobody else moves anything
//! ```

use std::collections::BTreeMap;

use crate::{Handle, List, Slot, SlotTable, Weight, Zone};

mod balance;
mod order;
mod owners;
mod pins;
mod quota;
mod spread;
mod work;

pub use balance::MAX_STEPS;
use pins::Pins;
use spread::Spread;
use work::{Node, Work};

/// Version of this algorithm, carried with every target so that people know what made it.
pub const ASSIGNER_VERSION: u32 = 1;

/// A member that may hold ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub handle: Handle,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
}

/// Why no table can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// Nobody has weight.
    #[error("no eligible node: every weight is 0; join a node with weight")]
    NoEligibleNode,
    /// A pin that no table can honour: its slot is not of this table, its node is no candidate
    /// with weight, the slot's other pins leave no place in its zone, or another owns the slot.
    #[error(
        "slot {slot} cannot be pinned to handle {handle}: no such slot, no node with weight, or \
         no place beside the slot's other pins"
    )]
    Pin {
        /// Its slot.
        slot: Slot,
        /// Its node.
        handle: u16,
    },
    /// Two candidates have one handle, or one has the handle that pads lists.
    #[error("handle {handle} is given to two candidates, or reserved")]
    Handle {
        /// The offending handle.
        handle: u16,
    },
}

/// What an operator asks of lists beyond balance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What comes first where zones are too few or too small for rf.
    pub spread: ZoneSpread,
    /// Who must be in which list; in any order, twice is once. Quotas make room for them.
    pub pins: Vec<Pin>,
    /// Who must own which range, at most one each; a pin like the others besides. Only members
    /// that hold a range can own it, so [`assign_with`] sees to it where an owner leaves, and
    /// [`even_owners_with`] where one stays.
    pub owners: Vec<Pin>,
    /// Replicas of a range in the table to be made, 1 to [`crate::slots::MAX_RF`]; none: as many
    /// as the table started from has.
    pub rf: Option<u8>,
}

/// What comes first where zones are too few or too small for rf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneSpread {
    /// Length: lists are full, and some zone has two of their members.
    #[default]
    Soft,
    /// Zones: no list has two members of one zone, and lists are as short as that makes them
    /// ([`Shortfall::short`] tells of how many).
    Hard,
}

impl ZoneSpread {
    fn of(self, nodes: &[Node], rf: u8) -> Spread {
        match self {
            Self::Soft => Spread::of(nodes, usize::from(rf)),
            Self::Hard => Spread::hard(nodes, usize::from(rf)),
        }
    }
}

/// One slot's list must name a node. Who is first is not its business, except in
/// [`Rules::owners`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// The slot.
    pub slot: Slot,
    /// The node that its list must name.
    pub handle: Handle,
}

/// A table, and the work that went into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Every slot's list.
    pub table: SlotTable,
    /// Rows that were looked at to find chains of moves: what planning costs beyond one pass
    /// over the table. Bounded by [`MAX_STEPS`]; an ordinary join needs none or few.
    pub steps: u64,
}

/// How far a table is from what its members allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Slots with fewer than rf replicas.
    pub short: u32,
    /// Slots that spread over fewer zones than min(rf, zones with weight).
    pub unspread: u32,
}

/// Gives every slot a list from `candidates`, staying as near to `current` as balance allows.
///
/// Lists keep their order: members that stay, then gainers. Cost: O(slots x rf x log nodes) in
/// ordinary cases; the search for the last few replicas is bounded by steps, never by time.
///
/// # Errors
/// [`AssignError::NoEligibleNode`] when every weight is 0, [`AssignError::Handle`] when handles
/// are not unique.
pub fn assign(current: &SlotTable, candidates: &[Candidate]) -> Result<SlotTable, AssignError> {
    Ok(assign_with(current, candidates, &Rules::default())?.table)
}

/// As [`assign`], by an operator's rules; tells the work, too.
///
/// # Errors
/// As [`assign`], and [`AssignError::Pin`] for a pin that no table can honour.
pub fn assign_with(
    current: &SlotTable,
    candidates: &[Candidate],
    rules: &Rules,
) -> Result<Assigned, AssignError> {
    let nodes = nodes(candidates)?;
    if nodes.is_empty() {
        return Err(AssignError::NoEligibleNode);
    }
    let spread = rules.spread.of(&nodes, rules.rf.unwrap_or(current.rf()));
    let pins = Pins::of(current.slot_count(), &nodes, &spread, rules)?;
    let mut work = Work::new(current, &nodes, &spread, &pins);
    work.strip();
    work.fill();
    let steps = balance::balance(&mut work);
    let table = owners::finish(current, &work);
    Ok(Assigned { table, steps })
}

/// Hand-overs that would even the owners out inside unchanged lists: (slot, successor), in order.
///
/// Owners are balanced by weight, within one slot, as far as the lists allow: exact, by
/// shortest augmenting paths, so that few ranges change hands. A member without weight, or
/// that is no candidate, owns nothing afterwards where its lists name anybody else.
#[must_use]
pub fn even_owners(table: &SlotTable, candidates: &[Candidate]) -> Vec<(Slot, Handle)> {
    even_owners_with(table, candidates, &[])
}

/// As [`even_owners`], with the ranges of `pinned` owned by their node where their list names it;
/// the others are balanced around that.
#[must_use]
pub fn even_owners_with(
    table: &SlotTable,
    candidates: &[Candidate],
    pinned: &[Pin],
) -> Vec<(Slot, Handle)> {
    match nodes(candidates) {
        Ok(nodes) => owners::even(table, &nodes, pinned),
        Err(_) => Vec::new(),
    }
}

/// Whether tables of 2^`bits` slots and `rf` replicas can honour an operator's pins.
/// O(pins x rf + candidates).
///
/// # Errors
/// [`AssignError::Pin`] names the first that they cannot, [`AssignError::Handle`] as [`assign`].
pub fn check_pins(
    bits: u8,
    rf: u8,
    candidates: &[Candidate],
    rules: &Rules,
) -> Result<(), AssignError> {
    let nodes = nodes(candidates)?;
    let spread = rules.spread.of(&nodes, rf);
    Pins::of(1 << bits, &nodes, &spread, rules).map(|_| ())
}

/// Compares a table with the best its candidates allow.
///
/// A candidate of weight 0 counts for the lists that name it (it drains, say) and asks for
/// nothing; a handle that is no candidate's counts as a replica of no zone.
#[must_use]
pub fn shortfall(table: &SlotTable, candidates: &[Candidate]) -> Shortfall {
    let zones: BTreeMap<Handle, &Zone> = candidates
        .iter()
        .map(|candidate| (candidate.handle, &candidate.zone))
        .collect();
    let mut weighty: Vec<_> = candidates
        .iter()
        .filter(|candidate| candidate.weight.get() > 0)
        .map(|candidate| &candidate.zone)
        .collect();
    weighty.sort_unstable();
    weighty.dedup();
    let rf = usize::from(table.rf());
    let best = rf.min(weighty.len());

    let mut found = Shortfall::default();
    for slot in table.slots() {
        let list = table.list(slot);
        if list.len() < rf {
            found.short += 1;
        }
        let mut spread: Vec<_> = list.iter().filter_map(|handle| zones.get(handle)).collect();
        spread.sort_unstable();
        spread.dedup();
        if spread.len() < best {
            found.unspread += 1;
        }
    }
    found
}

/// Candidates with weight, sorted by handle, zones numbered in their order.
fn nodes(candidates: &[Candidate]) -> Result<Vec<Node>, AssignError> {
    let mut sorted: Vec<_> = candidates.iter().collect();
    sorted.sort_unstable_by_key(|candidate| candidate.handle);
    let twice = sorted
        .windows(2)
        .find(|pair| pair[0].handle == pair[1].handle);
    let last = sorted.last().filter(|last| last.handle == Handle::NONE);
    if let Some(bad) = twice.map(|pair| pair[0]).or(last.copied()) {
        return Err(AssignError::Handle {
            handle: bad.handle.0,
        });
    }
    sorted.retain(|candidate| candidate.weight.get() > 0);
    let mut zones: Vec<_> = sorted.iter().map(|candidate| &candidate.zone).collect();
    zones.sort_unstable();
    zones.dedup();
    let nodes = sorted.iter().map(|candidate| Node {
        handle: candidate.handle,
        zone: zones.partition_point(|zone| *zone < &candidate.zone),
        weight: candidate.weight.get().into(),
    });
    Ok(nodes.collect())
}

/// A pseudo-random number that is the same everywhere: scatters ties.
fn scatter(a: u32, b: u32) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&a.to_le_bytes(), b.into())
}

/// A node at this share of its quota, or above, has all it should.
const FULL: u64 = 1 << 32;

/// How much of its quota a node has with a part of a range more, in units of 2^-32; below
/// [`FULL`] exactly when `count < quota`. A node without quota comes last.
fn filled(count: u32, quota: u32, part: u64) -> u64 {
    let count = u64::from(count) << 32 | part & 0xffff_ffff;
    count.checked_div(quota.into()).unwrap_or(u64::MAX)
}

/// A list of node indexes as handles.
fn handles(nodes: &[Node], row: &[u16]) -> List {
    row.iter()
        .map(|node| nodes[usize::from(*node)].handle)
        .collect()
}
