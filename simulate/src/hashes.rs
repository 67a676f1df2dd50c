//! `annulus compare --hashes`: what the choice of a hash does to points and to keys.

use std::path::Path;

use serde::Serialize;

use crate::{
    InputError, chart,
    cluster::Nodes,
    fair,
    hash::Hash,
    keys::{Source, Totals},
    layout::{Layout, Map, Settings},
    measure::Balance,
    progress::Progress,
    table::{Report, Table},
    text::{grouped, percent},
};

/// Points per unit of weight of the rings that are drawn.
const POINTS: u32 = 160;
/// Slots that keys are dealt to: 2^14.
const SLOT_BITS: u32 = 14;

/// How hashes compare.
#[derive(Clone, Debug, Serialize)]
pub struct HashComparison {
    /// Nodes of each ring.
    pub nodes: usize,
    /// Rings per hash, each with another seed.
    pub rings: u32,
    /// Where keys come from.
    pub source: String,
    /// What that held.
    pub totals: Totals,
    /// One by one.
    pub hashes: Vec<Hashed>,
}

/// One hash.
#[derive(Clone, Debug, Serialize)]
pub struct Hashed {
    /// Its name.
    pub name: String,
    /// Whether a layout may name it.
    pub offered: bool,
    /// Mean over all rings of the fullest owner's share of the circle over its fair share.
    pub ring_max_over_mean: f64,
    /// The worst ring's.
    pub ring_worst: f64,
    /// Mean over all rings of the coefficient of variation.
    pub ring_cv: f64,
    /// Variance over mean of the keys in 2^14 slots: 1 as by chance, more if they lump.
    pub lumpiness: f64,
    /// Slots of 2^14 without a key.
    pub empty_slots: u64,
    /// Largest change of any output bit's chance from one half when one input bit turns.
    pub avalanche_bias: f64,
    /// ns per key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<f64>,
}

/// Compares hashes over `nodes` and the keys of `source`.
///
/// # Errors
/// [`InputError`].
pub fn compare(
    nodes: &Nodes,
    source: &Source,
    rings: u32,
    timing: bool,
    progress: &dyn Progress,
) -> Result<HashComparison, InputError> {
    let all = Hash::all();
    let mut slots = vec![vec![0_u64; 1 << SLOT_BITS]; all.len()];
    let mut sample: Vec<Vec<u8>> = Vec::new();
    let totals = source.visit(progress, |record| {
        if sample.len() < 1 << 16 {
            sample.push(record.key.to_vec());
        }
        if record.first {
            for (hash, slots) in all.iter().zip(&mut slots) {
                slots[(hash.hash(0, record.key) >> (64 - SLOT_BITS)) as usize] += 1;
            }
        }
    })?;
    let mut hashes = Vec::new();
    progress.start("rings", Some(all.len() as u64));
    for (done, (hash, slots)) in (1..).zip(all.iter().zip(&slots)) {
        let drawn = draw(nodes, *hash, POINTS, rings)?;
        hashes.push(Hashed {
            name: hash.to_string(),
            offered: matches!(hash, Hash::Named(_)),
            ring_max_over_mean: drawn.mean(|balance| balance.max_over_mean),
            ring_worst: drawn.highest(|balance| balance.max_over_mean),
            ring_cv: drawn.mean(|balance| balance.cv),
            lumpiness: lumpiness(slots),
            empty_slots: slots.iter().filter(|count| **count == 0).count() as u64,
            avalanche_bias: avalanche_bias(*hash, &sample),
            ns: timing.then(|| time(*hash, &sample)),
        });
        progress.at(done);
    }
    Ok(HashComparison {
        nodes: nodes.len(),
        rings,
        source: source.describe(),
        totals,
        hashes,
    })
}

/// The balance of many rings that differ only in their seed, measured by the circle itself.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// One a ring.
    pub balances: Vec<Balance>,
    /// The nodes' shares of the circle, one list a ring.
    pub shares: Vec<Vec<f64>>,
}

impl Drawn {
    /// Mean of one figure.
    pub fn mean(&self, of: impl Fn(&Balance) -> f64) -> f64 {
        self.balances.iter().map(of).sum::<f64>() / self.balances.len() as f64
    }

    /// Highest of one figure.
    pub fn highest(&self, of: impl Fn(&Balance) -> f64) -> f64 {
        self.balances.iter().map(of).fold(0.0, f64::max)
    }

    /// Part of the rings for which something holds.
    pub fn part(&self, holds: impl Fn(&Balance) -> bool) -> f64 {
        let count = self
            .balances
            .iter()
            .filter(|balance| holds(balance))
            .count();
        count as f64 / self.balances.len() as f64
    }
}

/// Draws `rings` rings of `points` points per unit of weight.
///
/// # Errors
/// [`InputError::Layout`] for more tokens than a map may have.
pub fn draw(nodes: &Nodes, hash: Hash, points: u32, rings: u32) -> Result<Drawn, InputError> {
    let owners = fair::owners(nodes);
    let mut drawn = Drawn {
        balances: Vec::new(),
        shares: Vec::new(),
    };
    for ring in 0..rings {
        let settings = Settings {
            layout: Layout::Tokens { per_weight: points },
            hash,
            seed: ring.into(),
            rf: 1,
        };
        let Map::Ring(map) = Map::build(settings, nodes, None)? else {
            continue;
        };
        let shares = map.shares(nodes);
        let eligible = shares.iter().zip(&owners).filter(|(_, fair)| **fair > 0.0);
        let ratios: Vec<f64> = eligible.map(|(share, fair)| share / fair).collect();
        drawn.balances.push(Balance::of_ratios(&ratios));
        drawn.shares.push(shares);
    }
    Ok(drawn)
}

fn lumpiness(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let variance = counts
        .iter()
        .map(|count| (*count as f64 - mean).powi(2))
        .sum::<f64>();
    variance / counts.len() as f64 / mean.max(f64::MIN_POSITIVE)
}

/// Turns the lowest bit of the last byte of up to 4,096 keys and looks how often each of the top
/// 16 bits of the hash, those that choose a slot, turns with it.
fn avalanche_bias(hash: Hash, sample: &[Vec<u8>]) -> f64 {
    let mut turned = [0_u32; 16];
    let keys = sample.iter().filter(|key| !key.is_empty()).take(4_096);
    let mut count = 0;
    for key in keys {
        let mut other = key.clone();
        *other.last_mut().expect("empty keys are left out") ^= 1;
        let change = hash.hash(0, key) ^ hash.hash(0, &other);
        for (bit, turned) in turned.iter_mut().enumerate() {
            *turned += u32::from(change >> (63 - bit) & 1 == 1);
        }
        count += 1;
    }
    let bias = turned
        .iter()
        .map(|turned| (f64::from(*turned) / f64::from(count.max(1)) - 0.5).abs());
    bias.fold(0.0, f64::max)
}

fn time(hash: Hash, sample: &[Vec<u8>]) -> f64 {
    let round = || {
        let start = std::time::Instant::now();
        for key in sample {
            std::hint::black_box(hash.hash(0, std::hint::black_box(key)));
        }
        start.elapsed().as_nanos() as f64 / sample.len().max(1) as f64
    };
    (0..3).map(|_| round()).fold(f64::INFINITY, f64::min)
}

impl Report for HashComparison {
    fn tables(&self) -> Vec<Table> {
        let title = format!(
            "Hashes: {} rings of {} nodes with {POINTS} points each; {}, {} keys",
            self.rings,
            self.nodes,
            self.source,
            grouped(self.totals.keys)
        );
        let mut header = vec![
            "HASH",
            "OFFERED",
            "RING MAX/MEAN",
            "WORST RING",
            "RING CV",
            "KEYS LUMP",
            "EMPTY SLOTS",
            "LAST BIT",
        ];
        let timed = self.hashes.iter().any(|hash| hash.ns.is_some());
        if timed {
            header.push("NS");
        }
        let mut table = Table::new(title, &header);
        for hash in &self.hashes {
            let mut cells = vec![
                hash.name.clone(),
                if hash.offered { "yes" } else { "no" }.to_owned(),
                format!("{:.3}", hash.ring_max_over_mean),
                format!("{:.3}", hash.ring_worst),
                percent(hash.ring_cv),
                format!("{:.2}", hash.lumpiness),
                grouped(hash.empty_slots),
                format!("{:.3}", hash.avalanche_bias),
            ];
            if let Some(ns) = hash.ns {
                cells.push(format!("{ns:.1}"));
            }
            table.row(cells);
        }
        table.note("ring: the circle's own shares, no keys. Keys lump: variance over mean of keys in 2^14 slots, 1 as");
        table.note("by chance. Last bit: how far the top 16 bits are from turning half the time when a key's last");
        table.note("bit turns; 0 is good, 0.5 is not at all. Points and keys that differ at their ends stay side by");
        table.note("side under bare FNV-1a: it overloads nodes, and is not offered.");
        vec![table]
    }

    fn charts(&self, directory: &Path) -> Result<Vec<String>, InputError> {
        chart::hashes(self, directory)
    }
}
