//! The options of `annulus simulate` and `annulus compare`.

use std::path::PathBuf;

use annulus_simulate::scenario::Options;
use clap::{Args, Subcommand};

/// `annulus simulate`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimulateArgs {
    /// Something else than a simulation.
    #[command(subcommand)]
    pub command: Option<SimulateCommand>,
    /// What is simulated.
    #[command(flatten)]
    pub run: SimulateRun,
}

/// `annulus simulate ..`.
#[derive(Clone, Debug, Subcommand)]
pub enum SimulateCommand {
    /// Write a trace of synthetic keys: key, bytes, requests
    GenerateTrace(TraceArgs),
}

/// `annulus simulate generate-trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// How many keys, one a line
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub lines: u64,
    /// Where to: tabs if it ends in .tsv, compressed if it ends in .gz
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// What the keys are.
    #[command(flatten)]
    pub keys: KeyArgs,
}

/// A simulation.
#[derive(Clone, Debug, Args)]
pub struct SimulateRun {
    /// Read nodes, layout, keys and events from this file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Who is there.
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// How keys are laid out: slots, tokens, rendezvous, jump, ketama, modulo, redis-slots [default: slots]
    #[arg(long)]
    pub layout: Option<String>,
    /// Cut the circle into 2^K slots [default: 14]
    #[arg(long, value_name = "K")]
    pub slot_bits: Option<u8>,
    /// Tokens per unit of weight [default: 256]
    #[arg(long, value_name = "N")]
    pub tokens: Option<u32>,
    /// Hash of keys [default: xxh3-64]
    #[arg(long)]
    pub hash: Option<String>,
    /// Replicas of a key [default: 3, or 1 where the layout has no replicas]
    #[arg(long)]
    pub rf: Option<u8>,
    /// What happens, again for each: "join n9 zone=z1 weight=2", "join +4", "drain n1", "fail n2",
    /// "weight n3 2", "flap n4 3"; commas put several into one change [default: one of each]
    #[arg(long = "event", value_name = "EVENT")]
    pub events: Vec<String>,
    /// Where keys come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Reads a second of the cache that this is; shows what the store behind it feels
    #[arg(long, value_name = "N")]
    pub reads_per_second: Option<f64>,
    /// Which part of the reads hits [default: 0.94]
    #[arg(long, value_name = "PART")]
    pub hit_ratio: Option<f64>,
    /// Leave out the table of more and fewer slots and tokens
    #[arg(long)]
    pub no_sweep: bool,
    /// What comes out.
    #[command(flatten)]
    pub out: ReportArgs,
}

/// `annulus compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// Compare hash functions instead
    #[arg(long, conflicts_with = "claims")]
    pub hashes: bool,
    /// Measure again what is said elsewhere, and say what is wrong
    #[arg(long, conflicts_with_all = ["keys", "trace", "nodes", "weights"])]
    pub claims: bool,
    /// Who is there.
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Cut the circle of our layout into 2^K slots [default: 14]
    #[arg(long, value_name = "K")]
    pub slot_bits: Option<u8>,
    /// Hash of layouts that bring none [default: xxh3-64]
    #[arg(long)]
    pub hash: Option<String>,
    /// Rings that chance is measured with, for --hashes (100) and --claims (1,000)
    #[arg(long, value_name = "N")]
    pub rings: Option<u32>,
    /// Where keys come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What comes out.
    #[command(flatten)]
    pub out: ReportArgs,
}

/// Nodes.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// Nodes n1, n2, .. [default: 12]
    #[arg(long, value_name = "N")]
    pub nodes: Option<usize>,
    /// Zones that they are dealt out to [default: 3]
    #[arg(long, value_name = "N")]
    pub zones: Option<usize>,
    /// Their weights, repeated [default: 1]
    #[arg(long, value_name = "W,..", value_delimiter = ',')]
    pub weights: Option<Vec<u32>>,
}

/// Where keys come from.
#[derive(Clone, Debug, Args)]
pub struct SourceArgs {
    /// Keys of a file, one a line, taken byte by byte, gzip too
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "key_count"])]
    pub keys: Option<PathBuf>,
    /// A trace: key, bytes, requests, separated by commas or tabs, gzip too
    #[arg(long, value_name = "FILE", conflicts_with = "key_count")]
    pub trace: Option<PathBuf>,
    /// How many synthetic keys [default: 1000000]
    #[arg(long, value_name = "N")]
    pub key_count: Option<u64>,
    /// What synthetic keys are.
    #[command(flatten)]
    pub made: KeyArgs,
}

/// What synthetic keys are.
#[derive(Clone, Debug, Args)]
pub struct KeyArgs {
    /// Synthetic keys are user:1, user:2, .. and not scattered
    #[arg(long)]
    pub sequential: bool,
    /// Popularity falls as 1 / rank^S; 0 for uniform [default: 0.99]
    #[arg(long, value_name = "S")]
    pub zipf: Option<f64>,
    /// Requests over all keys [default: ten a key]
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Size of values, BYTES or LEAST..MOST [default: 1024]
    #[arg(long, value_name = "BYTES")]
    pub value_bytes: Option<String>,
    /// Equal seeds give equal reports [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// What comes out.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Draw charts (SVG) into this directory
    #[arg(long, value_name = "DIR")]
    pub charts: Option<PathBuf>,
    /// Leave out measured times, the only figures that differ from run to run
    #[arg(long)]
    pub no_timing: bool,
}

impl KeyArgs {
    /// As options.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            sequential: self.sequential.then_some(true),
            zipf: self.zipf,
            requests: self.requests,
            value_bytes: self.value_bytes.clone(),
            seed: self.seed,
            ..Options::default()
        }
    }
}

impl SourceArgs {
    fn options(&self, nodes: &NodeArgs) -> Options {
        Options {
            nodes: nodes.nodes,
            zones: nodes.zones,
            weights: nodes.weights.clone(),
            keys: self.keys.clone(),
            trace: self.trace.clone(),
            key_count: self.key_count,
            ..self.made.options()
        }
    }
}

impl SimulateRun {
    /// As options.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            layout: self.layout.clone(),
            slot_bits: self.slot_bits,
            tokens: self.tokens,
            hash: self.hash.clone(),
            rf: self.rf,
            events: (!self.events.is_empty()).then(|| self.events.clone()),
            reads_per_second: self.reads_per_second,
            hit_ratio: self.hit_ratio,
            ..self.source.options(&self.nodes)
        }
    }
}

impl CompareArgs {
    /// As options.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            slot_bits: self.slot_bits,
            hash: self.hash.clone(),
            ..self.source.options(&self.nodes)
        }
    }
}
