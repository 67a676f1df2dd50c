//! What a plan would do, in figures. Counts of ranges are exact; bytes, keys and times are
//! estimates (see `estimate.rs`), and absent where nodes said nothing.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Handle, Incarnation, NodeId, SlotTable, Zone, place};

use super::{
    Base, Plan, Undo,
    estimate::{Estimate, Facts, minus, plus, sum},
    lists::{after, each, without},
    undo, warn,
};
use crate::{Held, MAX_WAVE, RingState};

/// What a plan would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Ranges whose list changes.
    pub changed_ranges: u32,
    /// Copies to be made, one per gainer and range.
    pub copies: u32,
    /// All copies together; an estimate.
    pub copied: Option<Held>,
    /// Who copies how much from whom, sorted by source and gainer.
    pub pairs: Vec<PairOutlook>,
    /// Everybody who holds ranges before or after, sorted.
    pub nodes: Vec<NodeOutlook>,
    /// Their zones, sorted.
    pub zones: Vec<ZoneOutlook>,
    /// Length and spread of lists.
    pub spread: SpreadOutlook,
    /// Changes of owner.
    pub hand_overs: HandOvers,
    /// How long copying takes at least, in ms: the slowest gainer at its limit. None where one of
    /// them has no limit, or its bytes are unknown.
    pub copy_ms: Option<u64>,
    /// What the way back costs, step by step.
    pub undo: Vec<Undo>,
    /// Members of whose data nothing is known, sorted.
    pub unknown: Vec<NodeId>,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
}

/// What one node copies from another: a range's source is its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairOutlook {
    /// The owner.
    pub source: NodeId,
    /// Who gets copies.
    pub gainer: NodeId,
    /// How many ranges.
    pub ranges: u32,
    /// What they weigh; an estimate.
    pub estimate: Option<Held>,
    /// The two are in different zones.
    pub crosses_zones: bool,
}

/// One node before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutlook {
    /// Who.
    pub node: NodeId,
    /// Its zone, afterwards where that changes.
    pub zone: Zone,
    /// Its share; none before it is a member.
    pub weight_before: Option<u32>,
    /// Its share; none when it leaves.
    pub weight_after: Option<u32>,
    /// Its load now.
    pub before: Load,
    /// Its load at the end.
    pub after: Load,
    /// Ranges it copies.
    pub gained: u32,
    /// What these weigh; an estimate.
    pub gained_estimate: Option<Held>,
    /// Ranges it gives up; it keeps their copies for the grace.
    pub lost: u32,
    /// Copies of earlier transitions that it still keeps.
    pub retained: u32,
    /// Most bytes on its disk meanwhile: what it holds, what it keeps and what it gains.
    pub peak_bytes: Option<u64>,
    /// Free bytes on its disk now; none: unknown.
    pub free_bytes: Option<u64>,
    /// How much of what it gains its disk has no room for.
    pub lacking_bytes: u64,
    /// Its limit on copying, in bytes a second; 0: none.
    pub copy_bytes_per_second: u64,
    /// How long it copies at that limit, in ms.
    pub copy_ms: Option<u64>,
}

/// A node's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Ranges that list it.
    pub ranges: u32,
    /// Ranges that it owns. Evening waves bring these in line with weights afterwards.
    pub owned: u32,
    /// Its part of all replicas, in millionths.
    pub share_ppm: u32,
    /// What it holds.
    pub held: Option<Held>,
}

/// One zone before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneOutlook {
    /// Which.
    pub zone: Zone,
    /// Nodes with weight before.
    pub nodes_before: u32,
    /// Nodes with weight after.
    pub nodes_after: u32,
    /// Sum of weights before.
    pub weight_before: u64,
    /// Sum of weights after.
    pub weight_after: u64,
    /// Replicas before.
    pub ranges_before: u32,
    /// Replicas after.
    pub ranges_after: u32,
    /// Copies that come from another zone.
    pub copies_in: u32,
}

/// Lists that are not what rf and zones ask, before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpreadOutlook {
    /// Ranges with fewer than rf replicas.
    pub short_before: u32,
    /// The same after.
    pub short_after: u32,
    /// Ranges in fewer zones than possible.
    pub unspread_before: u32,
    /// The same after.
    pub unspread_after: u32,
}

/// Changes of owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOvers {
    /// Ranges whose owner leaves their list: handed over before anything is copied.
    pub leaving: u32,
    /// In so many waves, one after the other.
    pub leaving_waves: u32,
    /// Ranges handed over afterwards to even the owners out.
    pub evening: u32,
}

/// Counts per handle.
#[derive(Debug, Default)]
struct Tally {
    ranges: BTreeMap<Handle, u32>,
    owned: BTreeMap<Handle, u32>,
    total: u64,
}

impl Tally {
    fn add(&mut self, list: &[Handle]) {
        for (at, handle) in list.iter().enumerate() {
            *self.ranges.entry(*handle).or_default() += 1;
            if at == 0 {
                *self.owned.entry(*handle).or_default() += 1;
            }
        }
        self.total += list.len() as u64;
    }

    fn load(&self, handle: Handle, held: Option<Held>) -> Load {
        let count = |map: &BTreeMap<Handle, u32>| map.get(&handle).copied().unwrap_or(0);
        let ranges = count(&self.ranges);
        let share = (u64::from(ranges) * 1_000_000).checked_div(self.total);
        Load {
            ranges,
            owned: count(&self.owned),
            share_ppm: u32::try_from(share.unwrap_or(0)).unwrap_or(u32::MAX),
            held,
        }
    }
}

/// What moves.
#[derive(Debug, Default)]
struct Moves {
    changed: u32,
    /// Ranges by (source, gainer).
    pairs: BTreeMap<(Handle, Handle), u32>,
    gained: BTreeMap<Handle, u32>,
    lost: BTreeMap<Handle, u32>,
    /// Ranges by (owner that leaves, successor).
    leaving: BTreeMap<(Handle, Handle), usize>,
}

impl Moves {
    fn add(&mut self, old: &[Handle], new: &[Handle]) {
        if old == new {
            return;
        }
        self.changed += 1;
        for gainer in without(new, old) {
            *self.gained.entry(gainer).or_default() += 1;
            if let Some(source) = old.first() {
                *self.pairs.entry((*source, gainer)).or_default() += 1;
            }
        }
        for loser in without(old, new) {
            *self.lost.entry(loser).or_default() += 1;
        }
        if let (Some(owner), Some(successor)) = (old.first(), new.first())
            && owner != successor
        {
            *self.leaving.entry((*owner, *successor)).or_default() += 1;
        }
    }
}

/// One who holds ranges before or after.
struct Party<'a> {
    node: &'a NodeId,
    incarnation: Incarnation,
    zone: &'a Zone,
    weight_before: Option<u32>,
    weight_after: Option<u32>,
}

fn parties<'a>(base: &Base<'a>, plan: &'a Plan) -> BTreeMap<Handle, Party<'a>> {
    let mut parties: BTreeMap<Handle, Party<'a>> = BTreeMap::new();
    for member in base.members.values() {
        let party = Party {
            node: &member.node_id,
            incarnation: member.incarnation,
            zone: &member.zone,
            weight_before: Some(member.weight.get()),
            weight_after: None,
        };
        parties.insert(member.handle, party);
    }
    for holder in &plan.holders {
        let before = parties
            .get(&holder.handle)
            .and_then(|party| party.weight_before);
        let party = Party {
            node: &holder.node,
            incarnation: holder.incarnation,
            zone: &holder.zone,
            weight_before: before,
            weight_after: Some(holder.weight.get()),
        };
        parties.insert(holder.handle, party);
    }
    parties
}

/// What `plan` would do to the layout it was made on. `ring` tells what is kept and how it stands
/// now, `facts` what nodes hold (none: this server does not lead). `limit`: bytes a second that a
/// node copies at most; none: as each node reports it. O(slots x rf) and the evening of owners.
#[must_use]
pub fn outlook(
    base: &Base<'_>,
    plan: &Plan,
    ring: &RingState,
    facts: Option<&Facts>,
    limit: Option<u64>,
) -> Outlook {
    let parties = parties(base, plan);
    let (mut before, mut end, mut moves) = (Tally::default(), Tally::default(), Moves::default());
    for (_, old, new) in each(base, &plan.target) {
        before.add(old);
        end.add(new);
        moves.add(old, new);
    }
    let estimate = Estimate::new(base, &before.ranges, facts);
    let pairs = pairs(&parties, &moves, &estimate);
    let nodes: Vec<NodeOutlook> = parties
        .iter()
        .map(|(handle, party)| {
            node(
                *handle, party, ring, facts, limit, &before, &end, &moves, &pairs, &estimate,
            )
        })
        .collect();
    let table = after(base, plan);
    let mut nodes = nodes;
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    let gainers = || nodes.iter().filter(|node| node.gained > 0);
    let copy_ms = gainers()
        .map(|node| node.copy_ms)
        .try_fold(0, |most, ms| Some(most.max(ms?)));
    let silent = |member: &&&annulus_ring::Member| estimate.held(&member.node_id).is_none();
    let mut unknown: Vec<NodeId> = base
        .members
        .values()
        .filter(|member| before.ranges.contains_key(&member.handle))
        .filter(silent)
        .map(|member| member.node_id.clone())
        .collect();
    unknown.sort();
    let mut outlook = Outlook {
        changed_ranges: moves.changed,
        copies: moves.pairs.values().sum(),
        copied: sum(pairs.iter().map(|pair| pair.estimate)),
        zones: zones(&parties, &nodes, &pairs),
        spread: spread(base, plan, &table),
        hand_overs: hand_overs(plan, &moves, &table),
        copy_ms,
        undo: Vec::new(),
        unknown,
        warnings: Vec::new(),
        pairs,
        nodes,
    };
    outlook.undo = undo::ways(&outlook);
    outlook.warnings = warn::warnings(&outlook, base, plan, ring, facts);
    outlook
}

fn pairs(
    parties: &BTreeMap<Handle, Party<'_>>,
    moves: &Moves,
    estimate: &Estimate,
) -> Vec<PairOutlook> {
    let mut pairs: Vec<PairOutlook> = moves
        .pairs
        .iter()
        .filter_map(|((source, gainer), ranges)| {
            let (from, to) = (parties.get(source)?, parties.get(gainer)?);
            Some(PairOutlook {
                source: from.node.clone(),
                gainer: to.node.clone(),
                ranges: *ranges,
                estimate: estimate.ranges(from.node, *ranges),
                crosses_zones: from.zone != to.zone,
            })
        })
        .collect();
    pairs.sort_by(|one, other| (&one.source, &one.gainer).cmp(&(&other.source, &other.gainer)));
    pairs
}

#[allow(
    clippy::too_many_arguments,
    reason = "one node's facts, from all that was counted"
)]
fn node(
    handle: Handle,
    party: &Party<'_>,
    ring: &RingState,
    facts: Option<&Facts>,
    limit: Option<u64>,
    before: &Tally,
    end: &Tally,
    moves: &Moves,
    pairs: &[PairOutlook],
    estimate: &Estimate,
) -> NodeOutlook {
    let fact = facts.and_then(|facts| facts.get(party.node, party.incarnation));
    let count = |map: &BTreeMap<Handle, u32>| map.get(&handle).copied().unwrap_or(0);
    let (gained, lost) = (count(&moves.gained), count(&moves.lost));
    let mine = pairs.iter().filter(|pair| pair.gainer == *party.node);
    let gained_estimate = sum(mine.map(|pair| pair.estimate));
    // Who holds no range holds nothing.
    let holds = count(&before.ranges);
    let held = if holds == 0 {
        Some(Held::default())
    } else {
        estimate
            .held(party.node)
            .or_else(|| estimate.ranges(party.node, holds))
    };
    let given = estimate.ranges(party.node, lost);
    let held_after = match (held, gained_estimate) {
        (Some(held), Some(gained)) => match (lost, given) {
            (0, _) => Some(plus(held, gained)),
            (_, Some(given)) => Some(minus(plus(held, gained), given)),
            (_, None) => None,
        },
        _ => None,
    };
    let retained: usize = ring
        .retained
        .iter()
        .filter(|copies| copies.node == *party.node)
        .map(|copies| copies.kept.len() + copies.permitted.len())
        .sum();
    let retained = u32::try_from(retained).unwrap_or(u32::MAX);
    let kept = match retained {
        0 => Some(Held::default()),
        some => estimate.ranges(party.node, some),
    };
    // A loser's copies stay on its disk for the grace, so nothing is taken off.
    let peak = sum([held, kept, gained_estimate].into_iter());
    let free_bytes = fact.map(|fact| fact.free_bytes).filter(|free| *free > 0);
    let lacking_bytes = match (gained_estimate, free_bytes) {
        (Some(gained), Some(free)) => gained.bytes.saturating_sub(free),
        _ => 0,
    };
    let own_limit = fact.map_or(0, |fact| fact.copy_bytes_per_second);
    let copy_bytes_per_second = limit.unwrap_or(own_limit);
    let copy_ms = gained_estimate.and_then(|gained| {
        let ms = u128::from(gained.bytes) * 1_000;
        let ms = ms.checked_div(u128::from(copy_bytes_per_second))?;
        Some(u64::try_from(ms).unwrap_or(u64::MAX))
    });
    NodeOutlook {
        node: party.node.clone(),
        zone: party.zone.clone(),
        weight_before: party.weight_before,
        weight_after: party.weight_after,
        before: before.load(handle, held),
        after: end.load(handle, held_after),
        gained,
        gained_estimate,
        lost,
        retained,
        peak_bytes: peak.map(|peak| peak.bytes),
        free_bytes,
        lacking_bytes,
        copy_bytes_per_second,
        copy_ms,
    }
}

fn zones(
    parties: &BTreeMap<Handle, Party<'_>>,
    nodes: &[NodeOutlook],
    pairs: &[PairOutlook],
) -> Vec<ZoneOutlook> {
    let names: BTreeSet<&Zone> = parties.values().map(|party| party.zone).collect();
    let outlook = |zone: &&Zone| {
        let here = || nodes.iter().filter(|node| node.zone == **zone);
        let weights = |weight: fn(&NodeOutlook) -> Option<u32>| {
            let weights: Vec<u64> = here()
                .filter_map(weight)
                .filter(|weight| *weight > 0)
                .map(u64::from)
                .collect();
            let count = u32::try_from(weights.len()).unwrap_or(u32::MAX);
            (count, weights.iter().sum())
        };
        let (nodes_before, weight_before) = weights(|node| node.weight_before);
        let (nodes_after, weight_after) = weights(|node| node.weight_after);
        let arrives =
            |pair: &&PairOutlook| pair.crosses_zones && here().any(|node| node.node == pair.gainer);
        ZoneOutlook {
            zone: (*zone).clone(),
            nodes_before,
            nodes_after,
            weight_before,
            weight_after,
            ranges_before: here().map(|node| node.before.ranges).sum(),
            ranges_after: here().map(|node| node.after.ranges).sum(),
            copies_in: pairs.iter().filter(arrives).map(|pair| pair.ranges).sum(),
        }
    };
    names.iter().map(outlook).collect()
}

fn spread(base: &Base<'_>, plan: &Plan, table: &SlotTable) -> SpreadOutlook {
    let candidates: Vec<_> = base
        .members
        .values()
        .map(|member| annulus_ring::Candidate {
            handle: member.handle,
            zone: member.zone.clone(),
            weight: member.weight,
        })
        .collect();
    let before = place::shortfall(base.slots, &candidates);
    let end = place::shortfall(table, &plan.candidates());
    SpreadOutlook {
        short_before: before.short,
        short_after: end.short,
        unspread_before: before.unspread,
        unspread_after: end.unspread,
    }
}

fn hand_overs(plan: &Plan, moves: &Moves, table: &SlotTable) -> HandOvers {
    let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let waves = moves
        .leaving
        .values()
        .map(|ranges| ranges.div_ceil(MAX_WAVE));
    HandOvers {
        leaving: count(moves.leaving.values().sum()),
        leaving_waves: count(waves.sum()),
        evening: count(place::even_owners(table, &plan.candidates()).len()),
    }
}
