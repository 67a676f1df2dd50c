//! What people use instead, each after its source, to be measured beside ours.

use std::collections::BTreeMap;

use annulus_ring::{Handle, List};
use md5::{Digest, Md5};

use crate::{cluster::Node, hash::Hash};

/// A ring of points "name-i" (Karger et al., "Consistent hashing and random trees", STOC 1997):
/// the forty lines that everybody writes, with a bucket index instead of a search.
#[derive(Debug)]
pub struct Ring {
    hash: Hash,
    seed: u64,
    rf: usize,
    /// Sorted by (point, node name, i).
    points: Vec<u64>,
    /// rf handles per point, padded.
    lists: Vec<Handle>,
    /// Bits of the bucket number.
    bits: u32,
    /// Per bucket the first point at or after its start.
    buckets: Vec<u32>,
}

impl Ring {
    pub fn new(nodes: &[Node], per_weight: u32, hash: Hash, seed: u64, rf: u8) -> Self {
        let mut points = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            for i in 0..u64::from(per_weight) * u64::from(node.weight.get()) {
                let point = hash.hash(seed, format!("{}-{i}", node.name).as_bytes());
                points.push((point, &node.name, i, place));
            }
        }
        points.sort_unstable();
        let owners: Vec<usize> = points.iter().map(|(_, _, _, place)| *place).collect();
        let points: Vec<u64> = points.iter().map(|(point, ..)| *point).collect();
        let rf = usize::from(rf);
        let lists = walk(nodes, &owners, rf);
        // About one point a bucket.
        let bits = points
            .len()
            .next_power_of_two()
            .trailing_zeros()
            .clamp(1, 24);
        let mut buckets = Vec::with_capacity(1 << bits);
        let mut at = 0_u32;
        for bucket in 0..1_u64 << bits {
            let start = bucket << (64 - bits);
            while points.get(at as usize).is_some_and(|point| *point < start) {
                at += 1;
            }
            buckets.push(at);
        }
        Self {
            hash,
            seed,
            rf,
            points,
            lists,
            bits,
            buckets,
        }
    }

    pub fn token_count(&self) -> usize {
        self.points.len()
    }

    #[inline]
    pub fn list(&self, key: &[u8]) -> &[Handle] {
        let hash = self.hash.hash(self.seed, key);
        let mut at = self.buckets[(hash >> (64 - self.bits)) as usize] as usize;
        while self.points.get(at).is_some_and(|point| *point < hash) {
            at += 1;
        }
        if at == self.points.len() {
            at = 0;
        }
        let padded = &self.lists[at * self.rf..][..self.rf];
        let length = padded.iter().position(|handle| *handle == Handle::NONE);
        &padded[..length.unwrap_or(self.rf)]
    }

    /// Share of the circle that each node owns, by its place among `nodes`: exact, without keys.
    pub fn shares(&self, nodes: &[Node]) -> Vec<f64> {
        let place: BTreeMap<_, _> = nodes.iter().map(|node| node.handle).zip(0..).collect();
        let mut shares = vec![0.0; nodes.len()];
        let last = self.points.len() - 1;
        for (at, point) in self.points.iter().enumerate() {
            let before = self.points[if at == 0 { last } else { at - 1 }];
            let length = if last == 0 {
                u64::MAX
            } else {
                point.wrapping_sub(before)
            };
            let owner: usize = place[&self.lists[at * self.rf]];
            shares[owner] += length as f64 / 2_f64.powi(64);
        }
        shares
    }
}

/// The list of every point: clockwise, a node once, a zone at most ceil(rf / zones) times; when
/// the walk ends short, the cap rises by one and the walk goes on.
fn walk(nodes: &[Node], owners: &[usize], rf: usize) -> Vec<Handle> {
    let mut names: Vec<_> = nodes
        .iter()
        .filter(|node| node.weight.get() > 0)
        .map(|node| &node.zone)
        .collect();
    names.sort_unstable();
    names.dedup();
    let zone_of: Vec<usize> = nodes
        .iter()
        .map(|node| names.partition_point(|zone| *zone < &node.zone))
        .collect();
    let eligible = nodes.iter().filter(|node| node.weight.get() > 0).count();
    let length = rf.min(eligible);
    let mut lists = Vec::with_capacity(owners.len() * rf);
    let mut list: Vec<usize> = Vec::with_capacity(rf);
    for start in 0..owners.len() {
        list.clear();
        let mut cap = rf.div_ceil(names.len());
        while list.len() < length {
            for step in 0..owners.len() {
                let at = start + step;
                let node = owners[if at < owners.len() {
                    at
                } else {
                    at - owners.len()
                }];
                let inside = list
                    .iter()
                    .filter(|other| zone_of[**other] == zone_of[node]);
                if !list.contains(&node) && inside.count() < cap {
                    list.push(node);
                    if list.len() == length {
                        break;
                    }
                }
            }
            cap += 1;
        }
        lists.extend(list.iter().map(|node| nodes[*node].handle));
        lists.extend(std::iter::repeat_n(Handle::NONE, rf - length));
    }
    lists
}

/// Highest random weight (Thaler, Ravishankar, "Using name-based mappings to increase hit
/// rates", 1998), weighted by -w / ln u (Schindelhauer, Schomaker, SPAA 2005).
#[derive(Debug)]
pub struct Rendezvous {
    hash: Hash,
    seed: u64,
    rf: usize,
    zones: usize,
    /// Hash of the name, weight, zone, handle; those with weight only.
    nodes: Vec<(u64, f64, usize, Handle)>,
}

impl Rendezvous {
    pub fn new(nodes: &[Node], hash: Hash, seed: u64, rf: u8) -> Self {
        let eligible: Vec<_> = nodes.iter().filter(|node| node.weight.get() > 0).collect();
        let mut names: Vec<_> = eligible.iter().map(|node| &node.zone).collect();
        names.sort_unstable();
        names.dedup();
        let nodes = eligible.iter().map(|node| {
            let name = hash.hash(seed, node.name.as_str().as_bytes());
            let zone = names.partition_point(|zone| *zone < &node.zone);
            (name, f64::from(node.weight.get()), zone, node.handle)
        });
        Self {
            hash,
            seed,
            rf: usize::from(rf).min(eligible.len()),
            zones: names.len(),
            nodes: nodes.collect(),
        }
    }

    pub fn list(&self, key: &[u8], list: &mut List) {
        let key = self.hash.hash(self.seed, key);
        // An exponential draw per node, divided by its weight: the smallest wins.
        let draw = |node: u64, weight: f64| {
            let mixed = crate::zipf::mix(key, node);
            let part = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            -part.ln() / weight
        };
        if self.rf == 1 {
            let best = self
                .nodes
                .iter()
                .map(|(node, weight, _, handle)| (draw(*node, *weight), *handle))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            list.extend(best.map(|(_, handle)| handle));
            return;
        }
        let mut draws: Vec<_> = self
            .nodes
            .iter()
            .map(|(node, weight, zone, handle)| (draw(*node, *weight), *zone, *handle))
            .collect();
        draws.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut cap = self.rf.div_ceil(self.zones);
        let mut inside = vec![0; self.zones];
        while list.len() < self.rf {
            for (_, zone, handle) in &draws {
                if list.len() < self.rf && inside[*zone] < cap && !list.contains(handle) {
                    inside[*zone] += 1;
                    list.push(*handle);
                }
            }
            cap += 1;
        }
    }
}

/// Lamping, Veach, "A fast, minimal memory, consistent hash algorithm", 2014, figure 1.
pub fn jump(mut key: u64, buckets: u32) -> u32 {
    let (mut bucket, mut next) = (0_i64, 0_i64);
    while next < i64::from(buckets) {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let part = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * part) as i64;
    }
    bucket as u32
}

/// The weighted ketama of libmemcached: 160 points a node on a circle of u32, four from each MD5.
#[derive(Debug)]
pub struct Ketama {
    points: Vec<(u32, Handle)>,
}

impl Ketama {
    pub fn new(nodes: &[Node]) -> Self {
        let total: f64 = nodes.iter().map(|node| f64::from(node.weight.get())).sum();
        let mut points = Vec::new();
        for node in nodes {
            let share = f64::from(node.weight.get()) / total;
            // libmemcached's own rounding, with its epsilon.
            let hashes = (share * 40.0 * nodes.len() as f64 + 0.000_000_000_1).floor() as u32;
            for i in 0..hashes {
                let digest = Md5::digest(format!("{}-{i}", node.name));
                for part in digest.chunks_exact(4) {
                    points.push((word(part), node.handle));
                }
            }
        }
        points.sort_unstable();
        Self { points }
    }

    pub fn owner(&self, key: &[u8]) -> Handle {
        let hash = word(&Md5::digest(key)[..4]);
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points[at % self.points.len()].1
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
