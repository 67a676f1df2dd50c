//! `annulus compare`: what people use, side by side on the same keys.

use std::path::Path;

use annulus_ring::List;
use serde::Serialize;

use crate::{
    InputError, chart,
    cluster::{self, Event, Nodes},
    fair,
    hash::Hash,
    keys::{Source, Totals},
    layout::{Layout, Map, Settings},
    measure::{self, Balance, Load, Movement, Stage},
    progress::Progress,
    table::{Report, Table},
    text::{bytes, grouped, percent, ratio},
};

/// Tokens per unit of weight of the rings that are compared.
pub const RING_TOKENS: [u32; 4] = [1, 100, 160, 256];

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Contest {
    /// Who is there.
    pub nodes: Nodes,
    /// Hash of those that do not bring their own.
    pub hash: Hash,
    /// Its seed.
    pub seed: u64,
    /// k of ours.
    pub slot_bits: u8,
    /// Where keys come from.
    pub source: Source,
    /// Whether lookups are timed: the one thing that differs from run to run.
    pub timing: bool,
}

/// How they compare.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Nodes at first.
    pub nodes: usize,
    /// Where keys come from.
    pub source: String,
    /// What that held.
    pub totals: Totals,
    /// The least part of the keys that a join must move.
    pub least_join: f64,
    /// The least part of the keys that the leaving must move.
    pub least_leave: f64,
    /// Who leaves.
    pub leaves: String,
    /// One by one, ours last.
    pub layouts: Vec<Compared>,
    /// Layouts that these nodes rule out, and why.
    pub left_out: Vec<String>,
}

/// One layout.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Owners by keys.
    pub keys: Balance,
    /// Owners by bytes.
    pub bytes: Balance,
    /// Owners by requests.
    pub requests: Balance,
    /// Part of the keys moved by a join.
    pub join: f64,
    /// Over the least.
    pub join_over_least: Option<f64>,
    /// Part of the keys moved by a leaving from the middle.
    pub leave: f64,
    /// Over the least.
    pub leave_over_least: Option<f64>,
    /// Whether weights count.
    pub weights: bool,
    /// Whether it places replicas over zones by itself.
    pub zones: bool,
    /// Bytes that a client needs, estimated.
    pub snapshot_bytes_estimate: u64,
    /// ns per lookup with its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup_ns: Option<f64>,
}

/// All layouts of a comparison, ours last.
#[must_use]
pub fn layouts(slot_bits: u8) -> Vec<Layout> {
    let rings = RING_TOKENS.map(|per_weight| Layout::Tokens { per_weight });
    let mut layouts = vec![Layout::Modulo, Layout::Jump, Layout::Rendezvous];
    layouts.extend(rings);
    layouts.extend([
        Layout::Ketama,
        Layout::RedisSlots,
        Layout::Slots { bits: slot_bits },
    ]);
    layouts
}

/// One layout with one more node, as it is, and with one fewer.
struct Trial {
    layout: Layout,
    stages: [Stage; 3],
    loads: [Load; 3],
    /// By a join, by a leaving.
    movements: [Movement; 2],
}

/// Carries a comparison out: one copy of each key, one join, one leaving.
///
/// # Errors
/// [`InputError`].
pub fn compare(contest: &Contest, progress: &dyn Progress) -> Result<Comparison, InputError> {
    let nodes = &contest.nodes;
    if nodes.len() < 2 {
        return Err(crate::error::setting(
            "--nodes",
            nodes.len(),
            "at least 2, as one leaves",
        ));
    }
    let step = |event: &str| -> Result<Nodes, InputError> {
        let event: Event = event.parse()?;
        let mut next = nodes.len() as u16;
        let mut steps = cluster::after(nodes, &mut next, &event)?;
        Ok(steps.swap_remove(0))
    };
    let leaver = &nodes[nodes.len() / 2].name;
    let (more, fewer) = (step("join +1")?, step(&format!("drain {leaver}"))?);
    let mut trials = Vec::new();
    let mut left_out = Vec::new();
    let layouts = layouts(contest.slot_bits);
    progress.start("maps", Some(layouts.len() as u64));
    for (done, layout) in (1..).zip(layouts) {
        match Trial::new(contest, layout, &more, &fewer) {
            Ok(trial) => trials.push(trial),
            Err(error @ InputError::Layout { .. }) => left_out.push(error.to_string()),
            Err(error) => return Err(error),
        }
        progress.at(done);
    }
    let mut sample: Vec<Vec<u8>> = Vec::new();
    let (mut list, mut wide, mut narrow) = (List::new(), List::new(), List::new());
    let totals = contest.source.visit(progress, |record| {
        if sample.len() < 1 << 16 {
            sample.push(record.key.to_vec());
        }
        for trial in &mut trials {
            let [bigger, same, smaller] = &trial.stages;
            same.map.list(record.key, &mut list);
            bigger.map.list(record.key, &mut wide);
            smaller.map.list(record.key, &mut narrow);
            trial.loads[0].add(&wide, &record);
            trial.loads[1].add(&list, &record);
            trial.loads[2].add(&narrow, &record);
            trial.movements[0].add(&list, &wide, &record);
            trial.movements[1].add(&list, &narrow, &record);
        }
    })?;

    let owners = fair::owners(nodes);
    let least_join = fair::least((nodes, &owners), (&more, &fair::owners(&more)));
    let least_leave = fair::least((nodes, &owners), (&fewer, &fair::owners(&fewer)));
    let compared = trials.iter().map(|trial| {
        let load = &trial.loads[1];
        let moved = |movement: &Movement| movement.keys as f64 / totals.keys as f64;
        let (join, leave) = (moved(&trial.movements[0]), moved(&trial.movements[1]));
        let map = &trial.stages[1].map;
        Compared {
            name: trial.layout.to_string(),
            keys: Balance::of(&load.keys, nodes, &owners),
            bytes: Balance::of(&load.bytes, nodes, &owners),
            requests: Balance::of(&load.requests, nodes, &owners),
            join,
            join_over_least: (least_join > 0.0).then(|| join / least_join),
            leave,
            leave_over_least: (least_leave > 0.0).then(|| leave / least_leave),
            weights: trial.layout.weighs(),
            zones: trial.layout.replicates(),
            snapshot_bytes_estimate: map.snapshot_bytes(nodes),
            lookup_ns: contest.timing.then(|| measure::lookup_ns(map, &sample, 3)),
        }
    });
    Ok(Comparison {
        nodes: nodes.len(),
        source: contest.source.describe(),
        totals,
        least_join,
        least_leave,
        leaves: leaver.to_string(),
        layouts: compared.collect(),
        left_out,
    })
}

impl Trial {
    fn new(
        contest: &Contest,
        layout: Layout,
        more: &Nodes,
        fewer: &Nodes,
    ) -> Result<Self, InputError> {
        let settings = Settings {
            layout,
            hash: contest.hash,
            seed: contest.seed,
            rf: 1,
        };
        let map = Map::build(settings, &contest.nodes, None)?;
        let stage = |nodes: &Nodes| -> Result<Stage, InputError> {
            let map = Map::build(settings, nodes, Some(&map))?;
            Ok(Stage {
                nodes: nodes.clone(),
                map,
            })
        };
        let (bigger, smaller) = (stage(more)?, stage(fewer)?);
        let same = Stage {
            nodes: contest.nodes.clone(),
            map,
        };
        let load = || Load::new(more.len());
        Ok(Self {
            layout,
            stages: [bigger, same, smaller],
            loads: [load(), load(), load()],
            movements: Default::default(),
        })
    }
}

impl Report for Comparison {
    fn tables(&self) -> Vec<Table> {
        let totals = self.totals;
        let title = format!(
            "{} nodes, one copy of each key; {}: {} keys, {}, {} requests",
            self.nodes,
            self.source,
            grouped(totals.keys),
            bytes(totals.bytes as f64),
            grouped(totals.requests)
        );
        let mut header = vec![
            "LAYOUT",
            "MAX/MEAN",
            "MIN/MEAN",
            "CV",
            "BY BYTES",
            "BY REQUESTS",
            "JOIN MOVES",
            "X LEAST",
            "LEAVE MOVES",
            "X LEAST",
            "WEIGHTS",
            "ZONES",
            "CLIENT HAS",
        ];
        let timed = self.layouts.iter().any(|layout| layout.lookup_ns.is_some());
        if timed {
            header.push("NS");
        }
        let mut table = Table::new(title, &header);
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        for layout in &self.layouts {
            let mut cells = vec![
                layout.name.clone(),
                format!("{:.3}", layout.keys.max_over_mean),
                format!("{:.3}", layout.keys.min_over_mean),
                percent(layout.keys.cv),
                format!("{:.3}", layout.bytes.max_over_mean),
                format!("{:.3}", layout.requests.max_over_mean),
                percent(layout.join),
                ratio(layout.join_over_least),
                percent(layout.leave),
                ratio(layout.leave_over_least),
                yes(layout.weights),
                yes(layout.zones),
                bytes(layout.snapshot_bytes_estimate as f64),
            ];
            if let Some(ns) = layout.lookup_ns {
                cells.push(format!("{ns:.1}"));
            }
            table.row(cells);
        }
        table.note(format!(
            "least: a join must move {}, the leaving of {} {}; below 1 x least, the fair shares are missed",
            percent(self.least_join),
            self.leaves,
            percent(self.least_leave)
        ));
        table.note("max/mean, min/mean, CV: keys owned over a node's fair share; the same maximum by bytes and by");
        table.note("requests. Zones: places replicas over zones itself. Client has: estimated from the layout.");
        if timed {
            table.note("ns: a lookup with its hash, best of 3; rendezvous asks every node, the rings here are the");
            table.note("usual forty lines with a bucket index. `bench` has the figures of what clients really use.");
        }
        for left_out in &self.left_out {
            table.note(format!("left out: {left_out}"));
        }
        vec![table]
    }

    fn charts(&self, directory: &Path) -> Result<Vec<String>, InputError> {
        chart::comparison(self, directory)
    }
}
