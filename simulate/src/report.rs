//! `annulus simulate`: a plan carried out, and what came of it.

use std::path::Path;

use serde::Serialize;

use crate::{
    InputError, chart,
    cluster::{self, Node, Nodes},
    fair,
    keys::Totals,
    layout::{Layout, Map, Settings},
    measure::{self, Balance, Load, Losses, Measured, Movement, Stage},
    progress::Progress,
    scenario::{Cache, Plan},
    table::{Report, Table},
    text::{bytes, grouped, percent, ratio},
};

/// Moments after a change at which the store's load is told, in seconds.
pub const MOMENTS: [f64; 9] = [
    0.0, 1.0, 10.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 14_400.0,
];
/// Tokens per unit of weight that are tried.
const SWEEP_TOKENS: [u32; 9] = [1, 4, 16, 64, 100, 160, 256, 512, 1_024];
/// k that are tried, as far as nodes need and slots suffice.
const SWEEP_BITS: [u8; 7] = [6, 8, 10, 12, 14, 15, 16];
/// Shares of so many nodes are printed; JSON and CSV have all.
const SHOWN_NODES: usize = 24;

/// What is measured beside the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extras {
    /// More and fewer slots and tokens.
    pub sweep: bool,
    /// Lookup times, the one thing that differs from run to run.
    pub timing: bool,
}

/// What came of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Simulation {
    /// What was asked.
    pub run: Run,
    /// Balance before the first event and after the last.
    pub balance: Vec<Evenness>,
    /// What each event moved.
    pub events: Vec<Moved>,
    /// The losses of nodes and zones, before the first event.
    pub losses: Vec<Lost>,
    /// What a cache's store feels, per event.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cache: Vec<Felt>,
    /// More and fewer slots and tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Swept>,
    /// The key that is asked for most.
    pub hot_key: Hot,
    /// Shares by node, before the first event and after the last.
    pub nodes: Vec<Share>,
    /// Shares by zone, before the first event.
    pub zones: Vec<ZoneShare>,
}

/// What was asked.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The layout with its size.
    pub layout: String,
    /// Hash of keys.
    pub hash: String,
    /// Replicas of a key.
    pub rf: u8,
    /// Nodes at first.
    pub nodes: usize,
    /// Zones at first.
    pub zones: usize,
    /// Where keys come from.
    pub source: String,
    /// What that held.
    pub totals: Totals,
    /// The cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Bytes of a snapshot, estimated from the layout.
    pub snapshot_bytes_estimate: u64,
    /// ns per lookup with its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup_ns: Option<f64>,
    /// Lists that reach fewer zones than they could, in keys per million of the sample.
    pub unspread_keys: u64,
}

/// How even it is.
#[derive(Clone, Debug, Serialize)]
pub struct Evenness {
    /// "before" or "after".
    pub name: String,
    /// Owners, by keys.
    pub owned_keys: Balance,
    /// Owners, by bytes.
    pub owned_bytes: Balance,
    /// Owners, by requests.
    pub requests: Balance,
    /// All replicas, by keys, against a node's fair share within its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_keys: Option<Balance>,
}

/// What an event moved.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// The event as written.
    pub name: String,
    /// Nodes afterwards.
    pub nodes: usize,
    /// Keys with another owner, as a part of all.
    pub keys: f64,
    /// The least that fair shares need.
    pub least: f64,
    /// The one over the other, where anything had to move.
    pub over_least: Option<f64>,
    /// Bytes with another owner.
    #[serde(serialize_with = "wide")]
    pub bytes: u64,
    /// New (key, replica) pairs per key: what is copied.
    pub copies: f64,
    /// The least that fair shares need.
    pub least_copies: f64,
    /// The one over the other.
    pub copies_over_least: Option<f64>,
    /// Bytes copied.
    #[serde(serialize_with = "wide")]
    pub copied_bytes: u64,
    /// Bytes that tell a client, estimated from the layout.
    pub delta_bytes_estimate: u64,
    /// Fullest owner over its fair share afterwards, by keys.
    pub max_over_mean: f64,
}

/// What is lost with a node or a zone.
#[derive(Clone, Debug, Serialize)]
pub struct Lost {
    /// "node n1" or "zone z1".
    pub name: String,
    /// Part of the requests whose owner is lost.
    pub requests: f64,
    /// Part of the keys without a copy left.
    pub gone_keys: f64,
    /// Bytes without a copy left.
    pub gone_bytes: u64,
    /// Part of the keys with fewer copies left than a majority of rf.
    pub unwritable_keys: f64,
    /// The busiest survivor's requests over its fair share, when the next of each list serves.
    pub busiest_survivor: Option<f64>,
}

/// What the store behind a cache feels.
#[derive(Clone, Debug, Serialize)]
pub struct Felt {
    /// The event.
    pub name: String,
    /// Part of the reads that find their key cold at first.
    pub cold_reads: f64,
    /// Extra misses per second right after it.
    pub extra_misses_per_second: f64,
    /// All the store's reads over those before.
    pub factor: f64,
    /// Keys loaded again, if each is asked for.
    pub cold_keys: u64,
    /// The factor later on.
    pub later: Vec<Later>,
}

/// The store's load at a moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Later {
    /// After the change.
    pub seconds: f64,
    /// All the store's reads over those before.
    pub factor: f64,
}

/// What more or fewer pieces bring.
#[derive(Clone, Debug, Serialize)]
pub struct Swept {
    /// "slots" or "tokens".
    pub name: String,
    /// 2^k, or tokens per unit of weight.
    pub pieces: u64,
    /// Pieces per node.
    pub per_node: f64,
    /// Owners by keys.
    pub keys: Balance,
    /// Fullest owner by requests.
    pub requests_max_over_mean: f64,
    /// Bytes of a snapshot, estimated.
    pub snapshot_bytes_estimate: u64,
}

/// The hottest key.
#[derive(Clone, Debug, Serialize)]
pub struct Hot {
    /// It, as text where it is text.
    pub key: String,
    /// Its part of all requests.
    pub share: f64,
    /// Its requests over a node's fair share: no layout gets the busiest owner below it.
    pub floor: f64,
    /// Who owns it at first.
    pub owner: String,
    /// The busiest owner's requests over its fair share.
    pub busiest: f64,
    /// Nodes that the key alone would keep busy, at a fair share each.
    pub nodes_needed: u64,
}

/// Sums over events or replicas may exceed 2^53, which JSON readers bend: a string.
fn wide<S: serde::Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// A node's share.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The node.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Its weight at first.
    pub weight: u32,
    /// Owned keys over the fair share, at first; nothing if it was not there.
    pub before: Option<f64>,
    /// The same after the last event.
    pub after: Option<f64>,
    /// Part of the keys owned at first.
    pub owned_keys: f64,
    /// Bytes owned at first.
    pub owned_bytes: u64,
    /// Part of the requests at first.
    pub requests: f64,
    /// Bytes held at first, as owner or not.
    #[serde(serialize_with = "wide")]
    pub held_bytes: u64,
}

/// A zone's share.
#[derive(Clone, Debug, Serialize)]
pub struct ZoneShare {
    /// The zone.
    pub name: String,
    /// Its nodes.
    pub nodes: usize,
    /// Part of the keys owned.
    pub owned_keys: f64,
    /// Part of the requests.
    pub requests: f64,
    /// Replicas per key.
    pub held: f64,
    /// Replicas per key that zones and weights ask for.
    pub fair: f64,
}

/// Carries a plan out.
///
/// # Errors
/// [`InputError`]: an event that cannot happen, a layout that cannot do it, or a bad line.
pub fn simulate(
    plan: &Plan,
    extras: Extras,
    progress: &dyn Progress,
) -> Result<Simulation, InputError> {
    let (stages, spans) = stages(plan, progress)?;
    let swept = if extras.sweep {
        sweep(plan, progress)?
    } else {
        Vec::new()
    };
    let others: Vec<Stage> = swept.into_iter().map(|(_, stage)| stage).collect();
    let measured = measure::measure(&plan.source, &stages, &others, plan.settings.rf, progress)?;
    let world = World {
        plan,
        stages: &stages,
        others: &others,
        measured: &measured,
    };
    let timing = || measure::lookup_ns(&stages[0].map, &measured.sample, 3);
    let last = stages.len() - 1;
    let mut balance = vec![world.evenness("before", 0)];
    if last > 0 {
        balance.push(world.evenness("after", last));
    }
    Ok(Simulation {
        run: world.run(extras.timing.then(timing)),
        balance,
        events: world.events(&spans),
        losses: world.losses(),
        cache: world.cache(&spans),
        sweep: world.swept(),
        hot_key: world.hot(),
        nodes: world.shares(),
        zones: world.zones(),
    })
}

/// The first and the last step of an event.
type Span = (usize, usize);

/// The maps in time, and for each event the first and last step (from before to after).
fn stages(plan: &Plan, progress: &dyn Progress) -> Result<(Vec<Stage>, Vec<Span>), InputError> {
    progress.start("maps", Some(plan.events.len() as u64 + 1));
    let map = Map::build(plan.settings, &plan.nodes, None)?;
    let mut stages = vec![Stage {
        nodes: plan.nodes.clone(),
        map,
    }];
    let mut spans = Vec::new();
    let mut next_handle = plan.nodes.len() as u16;
    for (done, event) in (1..).zip(&plan.events) {
        progress.at(done);
        let before = stages.len() - 1;
        for nodes in cluster::after(&stages[before].nodes, &mut next_handle, event)? {
            let previous = stages.last().map(|stage| &stage.map);
            let map = Map::build(plan.settings, &nodes, previous)?;
            stages.push(Stage { nodes, map });
            if stages.len() > cluster::MAX_STEPS {
                return Err(InputError::Event {
                    text: event.text.clone(),
                    problem: format!("more than {} steps in all", cluster::MAX_STEPS),
                });
            }
        }
        spans.push((before, stages.len() - 1));
    }
    Ok((stages, spans))
}

/// Maps with more and fewer pieces over the first nodes.
fn sweep(plan: &Plan, progress: &dyn Progress) -> Result<Vec<(Layout, Stage)>, InputError> {
    let weights: u64 = plan
        .nodes
        .iter()
        .map(|node| u64::from(node.weight.get()))
        .sum();
    let slots = SWEEP_BITS
        .into_iter()
        .filter(|bits| 1 << bits >= plan.nodes.len())
        .map(|bits| Layout::Slots { bits });
    // A sweep is a side show: it may not need more tokens than the ring that is asked about.
    let tokens = SWEEP_TOKENS
        .into_iter()
        .filter(|tokens| weights * u64::from(*tokens) <= 1 << 20)
        .map(|per_weight| Layout::Tokens { per_weight });
    let layouts: Vec<Layout> = slots.chain(tokens).collect();
    progress.start(
        "more and fewer slots and tokens",
        Some(layouts.len() as u64),
    );
    let mut maps = Vec::new();
    for (done, layout) in (1..).zip(layouts) {
        let settings = Settings {
            layout,
            ..plan.settings
        };
        let map = Map::build(settings, &plan.nodes, None)?;
        let nodes = plan.nodes.clone();
        maps.push((layout, Stage { nodes, map }));
        progress.at(done);
    }
    Ok(maps)
}

/// All that is known when a report is written.
struct World<'a> {
    plan: &'a Plan,
    stages: &'a [Stage],
    others: &'a [Stage],
    measured: &'a Measured,
}

fn part(count: u64, whole: u64) -> f64 {
    count as f64 / whole.max(1) as f64
}

fn over(found: f64, least: f64) -> Option<f64> {
    (least > 1e-9).then(|| found / least)
}

impl World<'_> {
    fn totals(&self) -> Totals {
        self.measured.totals
    }

    fn run(&self, lookup_ns: Option<f64>) -> Run {
        let Stage { nodes, map } = &self.stages[0];
        Run {
            layout: self.plan.settings.layout.to_string(),
            hash: hash_name(self.plan.settings),
            rf: self.plan.settings.rf,
            nodes: nodes.len(),
            zones: zone_names(nodes).len(),
            source: self.plan.source.describe(),
            totals: self.totals(),
            cache: self.plan.cache,
            snapshot_bytes_estimate: map.snapshot_bytes(nodes),
            lookup_ns,
            unspread_keys: self.unspread(),
        }
    }

    /// Keys of the sample whose lists reach fewer zones than possible, per million.
    fn unspread(&self) -> u64 {
        let Stage { nodes, map } = &self.stages[0];
        let eligible: Vec<&Node> = nodes.iter().filter(|node| node.weight.get() > 0).collect();
        let mut zones: Vec<_> = eligible.iter().map(|node| &node.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        let best = zones
            .len()
            .min(usize::from(self.plan.settings.rf))
            .min(eligible.len());
        let zone_of: std::collections::BTreeMap<_, _> =
            nodes.iter().map(|node| (node.handle, &node.zone)).collect();
        let mut list = annulus_ring::List::new();
        let short = self.measured.sample.iter().filter(|key| {
            map.list(key, &mut list);
            let mut reached: Vec<_> = list
                .iter()
                .filter_map(|handle| zone_of.get(handle))
                .collect();
            reached.sort_unstable();
            reached.dedup();
            reached.len() < best
        });
        let short = short.count() as u64;
        short * 1_000_000 / (self.measured.sample.len() as u64).max(1)
    }

    fn fair_replicas(&self, nodes: &[Node]) -> Vec<f64> {
        fair::replicas(nodes, usize::from(self.plan.settings.rf), true)
    }

    fn evenness(&self, name: &str, stage: usize) -> Evenness {
        let (nodes, load) = (&self.stages[stage].nodes, &self.measured.loads[stage]);
        let owners = fair::owners(nodes);
        let held = || Balance::of(&load.held_keys, nodes, &self.fair_replicas(nodes));
        Evenness {
            name: name.to_owned(),
            owned_keys: Balance::of(&load.keys, nodes, &owners),
            owned_bytes: Balance::of(&load.bytes, nodes, &owners),
            requests: Balance::of(&load.requests, nodes, &owners),
            held_keys: (self.plan.settings.rf > 1).then(held),
        }
    }

    fn events(&self, spans: &[Span]) -> Vec<Moved> {
        let events = self.plan.events.iter().zip(spans);
        events
            .map(|(event, span)| self.moved(event.to_string(), *span))
            .collect()
    }

    fn moved(&self, name: String, (first, last): (usize, usize)) -> Moved {
        let totals = self.totals();
        let movements = &self.measured.movements[first..last];
        let sum = |of: fn(&Movement) -> u64| movements.iter().map(of).sum::<u64>();
        let (mut least, mut least_copies, mut delta) = (0.0, 0.0, 0);
        for pair in self.stages[first..=last].windows(2) {
            let (old, new) = (&pair[0].nodes, &pair[1].nodes);
            least += fair::least((old, &fair::owners(old)), (new, &fair::owners(new)));
            let shares = (self.fair_replicas(old), self.fair_replicas(new));
            least_copies += fair::least((old, &shares.0), (new, &shares.1));
            delta += pair[1].map.delta_bytes(&pair[0].map, (old, new));
        }
        let keys = part(sum(|movement| movement.keys), totals.keys);
        let copies = part(sum(|movement| movement.copies), totals.keys);
        let nodes = &self.stages[last].nodes;
        let balance = Balance::of(&self.measured.loads[last].keys, nodes, &fair::owners(nodes));
        Moved {
            name,
            nodes: nodes.len(),
            keys,
            least,
            over_least: over(keys, least),
            bytes: sum(|movement| movement.bytes),
            copies,
            least_copies,
            copies_over_least: over(copies, least_copies),
            copied_bytes: sum(|movement| movement.copied_bytes),
            delta_bytes_estimate: delta,
            max_over_mean: balance.max_over_mean,
        }
    }

    fn losses(&self) -> Vec<Lost> {
        let Losses {
            nodes: lost,
            zones,
            takeover,
        } = &self.measured.losses;
        let nodes = &self.stages[0].nodes;
        let totals = self.totals();
        let describe = |name: String, loss: &measure::Loss, busiest| Lost {
            name,
            requests: part(loss.requests, totals.requests),
            gone_keys: part(loss.gone_keys, totals.keys),
            gone_bytes: loss.gone_bytes,
            unwritable_keys: part(loss.unwritable_keys, totals.keys),
            busiest_survivor: busiest,
        };
        let mut losses: Vec<Lost> = nodes
            .iter()
            .map(|node| {
                let loss = &lost[node.handle.index()];
                let busiest = self.busiest_survivor(takeover, node);
                describe(format!("node {}", node.name), loss, busiest)
            })
            .collect();
        losses.extend(
            zones
                .iter()
                .map(|(zone, loss)| describe(format!("zone {zone}"), loss, None)),
        );
        losses
    }

    fn busiest_survivor(&self, takeover: &[u64], lost: &Node) -> Option<f64> {
        if takeover.is_empty() {
            return None;
        }
        let nodes = &self.stages[0].nodes;
        let load = &self.measured.loads[0];
        let row = &takeover[lost.handle.index() * load.keys.len()..][..load.keys.len()];
        let survivors: Vec<Node> = nodes
            .iter()
            .filter(|node| node.handle != lost.handle)
            .cloned()
            .collect();
        let counts: Vec<u64> = load
            .requests
            .iter()
            .zip(row)
            .map(|(own, more)| own + more)
            .collect();
        let balance = Balance::of(&counts, &survivors, &fair::owners(&survivors));
        Some(balance.max_over_mean)
    }

    fn cache(&self, spans: &[Span]) -> Vec<Felt> {
        let Some(cache) = self.plan.cache else {
            return Vec::new();
        };
        let events = self.plan.events.iter().zip(spans);
        // A flap is told by its first leaving: what follows hits a cache that is not warm yet.
        events
            .map(|(event, (first, _))| {
                self.felt(cache, event.to_string(), &self.measured.movements[*first])
            })
            .collect()
    }

    fn felt(&self, cache: Cache, name: String, movement: &Movement) -> Felt {
        let totals = self.totals();
        let base = cache.reads_per_second * (1.0 - cache.hit_ratio);
        let extra = |seconds| {
            let rate = cache.reads_per_second;
            cache.hit_ratio * movement.warmth.misses(seconds, rate, totals.requests)
        };
        let factor = |seconds| (base + extra(seconds)) / base;
        let later = |seconds: &f64| Later {
            seconds: *seconds,
            factor: factor(*seconds),
        };
        Felt {
            name,
            cold_reads: part(movement.cold_requests, totals.requests),
            extra_misses_per_second: extra(0.0),
            factor: factor(0.0),
            cold_keys: movement.keys,
            later: MOMENTS.iter().map(later).collect(),
        }
    }

    fn swept(&self) -> Vec<Swept> {
        let loads = &self.measured.loads[self.stages.len()..];
        self.others
            .iter()
            .zip(loads)
            .map(|(stage, load)| {
                let nodes = &stage.nodes;
                let owners = fair::owners(nodes);
                let (name, pieces, all) = match &stage.map {
                    Map::Slots { table, .. } => ("slots", table.slot_count(), table.slot_count()),
                    Map::Ring(ring) => {
                        let weights: usize =
                            nodes.iter().map(|node| node.weight.get() as usize).sum();
                        (
                            "tokens",
                            ring.token_count() / weights.max(1),
                            ring.token_count(),
                        )
                    }
                    _ => ("", 0, 0),
                };
                Swept {
                    name: name.to_owned(),
                    pieces: pieces as u64,
                    per_node: all as f64 / nodes.len() as f64,
                    keys: Balance::of(&load.keys, nodes, &owners),
                    requests_max_over_mean: Balance::of(&load.requests, nodes, &owners)
                        .max_over_mean,
                    snapshot_bytes_estimate: stage.map.snapshot_bytes(nodes),
                }
            })
            .collect()
    }

    fn hot(&self) -> Hot {
        let Stage { nodes, map } = &self.stages[0];
        let hottest = &self.measured.hottest;
        let mut list = annulus_ring::List::new();
        map.list(&hottest.key, &mut list);
        let at = nodes
            .iter()
            .position(|node| Some(&node.handle) == list.first());
        let owners = fair::owners(nodes);
        let fullest = owners.iter().copied().fold(0.0, f64::max);
        let share = part(hottest.requests, self.totals().requests);
        let load: &Load = &self.measured.loads[0];
        Hot {
            key: show_key(&hottest.key),
            share,
            // On the heaviest node at best.
            floor: share / fullest,
            owner: at.map_or_else(String::new, |at| nodes[at].name.to_string()),
            busiest: Balance::of(&load.requests, nodes, &owners).max_over_mean,
            nodes_needed: (share / fullest).ceil() as u64,
        }
    }

    fn shares(&self) -> Vec<Share> {
        let last = self.stages.len() - 1;
        let totals = self.totals();
        let ratio = |stage: usize, node: &Node| {
            let nodes = &self.stages[stage].nodes;
            let at = nodes.iter().position(|other| other.handle == node.handle)?;
            let fair = fair::owners(nodes)[at];
            let keys = self.measured.loads[stage].keys[node.handle.index()];
            (fair > 0.0).then(|| part(keys, totals.keys) / fair)
        };
        let mut all: Nodes = self.stages[0].nodes.clone();
        for node in &self.stages[last].nodes {
            if all.iter().all(|other| other.handle != node.handle) {
                all.push(node.clone());
            }
        }
        let load = &self.measured.loads[0];
        all.iter()
            .map(|node| {
                let at = node.handle.index();
                Share {
                    name: node.name.to_string(),
                    zone: node.zone.to_string(),
                    weight: node.weight.get(),
                    before: ratio(0, node),
                    after: ratio(last, node),
                    owned_keys: part(load.keys[at], totals.keys),
                    owned_bytes: load.bytes[at],
                    requests: part(load.requests[at], totals.requests),
                    held_bytes: load.held_bytes[at],
                }
            })
            .collect()
    }

    fn zones(&self) -> Vec<ZoneShare> {
        let nodes = &self.stages[0].nodes;
        let (load, totals) = (&self.measured.loads[0], self.totals());
        let fair = self.fair_replicas(nodes);
        zone_names(nodes)
            .into_iter()
            .map(|name| {
                let inside = || {
                    nodes
                        .iter()
                        .zip(&fair)
                        .filter(|(node, _)| node.zone.as_str() == name)
                };
                let sum =
                    |counts: &[u64]| inside().map(|(node, _)| counts[node.handle.index()]).sum();
                ZoneShare {
                    nodes: inside().count(),
                    owned_keys: part(sum(&load.keys), totals.keys),
                    requests: part(sum(&load.requests), totals.requests),
                    held: part(sum(&load.held_keys), totals.keys),
                    fair: inside().map(|(_, fair)| fair).sum(),
                    name,
                }
            })
            .collect()
    }
}

fn hash_name(settings: Settings) -> String {
    match settings.layout {
        Layout::RedisSlots => "crc16".to_owned(),
        Layout::Ketama => "md5".to_owned(),
        _ => settings.hash.to_string(),
    }
}

fn zone_names(nodes: &[Node]) -> Vec<String> {
    let mut names: Vec<_> = nodes.iter().map(|node| node.zone.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A key for people: as text if it is printable, else in hexadecimal; cut if it is long.
fn show_key(key: &[u8]) -> String {
    let text = match std::str::from_utf8(key) {
        Ok(text) if text.chars().all(|c| !c.is_control()) => text.to_owned(),
        _ => key
            .iter()
            .fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    };
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(57).chain("...".chars()).collect()
}

impl Report for Simulation {
    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.head(), self.event_table(), self.balance_table()];
        tables.push(self.zone_table());
        tables.push(self.loss_table());
        if !self.cache.is_empty() {
            tables.push(self.cache_table());
        }
        if !self.sweep.is_empty() {
            tables.push(self.sweep_table());
        }
        tables.push(self.hot_table());
        tables.push(self.node_table());
        tables
    }

    fn charts(&self, directory: &Path) -> Result<Vec<String>, InputError> {
        chart::simulation(self, directory)
    }
}

impl Simulation {
    fn head(&self) -> Table {
        let run = &self.run;
        let totals = run.totals;
        let mut table = Table::new(
            format!(
                "{}, {}, rf {}: {} nodes in {} zones",
                run.layout, run.hash, run.rf, run.nodes, run.zones
            ),
            &[],
        );
        table.note(format!(
            "{}: {} keys, {}, {} requests",
            run.source,
            grouped(totals.keys),
            bytes(totals.bytes as f64),
            grouped(totals.requests)
        ));
        if totals.repeated > 0 {
            table.note(format!(
                "{} lines name a key again: their requests are added, the key is counted once",
                grouped(totals.repeated)
            ));
        }
        if totals.empty_lines > 0 {
            table.note(format!(
                "{} empty lines are left out",
                grouped(totals.empty_lines)
            ));
        }
        if totals.repeats_unknown {
            table.note(format!(
                "more than {} distinct keys: repeats of later ones count as keys",
                grouped(crate::keys::MAX_REMEMBERED as u64)
            ));
        }
        let snapshot = bytes(run.snapshot_bytes_estimate as f64);
        table.note(match run.lookup_ns {
            Some(ns) => {
                format!("snapshot about {snapshot} (estimated); lookup {ns:.1} ns with its hash")
            }
            None => format!("snapshot about {snapshot} (estimated)"),
        });
        if run.unspread_keys > 0 {
            table.note(format!(
                "{} of a million keys reach fewer zones than they could",
                grouped(run.unspread_keys)
            ));
        }
        table
    }

    fn event_table(&self) -> Table {
        let replicas = self.run.rf > 1;
        let mut header = vec!["EVENT", "NODES", "MOVED", "LEAST", "X LEAST", "BYTES"];
        if replicas {
            header.extend(["COPIES/KEY", "LEAST", "X LEAST", "COPIED"]);
        }
        header.extend(["DELTA", "MAX/MEAN"]);
        let mut table = Table::new("What each event moves", &header);
        for event in &self.events {
            let mut cells = vec![
                event.name.clone(),
                event.nodes.to_string(),
                percent(event.keys),
                percent(event.least),
                ratio(event.over_least),
                bytes(event.bytes as f64),
            ];
            if replicas {
                cells.extend([
                    format!("{:.4}", event.copies),
                    format!("{:.4}", event.least_copies),
                    ratio(event.copies_over_least),
                    bytes(event.copied_bytes as f64),
                ]);
            }
            cells.push(bytes(event.delta_bytes_estimate as f64));
            cells.push(format!("{:.3}", event.max_over_mean));
            table.row(cells);
        }
        table.note("moved: keys with another owner; least: what fair shares by weight need; below 1 x least,");
        table.note(
            "newcomers got less than their share. Delta: estimated bytes that tell a client.",
        );
        if replicas {
            table.note("copies: new (key, replica) pairs, against shares by weight within zones.");
        }
        if self
            .events
            .iter()
            .any(|event| event.name.starts_with("flap"))
        {
            table.note("flap: as if every leaving and coming back were acted on; Annulus marks a silent node down,");
            table.note("moves nothing for replace_after, and so a flap costs 0.");
        }
        table
    }

    fn balance_table(&self) -> Table {
        let mut table = Table::new("Balance", &["BY", "WHEN", "MAX/MEAN", "MIN/MEAN", "CV"]);
        for even in &self.balance {
            let mut row = |by: &str, balance: &Balance| {
                table.row([
                    by.to_owned(),
                    even.name.clone(),
                    format!("{:.3}", balance.max_over_mean),
                    format!("{:.3}", balance.min_over_mean),
                    percent(balance.cv),
                ]);
            };
            row("keys owned", &even.owned_keys);
            row("bytes owned", &even.owned_bytes);
            row("requests", &even.requests);
            if let Some(held) = &even.held_keys {
                row("keys held, within the zone", held);
            }
        }
        table.note("mean: a node's fair share by weight; CV: standard deviation over mean");
        table
    }

    fn zone_table(&self) -> Table {
        let header = ["ZONE", "NODES", "OWNED", "REQUESTS", "REPLICAS/KEY", "FAIR"];
        let mut table = Table::new("Zones", &header);
        for zone in &self.zones {
            table.row([
                zone.name.clone(),
                zone.nodes.to_string(),
                percent(zone.owned_keys),
                percent(zone.requests),
                format!("{:.3}", zone.held),
                format!("{:.3}", zone.fair),
            ]);
        }
        table
    }

    fn loss_table(&self) -> Table {
        let header = [
            "LOST",
            "REQUESTS",
            "KEYS GONE",
            "BYTES GONE",
            "NO MAJORITY",
            "BUSIEST LEFT",
        ];
        let mut table = Table::new("The loss of a node or a zone", &header);
        let is_node = |loss: &&Lost| loss.name.starts_with("node");
        let worst = |of: fn(&Lost) -> f64| {
            let nodes = self.losses.iter().filter(is_node);
            nodes.max_by(|a, b| of(a).total_cmp(&of(b)))
        };
        let mut row = |name: String, loss: &Lost| {
            table.row([
                name,
                percent(loss.requests),
                percent(loss.gone_keys),
                bytes(loss.gone_bytes as f64),
                percent(loss.unwritable_keys),
                ratio(loss.busiest_survivor),
            ]);
        };
        if let Some(loss) = worst(|loss| loss.requests) {
            row(format!("{}, the worst by requests", loss.name), loss);
        }
        let harm = |loss: &Lost| loss.gone_keys + loss.unwritable_keys;
        if let Some(loss) = worst(harm).filter(|loss| harm(loss) > 0.0) {
            row(format!("{}, the worst by keys", loss.name), loss);
        }
        for loss in self.losses.iter().filter(|loss| !is_node(loss)) {
            row(loss.name.clone(), loss);
        }
        table.note("requests: those to keys that it owns. No majority: fewer copies left than writes need.");
        if self
            .losses
            .iter()
            .any(|loss| loss.busiest_survivor.is_some())
        {
            table.note("busiest left: over its fair share, when the next of each list serves");
        }
        table
    }

    fn cache_table(&self) -> Table {
        let Some(cache) = self.run.cache else {
            return Table::default();
        };
        let title = format!(
            "The store behind the cache: {} reads/s, {} hits, so {} reads/s reach it before",
            grouped(cache.reads_per_second as u64),
            percent(cache.hit_ratio),
            grouped((cache.reads_per_second * (1.0 - cache.hit_ratio)).round() as u64)
        );
        let header = [
            "EVENT",
            "COLD READS",
            "EXTRA MISSES/S",
            "FACTOR",
            "AFTER 1 MIN",
            "15 MIN",
            "1 H",
        ];
        let mut table = Table::new(title, &header);
        for felt in &self.cache {
            let at = |seconds: f64| {
                let later = felt.later.iter().find(|later| later.seconds == seconds);
                later.map_or_else(String::new, |later| format!("{:.2}", later.factor))
            };
            table.row([
                felt.name.clone(),
                percent(felt.cold_reads),
                grouped(felt.extra_misses_per_second.round() as u64),
                format!("{:.2}", felt.factor),
                at(60.0),
                at(900.0),
                at(3_600.0),
            ]);
        }
        table.note("factor: the store's reads over those before. A cold key misses once, then it is there;");
        table.note("popular keys warm up first. Nothing is evicted in this reckoning.");
        table
    }

    fn sweep_table(&self) -> Table {
        let header = [
            "PIECES",
            "NUMBER",
            "PER NODE",
            "MAX/MEAN KEYS",
            "CV KEYS",
            "MAX/MEAN REQUESTS",
            "SNAPSHOT",
        ];
        let mut table = Table::new(
            "More slots or tokens: what they bring and what they weigh",
            &header,
        );
        for swept in &self.sweep {
            table.row([
                swept.name.clone(),
                grouped(swept.pieces),
                format!("{:.1}", swept.per_node),
                format!("{:.3}", swept.keys.max_over_mean),
                percent(swept.keys.cv),
                format!("{:.3}", swept.requests_max_over_mean),
                bytes(swept.snapshot_bytes_estimate as f64),
            ]);
        }
        table.note("tokens: per unit of weight. Four times the tokens halve the CV. Slots are dealt out and not");
        table.note(
            "drawn: once a node has some dozens, what is left is chance among the keys themselves.",
        );
        table
    }

    fn hot_table(&self) -> Table {
        let hot = &self.hot_key;
        let mut table = Table::new("The hottest key", &[]);
        table.note(format!(
            "{} gets {} of the requests: {:.2} x a node's fair share. Its owner {} cannot be below that,",
            hot.key,
            percent(hot.share),
            hot.floor,
            hot.owner
        ));
        table.note(format!(
            "under any layout, however many slots or tokens; the busiest owner here is at {:.2} x.",
            hot.busiest
        ));
        table.note(if hot.floor >= 1.0 {
            format!(
                "Only reading it from more places helps: from {} replicas or more, or from the clients' own memory.",
                hot.nodes_needed
            )
        } else {
            "No key alone fills a node here.".to_owned()
        });
        table
    }

    fn node_table(&self) -> Table {
        let header = [
            "NODE",
            "ZONE",
            "WEIGHT",
            "X FAIR BEFORE",
            "AFTER",
            "OWNED",
            "REQUESTS",
            "BYTES OWNED",
            "HELD",
        ];
        let mut table = Table::new("Shares by node", &header);
        let mut shown: Vec<&Share> = self.nodes.iter().collect();
        let hidden = shown.len().saturating_sub(SHOWN_NODES);
        if hidden > 0 {
            // The fullest and the emptiest say more than the first by name.
            shown.sort_by(|a, b| b.before.unwrap_or(0.0).total_cmp(&a.before.unwrap_or(0.0)));
            let tail = shown.split_off(shown.len() - SHOWN_NODES / 2);
            shown.truncate(SHOWN_NODES / 2);
            shown.extend(tail);
            table.note(format!(
                "{hidden} nodes between these are left out; -o json and -o csv have all"
            ));
        }
        for share in shown {
            table.row([
                share.name.clone(),
                share.zone.clone(),
                share.weight.to_string(),
                ratio(share.before),
                ratio(share.after),
                percent(share.owned_keys),
                percent(share.requests),
                bytes(share.owned_bytes as f64),
                bytes(share.held_bytes as f64),
            ]);
        }
        table
    }
}
