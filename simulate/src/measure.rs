//! The one pass over the keys: what every map does with each of them, counted.

use std::collections::BTreeMap;

use annulus_ring::{Handle, List};

use crate::{
    InputError,
    cluster::{Node, Nodes},
    keys::{Record, Source, Totals},
    layout::Map,
    progress::Progress,
};

/// Keys kept to time lookups with, and how many bytes they may have in all.
const SAMPLE_KEYS: usize = 1 << 16;
const SAMPLE_BYTES: usize = 8 << 20;
/// Rings with more nodes than this have no table of who takes over from whom (n^2 counts).
pub const MAX_TAKEOVER_NODES: usize = 1_024;

/// A map over its nodes.
#[derive(Debug)]
pub struct Stage {
    /// Who is there.
    pub nodes: Nodes,
    /// Who holds what.
    pub map: Map,
}

/// What nodes hold, by handle.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Keys owned.
    pub keys: Vec<u64>,
    /// Bytes owned.
    pub bytes: Vec<u64>,
    /// Requests to owned keys.
    pub requests: Vec<u64>,
    /// Keys held, as owner or not.
    pub held_keys: Vec<u64>,
    /// Bytes held, as owner or not.
    pub held_bytes: Vec<u64>,
}

impl Load {
    pub(crate) fn new(handles: usize) -> Self {
        let zeroes = || vec![0; handles];
        Self {
            keys: zeroes(),
            bytes: zeroes(),
            requests: zeroes(),
            held_keys: zeroes(),
            held_bytes: zeroes(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, list: &[Handle], record: &Record<'_>) {
        let owner = list[0].index();
        self.requests[owner] += record.requests;
        if record.first {
            self.keys[owner] += 1;
            self.bytes[owner] += record.bytes;
            for handle in list {
                self.held_keys[handle.index()] += 1;
                self.held_bytes[handle.index()] += record.bytes;
            }
        }
    }
}

/// What differs between two maps.
#[derive(Clone, Debug, Default)]
pub struct Movement {
    /// Keys with another owner.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests to them.
    pub requests: u64,
    /// New (key, replica) pairs: what must be copied.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Requests to keys whose new owner did not hold them: cold, until asked for once.
    pub cold_requests: u64,
    /// The same, by how often a key is asked for.
    pub warmth: Warmth,
}

impl Movement {
    #[inline]
    pub(crate) fn add(&mut self, before: &[Handle], after: &[Handle], record: &Record<'_>) {
        if record.first {
            let new = after
                .iter()
                .filter(|handle| !before.contains(handle))
                .count() as u64;
            self.copies += new;
            self.copied_bytes += new * record.bytes;
        }
        if before[0] != after[0] {
            self.requests += record.requests;
            if record.first {
                self.keys += 1;
                self.bytes += record.bytes;
            }
            if !before.contains(&after[0]) {
                self.cold_requests += record.requests;
                self.warmth.add(record.requests);
            }
        }
    }
}

/// Keys by how often they are asked for, in steps of 1/32 octave: bounded, whatever the trace.
#[derive(Clone, Debug, Default)]
pub struct Warmth {
    /// Step to (keys, requests).
    steps: BTreeMap<u32, (u64, u64)>,
}

impl Warmth {
    fn add(&mut self, requests: u64) {
        let bits = u64::BITS - requests.leading_zeros();
        // Below 64 exact; above, the leading one and the five bits after it.
        let step = match bits.checked_sub(6) {
            None | Some(0) => requests as u32,
            Some(shift) => (shift << 6) | ((requests >> shift) as u32 & 63),
        };
        let (keys, sum) = self.steps.entry(step).or_insert((0, 0));
        *keys += 1;
        *sum += requests;
    }

    /// First requests per second still to come, `seconds` after all these keys became cold, when
    /// `rate` requests a second arrive over `total` requests of the trace, each by chance: a key
    /// asked for x times a second is still cold with probability e^(-x t).
    #[must_use]
    pub fn misses(&self, seconds: f64, rate: f64, total: u64) -> f64 {
        let per_request = rate / total.max(1) as f64;
        let steps = self.steps.values();
        steps
            .map(|(keys, sum)| {
                let rate = *sum as f64 / *keys as f64 * per_request;
                *keys as f64 * rate * (-rate * seconds).exp()
            })
            .sum()
    }
}

/// What becomes of keys when a node or a zone is lost, in the first map.
#[derive(Clone, Debug)]
pub struct Losses {
    /// By node handle.
    pub nodes: Vec<Loss>,
    /// By zone, in the order of their names.
    pub zones: Vec<(String, Loss)>,
    /// Requests by (owner, next in the list), row by row; empty for large rings or one replica.
    pub takeover: Vec<u64>,
}

/// One loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Requests to keys whose owner is lost.
    pub requests: u64,
    /// Keys without a copy left.
    pub gone_keys: u64,
    /// Their bytes.
    pub gone_bytes: u64,
    /// Keys with fewer copies left than a majority of rf.
    pub unwritable_keys: u64,
}

/// The key that is asked for most.
#[derive(Clone, Debug, Default)]
pub struct Hottest {
    /// The key.
    pub key: Vec<u8>,
    /// How often.
    pub requests: u64,
}

/// Everything that one pass found.
#[derive(Debug)]
pub struct Measured {
    /// What the source held.
    pub totals: Totals,
    /// One per map.
    pub loads: Vec<Load>,
    /// Between each map and the one before: one fewer than maps.
    pub movements: Vec<Movement>,
    /// Of the first map.
    pub losses: Losses,
    /// The key that is asked for most.
    pub hottest: Hottest,
    /// The first keys, for timing.
    pub sample: Vec<Vec<u8>>,
}

/// Streams `source` through `stages`, which follow one another, and through `others`, which
/// stand alone; the loads of the latter come after those of the former.
///
/// # Errors
/// The source's.
pub fn measure(
    source: &Source,
    stages: &[Stage],
    others: &[Stage],
    rf: u8,
    progress: &dyn Progress,
) -> Result<Measured, InputError> {
    let all = stages.iter().chain(others);
    let handles = all
        .flat_map(|stage| stage.nodes.iter().map(|node| node.handle.index() + 1))
        .max()
        .unwrap_or(0);
    let mut loads: Vec<Load> = (0..stages.len() + others.len())
        .map(|_| Load::new(handles))
        .collect();
    let mut movements = vec![Movement::default(); stages.len().saturating_sub(1)];
    let mut losses = Watch::new(
        stages.first().map_or(&[][..], |stage| &stage.nodes),
        rf,
        handles,
    );
    let mut hottest = Hottest::default();
    let mut sample = Vec::new();
    let mut sample_bytes = 0;
    let (mut before, mut list) = (List::new(), List::new());

    let totals = source.visit(progress, |record| {
        for (at, stage) in stages.iter().enumerate() {
            stage.map.list(record.key, &mut list);
            loads[at].add(&list, &record);
            match at.checked_sub(1) {
                None => losses.add(&list, &record),
                Some(step) => movements[step].add(&before, &list, &record),
            }
            std::mem::swap(&mut before, &mut list);
        }
        for (stage, load) in others.iter().zip(&mut loads[stages.len()..]) {
            stage.map.list(record.key, &mut list);
            load.add(&list, &record);
        }
        if record.so_far > hottest.requests {
            hottest.requests = record.so_far;
            hottest.key.clear();
            hottest.key.extend_from_slice(record.key);
        }
        if sample.len() < SAMPLE_KEYS && sample_bytes < SAMPLE_BYTES {
            sample_bytes += record.key.len();
            sample.push(record.key.to_vec());
        }
    })?;
    Ok(Measured {
        totals,
        loads,
        movements,
        losses: losses.end(),
        hottest,
        sample,
    })
}

/// Counts losses of the first map while keys pass.
struct Watch {
    zone_of: Vec<usize>,
    losses: Losses,
    majority: usize,
    handles: usize,
}

impl Watch {
    fn new(nodes: &[Node], rf: u8, handles: usize) -> Self {
        let mut names: Vec<_> = nodes.iter().map(|node| &node.zone).collect();
        names.sort_unstable();
        names.dedup();
        let mut zone_of = vec![0; handles];
        for node in nodes {
            zone_of[node.handle.index()] = names.partition_point(|zone| *zone < &node.zone);
        }
        let takeover = if rf > 1 && handles <= MAX_TAKEOVER_NODES {
            vec![0; handles * handles]
        } else {
            Vec::new()
        };
        Self {
            zone_of,
            losses: Losses {
                nodes: vec![Loss::default(); handles],
                zones: names
                    .iter()
                    .map(|zone| (zone.to_string(), Loss::default()))
                    .collect(),
                takeover,
            },
            majority: usize::from(rf) / 2 + 1,
            handles,
        }
    }

    #[inline]
    fn add(&mut self, list: &[Handle], record: &Record<'_>) {
        let owner = list[0].index();
        self.losses.nodes[owner].requests += record.requests;
        self.losses.zones[self.zone_of[owner]].1.requests += record.requests;
        if let (Some(next), false) = (list.get(1), self.losses.takeover.is_empty()) {
            self.losses.takeover[owner * self.handles + next.index()] += record.requests;
        }
        if !record.first {
            return;
        }
        for (at, handle) in list.iter().enumerate() {
            let count = |loss: &mut Loss, left: usize| {
                if left == 0 {
                    loss.gone_keys += 1;
                    loss.gone_bytes += record.bytes;
                }
                loss.unwritable_keys += u64::from(left < self.majority);
            };
            count(&mut self.losses.nodes[handle.index()], list.len() - 1);
            let zone = self.zone_of[handle.index()];
            let same = |other: &&Handle| self.zone_of[other.index()] == zone;
            // A zone is counted at the first of its replicas.
            if !list[..at].iter().any(|other| same(&other)) {
                let left = list.len() - list.iter().filter(same).count();
                count(&mut self.losses.zones[zone].1, left);
            }
        }
    }

    fn end(self) -> Losses {
        self.losses
    }
}

/// How evenly something is spread: each node's part over its fair part.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Balance {
    /// Largest part over its fair part; 1 is perfect.
    pub max_over_mean: f64,
    /// Smallest part over its fair part.
    pub min_over_mean: f64,
    /// Coefficient of variation: standard deviation over mean of these ratios.
    pub cv: f64,
}

impl Balance {
    /// Of counts by handle, against fair shares of `nodes` (those with none are left out).
    #[must_use]
    pub fn of(counts: &[u64], nodes: &[Node], fair: &[f64]) -> Self {
        let total: u64 = nodes.iter().map(|node| counts[node.handle.index()]).sum();
        let whole: f64 = fair.iter().sum();
        let eligible = nodes.iter().zip(fair).filter(|(_, fair)| **fair > 0.0);
        let ratios: Vec<f64> = eligible
            .map(|(node, fair)| {
                counts[node.handle.index()] as f64 / (total.max(1) as f64 * fair / whole)
            })
            .collect();
        Self::of_ratios(&ratios)
    }

    /// Of ratios to the fair part.
    #[must_use]
    pub fn of_ratios(ratios: &[f64]) -> Self {
        let count = ratios.len().max(1) as f64;
        let mean = ratios.iter().sum::<f64>() / count;
        let variance = ratios
            .iter()
            .map(|ratio| (ratio - mean).powi(2))
            .sum::<f64>()
            / count;
        Self {
            max_over_mean: ratios.iter().copied().fold(0.0, f64::max),
            min_over_mean: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            cv: if mean > 0.0 {
                variance.sqrt() / mean
            } else {
                0.0
            },
        }
    }
}

/// ns per lookup over `sample`: the best of `rounds`, single-threaded, keys in memory.
#[must_use]
pub fn lookup_ns(map: &Map, sample: &[Vec<u8>], rounds: u32) -> f64 {
    let mut list = List::new();
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = std::time::Instant::now();
        for key in sample {
            map.list(key, &mut list);
            std::hint::black_box(&list);
        }
        let ns = start.elapsed().as_nanos() as f64 / sample.len().max(1) as f64;
        best = best.min(ns);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::regular;

    #[test]
    fn balance_of_hand_made_counts() {
        let nodes = regular(4, 1, &[1]).expect("fine");
        let balance = Balance::of(&[10, 10, 20, 0], &nodes, &[0.25; 4]);
        assert_eq!(balance.max_over_mean, 2.0);
        assert_eq!(balance.min_over_mean, 0.0);
        assert!((balance.cv - 0.5_f64.sqrt()).abs() < 1e-12);
        // By weight 3:1, 30 and 10 are perfect.
        let nodes = regular(2, 1, &[3, 1]).expect("fine");
        let balance = Balance::of(&[30, 10], &nodes, &[0.75, 0.25]);
        assert_eq!((balance.max_over_mean, balance.cv), (1.0, 0.0));
    }

    #[test]
    fn cold_keys_warm_up_as_they_are_asked_for() {
        let mut warmth = Warmth::default();
        warmth.add(50);
        warmth.add(50);
        // 100 requests in the trace, 10 a second: each key is asked for 5 times a second.
        assert!((warmth.misses(0.0, 10.0, 100) - 10.0).abs() < 1e-9);
        let later = 10.0 * (-5.0_f64 * 0.2).exp();
        assert!((warmth.misses(0.2, 10.0, 100) - later).abs() < 1e-9);
    }

    #[test]
    fn warmth_keeps_few_steps_and_all_requests() {
        let mut warmth = Warmth::default();
        let mut sum = 0;
        for at in 0..10_000_u64 {
            let requests = at * at * at;
            sum += requests;
            warmth.add(requests);
        }
        assert!(warmth.steps.len() < 2_500, "{}", warmth.steps.len());
        assert_eq!(warmth.steps.values().map(|(_, sum)| sum).sum::<u64>(), sum);
        for (keys, sum) in warmth.steps.values() {
            assert!(*keys > 0 && *sum < u64::MAX);
        }
    }
}
