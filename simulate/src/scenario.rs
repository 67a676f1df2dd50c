//! What can be asked: options from flags or a file, checked into a plan.

use std::path::{Path, PathBuf};

use annulus_ring::{Handle, NodeId, Weight, Zone};
use serde::Deserialize;

use crate::{
    InputError,
    cluster::{self, Event, Node, Nodes},
    error::setting,
    hash::Hash,
    keys::{KeyList, Popularity, Sizes, Source, Synthetic},
    layout::{Layout, Settings},
};

/// Keys where nothing else is said.
pub const DEFAULT_KEYS: u64 = 1_000_000;
/// The exponent of Zipf's law where nothing else is said, that of YCSB.
pub const DEFAULT_ZIPF: f64 = 0.99;
/// What happens where nothing else is said: one of each kind.
pub const DEFAULT_EVENTS: [&str; 5] =
    ["join +1", "drain n1", "fail n2", "weight n3 2", "flap n4 3"];
/// Longest scenario file, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Everything that may be said, by flag or in a TOML file under the same name. What is not said
/// has the default named here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Nodes n1, n2, ..; 12.
    pub nodes: Option<usize>,
    /// Zones that they are dealt out to; 3, or as many as nodes if fewer.
    pub zones: Option<usize>,
    /// Their weights, repeated; 1.
    pub weights: Option<Vec<u32>>,
    /// Nodes one by one instead, each with a name, a zone and a weight.
    pub node: Vec<NodeEntry>,
    /// The layout; slots.
    pub layout: Option<String>,
    /// k of slots; 14.
    pub slot_bits: Option<u8>,
    /// Tokens per unit of weight; 256.
    pub tokens: Option<u32>,
    /// Hash of keys; xxh3-64.
    pub hash: Option<String>,
    /// Seed of keys, sizes and hash; 0.
    pub seed: Option<u64>,
    /// Replicas of a key; 3 for layouts that have replicas, no more than nodes; else 1.
    pub rf: Option<u8>,
    /// What happens, in order; one of each kind.
    pub events: Option<Vec<String>>,
    /// Synthetic keys; 1,000,000.
    pub key_count: Option<u64>,
    /// Synthetic keys are user:1, user:2, ..; false.
    pub sequential: Option<bool>,
    /// A file of keys instead.
    pub keys: Option<PathBuf>,
    /// A trace instead.
    pub trace: Option<PathBuf>,
    /// Exponent of popularity, 0 for uniform; 0.99.
    pub zipf: Option<f64>,
    /// Requests over all keys; ten a key.
    pub requests: Option<u64>,
    /// Size of values, "1024" or "64..16384"; 1024.
    pub value_bytes: Option<String>,
    /// Reads a second of a cache; without it the cache is left out.
    pub reads_per_second: Option<f64>,
    /// Which part of them hits, before anything happens; 0.94.
    pub hit_ratio: Option<f64>,
}

/// One node of a scenario file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its name.
    pub name: NodeId,
    /// Its zone; z1.
    pub zone: Option<Zone>,
    /// Its weight; 1.
    pub weight: Option<u32>,
}

/// A cache in front of a store.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Cache {
    /// Reads per second.
    pub reads_per_second: f64,
    /// Which part hits.
    pub hit_ratio: f64,
}

/// Checked options.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Who is there at first.
    pub nodes: Nodes,
    /// How keys are laid out.
    pub settings: Settings,
    /// What happens then.
    pub events: Vec<Event>,
    /// Where keys come from.
    pub source: Source,
    /// The cache, if it is one.
    pub cache: Option<Cache>,
}

impl Options {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`InputError::File`], or [`InputError::Scenario`] with the line.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let shown = path.display().to_string();
        let refused = |source| InputError::File {
            path: shown.clone(),
            source,
        };
        let length = std::fs::metadata(path).map_err(refused)?.len();
        if length > MAX_FILE_BYTES {
            let message = format!("{length} bytes, at most {MAX_FILE_BYTES} are read");
            return Err(InputError::Scenario {
                path: shown,
                message,
            });
        }
        let text = std::fs::read_to_string(path).map_err(refused)?;
        toml::from_str(&text).map_err(|error| InputError::Scenario {
            path: shown,
            message: error.to_string().trim_end().replace('\n', "\n    "),
        })
    }

    /// What is said here; where nothing is, what `base` says.
    #[must_use]
    pub fn or(self, base: Self) -> Self {
        // Nodes are said in two ways, keys in three: saying one takes back the others.
        let regular = self.nodes.is_some() || self.zones.is_some() || self.weights.is_some();
        let own_keys = self.keys.is_some() || self.trace.is_some() || self.key_count.is_some();
        let base_keys = |value| if own_keys { None } else { value };
        Self {
            nodes: self.nodes.or(base.nodes),
            zones: self.zones.or(base.zones),
            weights: self.weights.or(base.weights),
            node: if regular || !self.node.is_empty() {
                self.node
            } else {
                base.node
            },
            layout: self.layout.or(base.layout),
            slot_bits: self.slot_bits.or(base.slot_bits),
            tokens: self.tokens.or(base.tokens),
            hash: self.hash.or(base.hash),
            seed: self.seed.or(base.seed),
            rf: self.rf.or(base.rf),
            events: self.events.or(base.events),
            key_count: self
                .key_count
                .or(if own_keys { None } else { base.key_count }),
            sequential: self.sequential.or(base.sequential),
            keys: self.keys.or(base_keys(base.keys)),
            trace: self.trace.or(base_keys(base.trace)),
            zipf: self.zipf.or(base.zipf),
            requests: self.requests.or(base.requests),
            value_bytes: self.value_bytes.or(base.value_bytes),
            reads_per_second: self.reads_per_second.or(base.reads_per_second),
            hit_ratio: self.hit_ratio.or(base.hit_ratio),
        }
    }

    /// Checks everything.
    ///
    /// # Errors
    /// [`InputError`]: the first thing that makes no sense.
    pub fn plan(&self) -> Result<Plan, InputError> {
        let nodes = self.node_list()?;
        let layout = Layout::parse(
            self.layout.as_deref().unwrap_or("slots"),
            self.slot_bits.unwrap_or(14),
            self.tokens.unwrap_or(256),
        )?;
        let usual = if layout.replicates() {
            nodes.len().min(3) as u8
        } else {
            1
        };
        let settings = Settings {
            layout,
            hash: Hash::parse(self.hash.as_deref().unwrap_or("xxh3-64"))?,
            seed: self.seed.unwrap_or(0),
            rf: self.rf.unwrap_or(usual),
        };
        let events = match &self.events {
            Some(texts) => texts
                .iter()
                .map(|text| text.parse())
                .collect::<Result<_, _>>()?,
            None => self.usual_events(&nodes, layout),
        };
        Ok(Plan {
            nodes,
            settings,
            events,
            source: self.source()?,
            cache: self.cache()?,
        })
    }

    /// One event of each kind that the layout can have.
    fn usual_events(&self, nodes: &Nodes, layout: Layout) -> Vec<Event> {
        let exists = |event: &Event| {
            use cluster::Happening::{Drain, Fail, Flap, Join, Reweigh};
            event.happenings.iter().all(|happening| match happening {
                Join { .. } => true,
                Reweigh(..) if !layout.weighs() => false,
                Drain(name) | Fail(name) | Flap(name, _) | Reweigh(name, _) => {
                    nodes.len() > 4 && nodes.iter().any(|node| node.name == *name)
                }
            })
        };
        DEFAULT_EVENTS
            .iter()
            .map(|text| text.parse::<Event>().expect("the defaults are events"))
            .filter(exists)
            .collect()
    }

    fn node_list(&self) -> Result<Nodes, InputError> {
        if self.node.is_empty() {
            let count = self.nodes.unwrap_or(12);
            let zones = self.zones.unwrap_or(3.min(count));
            return cluster::regular(count, zones, self.weights.as_deref().unwrap_or(&[1]));
        }
        if self.nodes.is_some() || self.zones.is_some() || self.weights.is_some() {
            let expected = "either nodes, zones and weights, or [[node]] one by one";
            return Err(setting("nodes", "said in both ways", expected));
        }
        if self.node.len() > annulus_ring::node::MAX_MEMBERS {
            return Err(setting("[[node]]", self.node.len(), "1 to 10,000"));
        }
        let mut names = std::collections::BTreeSet::new();
        let one = |(at, entry): (usize, &NodeEntry)| {
            if !names.insert(entry.name.clone()) {
                return Err(setting(
                    "[[node]]",
                    format!("{} twice", entry.name),
                    "each name once",
                ));
            }
            let zone = entry.zone.clone();
            Ok(Node {
                handle: Handle(at as u16),
                name: entry.name.clone(),
                zone: zone.unwrap_or_else(|| Zone::new("z1").expect("a name")),
                weight: cluster::checked(entry.weight.unwrap_or(1))?,
            })
        };
        let nodes: Nodes = self
            .node
            .iter()
            .enumerate()
            .map(one)
            .collect::<Result<_, _>>()?;
        if nodes.iter().all(|node| node.weight == Weight::ZERO) {
            return Err(setting("weights", "all 0", "at least one node with weight"));
        }
        Ok(nodes)
    }

    /// Where keys come from.
    ///
    /// # Errors
    /// [`InputError::Setting`].
    pub fn source(&self) -> Result<Source, InputError> {
        let said = [
            self.keys.is_some(),
            self.trace.is_some(),
            self.key_count.is_some(),
        ];
        if said.into_iter().filter(|said| *said).count() > 1 {
            let expected = "one of --keys, --trace and --key-count";
            return Err(setting("keys", "said in more than one way", expected));
        }
        if let Some(path) = &self.trace {
            return Ok(Source::Trace(path.clone()));
        }
        let popularity = match self.zipf.unwrap_or(DEFAULT_ZIPF) {
            0.0 => Popularity::Uniform,
            exponent => Popularity::Zipf(exponent),
        };
        let sizes = self.sizes()?;
        let seed = self.seed.unwrap_or(0);
        if let Some(path) = &self.keys {
            let list = KeyList {
                path: path.clone(),
                seed,
                popularity,
                requests: self.requests.unwrap_or(0),
                sizes,
            };
            crate::keys::check_weights(list.requests, popularity, sizes)?;
            return Ok(Source::Keys(list));
        }
        let count = self.key_count.unwrap_or(DEFAULT_KEYS);
        let synthetic = Synthetic {
            count,
            seed,
            popularity,
            requests: self.requests.unwrap_or(count.saturating_mul(10)),
            sizes,
            sequential: self.sequential.unwrap_or(false),
        };
        synthetic.check()?;
        Ok(Source::Synthetic(synthetic))
    }

    fn sizes(&self) -> Result<Sizes, InputError> {
        let text = self.value_bytes.as_deref().unwrap_or("1024");
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let number = |part: &str| {
            part.trim()
                .parse::<u64>()
                .ok()
                .filter(|bytes| *bytes < crate::keys::MAX_SUM)
                .ok_or_else(|| {
                    setting("--value-bytes", format!("{text:?}"), "BYTES or LEAST..MOST")
                })
        };
        Ok(Sizes {
            least: number(least)?,
            most: number(most)?,
        })
    }

    fn cache(&self) -> Result<Option<Cache>, InputError> {
        let hit_ratio = self.hit_ratio.unwrap_or(0.94);
        if !(0.0..1.0).contains(&hit_ratio) {
            return Err(setting("--hit-ratio", hit_ratio, "0 or more and below 1"));
        }
        let Some(reads_per_second) = self.reads_per_second else {
            return match self.hit_ratio {
                Some(ratio) => Err(setting(
                    "--hit-ratio",
                    ratio,
                    "--reads-per-second beside it",
                )),
                None => Ok(None),
            };
        };
        if !reads_per_second.is_finite() || reads_per_second <= 0.0 {
            return Err(setting(
                "--reads-per-second",
                reads_per_second,
                "more than 0",
            ));
        }
        Ok(Some(Cache {
            reads_per_second,
            hit_ratio,
        }))
    }
}
