//! The command line: every command, option and default, in one place.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use annulus_ring::{NodeId, RingName, Zone};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use slots::Spans;

pub mod explain;
pub mod placement;
pub mod plan;
pub mod slots;

/// Control-plane servers asked where nothing else is said.
pub const DEFAULT_ENDPOINTS: &str = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003";

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, perhaps in part, or data was wrong; the message says what was done
  2  the command line or a configuration file makes no sense
  3  refused: the rules say no; the message says why
  4  unavailable: nobody who could answer was reached, nothing was changed
  5  unknown outcome: it may or may not have happened; look before trying again
  6  not found: `kv get` of a key that does not exist";

/// The authority for which node owns which key of a sharded cache or store.
///
/// Try it: `annulus dev` starts a whole cluster on this machine, moves data under load and kills
/// its leader.
#[derive(Debug, Parser)]
#[command(name = "annulus", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command understands.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Control-plane servers, host:port, separated by commas; any of them will do
    #[arg(
        long,
        global = true,
        env = "ANNULUS_ENDPOINTS",
        default_value = DEFAULT_ENDPOINTS,
        value_delimiter = ',',
        value_name = "HOST:PORT,.."
    )]
    pub endpoints: Vec<String>,
    /// How data is printed: for people, or for programs
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// How long to try before giving up; waiting for a change is not limited by it
    #[arg(long, global = true, default_value = "10s", value_parser = parse_timeout)]
    pub timeout: Duration,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables and sentences.
    Table,
    /// JSON; what may exceed 2^53 is a string.
    Json,
    /// One figure a line; of `simulate` and `compare` only.
    Csv,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a whole cluster here, move data under load, kill the leader, and count what got lost
    Dev(DevArgs),
    /// Run one control-plane server
    Serve(ServeArgs),
    /// Found the control plane itself, or look at it
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Create, found and show rings
    #[command(subcommand)]
    Ring(RingCommand),
    /// Join, drain and show data nodes
    #[command(subcommand)]
    Node(NodeCommand),
    /// Let a whole zone leave
    #[command(subcommand)]
    Zone(ZoneCommand),
    /// See what changes would do before they are made; compare, keep and commit that
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Say why a key lives where it does, or what a change moves and waits for
    #[command(subcommand)]
    Explain(explain::ExplainCommand),
    /// Say why copies of ranges that a node gave up are still kept
    WhyKept(explain::WhyKeptArgs),
    /// One screen: leader, epochs, nodes, what a change waits for
    Status(StatusArgs),
    /// Print each epoch of a ring and what changed in it
    Watch(WatchArgs),
    /// Say where a key lives: hash, range, replicas with zones, epoch
    Lookup(LookupArgs),
    /// The reference data plane: run a node, read and write keys
    #[command(subcommand)]
    Kv(KvCommand),
    /// Offline: what a layout does to keys when nodes join, leave, fail or change
    Simulate(Box<placement::SimulateArgs>),
    /// Offline: our layout beside others, or hashes, or what is said elsewhere, on the same keys
    Compare(Box<placement::CompareArgs>),
}

/// `annulus dev`.
#[derive(Clone, Debug, Args)]
pub struct DevArgs {
    /// Load these keys instead of synthetic ones: one a line, taken byte by byte
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// How many synthetic keys [default: 100000, with --short 20000]
    #[arg(long, value_name = "N", conflicts_with = "keys")]
    pub key_count: Option<usize>,
    /// Keep data and logs here instead of in a temporary directory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Stay up when the run is over, and say what to try next
    #[arg(long)]
    pub serve: bool,
    /// A shorter run with fewer keys, for CI
    #[arg(long)]
    pub short: bool,
}

/// `annulus serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// This server's number in the cluster, from 1; never reused
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub id: Option<u64>,
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address)]
    pub listen: Option<SocketAddr>,
    /// Address that others reach it by [default: the listen address]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Where the log and the log snapshots live
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Serve `/metrics` on this address [default: off]
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address)]
    pub metrics: Option<SocketAddr>,
    /// Listen on other addresses than loopback although nothing is encrypted or authenticated
    #[arg(long)]
    pub insecure: bool,
    /// End when standard input is closed (so that children end with their parent)
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// `annulus cluster ..`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Found the control plane: these servers become the voters
    Init {
        /// Servers as ID=HOST:PORT [default: the endpoints, numbered from 1]
        #[arg(value_name = "ID=HOST:PORT", value_parser = parse_server)]
        servers: Vec<(u64, String)>,
    },
    /// Servers, leader, term and how far each has got
    Status {
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
}

/// `annulus ring ..`.
#[derive(Debug, Subcommand)]
pub enum RingCommand {
    /// Create a ring; it has no members until it is founded
    Create(CreateArgs),
    /// Make registered nodes its first members, in one epoch
    Found {
        /// Which ring
        ring: RingName,
        /// Which nodes [default: those joined so far]
        nodes: Vec<NodeId>,
        /// Accept fewer nodes than rf, or fewer zones than the spread wants
        #[arg(long)]
        accept: bool,
    },
    /// All rings
    List {
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// One ring: settings, changes, transition, nodes
    Show {
        /// Which ring
        ring: RingName,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// The newest snapshot, or a kept one, whole: every member and every range
    Dump {
        /// Which ring
        ring: RingName,
        /// Which epoch, from 1 [default: the newest]
        #[arg(long, value_parser = from_one::<u64>)]
        epoch: Option<u64>,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// Give the ring another number of replicas, or other quorums
    Replication {
        /// Which ring
        ring: RingName,
        /// What.
        #[command(flatten)]
        args: ReplicationArgs,
    },
    /// Split every range in two, or give a cache ring another hash. Everybody stops serving for a
    /// moment. A durable ring keeps its hash for life, and says what to do instead
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["double", "hash", "layout"]))]
    Convert {
        /// Which ring
        ring: RingName,
        /// Twice as many ranges; none moves
        #[arg(long)]
        double: bool,
        /// Another hash of keys
        #[arg(long)]
        hash: Option<String>,
        /// Another kind of layout
        #[arg(long)]
        layout: Option<String>,
    },
    /// Keep ranges at a member, whatever balance says: its lists name it, or it owns them too
    Pin {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// The ranges.
        #[command(flatten)]
        ranges: RangeArgs,
        /// The node is to own them, too
        #[arg(long)]
        owner: bool,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Lift pins to a member; balance decides again
    Unpin {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// Which slots, such as 3,5-7 [default: all that are pinned to it]
        #[arg(long, value_name = "SLOT,..", value_parser = slots::parse)]
        slots: Option<Spans>,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Let all movement stand still where it is: no step, no copying, no hand-over, no deletion
    Pause {
        /// Which ring
        ring: RingName,
        /// Why, for those who look later
        #[arg(long)]
        reason: String,
    },
    /// Let movement go on
    Resume {
        /// Which ring
        ring: RingName,
    },
    /// Delete nothing on this ring, however old
    Hold {
        /// Which ring
        ring: RingName,
        /// Why, for those who look later
        #[arg(long)]
        reason: String,
    },
    /// Allow deletion again
    Unhold {
        /// Which ring
        ring: RingName,
    },
    /// Remove members that stay down by themselves, as far as no word of yours is needed; or never
    AutoRemove {
        /// Which ring
        ring: RingName,
        /// How long a member must be down, such as 1h
        #[arg(long, value_name = "TIME", value_parser = parse_duration, required_unless_present = "off")]
        after: Option<Duration>,
        /// Never, which is the default
        #[arg(long, conflicts_with = "after")]
        off: bool,
    },
    /// The kept epochs with their checksums
    Epochs {
        /// Which ring
        ring: RingName,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
}

/// `annulus ring create`.
#[derive(Clone, Debug, Args)]
pub struct CreateArgs {
    /// Its name
    pub ring: RingName,
    /// Cut the circle into 2^K ranges
    #[arg(long, value_name = "K", default_value_t = 14, value_parser = value_parser!(u8).range(slot_bits()))]
    pub slot_bits: u8,
    /// Replicas of a range
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..=7))]
    pub rf: u8,
    /// Replicas that must hold a write before it is acknowledged [default: a majority]
    #[arg(long, value_parser = value_parser!(u8).range(1..=7))]
    pub w: Option<u8>,
    /// Replicas that an exact read asks [default: rf - w + 1]
    #[arg(long, value_parser = value_parser!(u8).range(1..=7))]
    pub r: Option<u8>,
    /// Hash of keys
    #[arg(long, default_value = "xxh3-64")]
    pub hash: String,
    /// Seed of the hash
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How long the old replicas go on getting every write after a switch [default: 10m; of a cache 0]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub soak: Option<Duration>,
    /// How long a copy is kept by a node that lost its range [default: 24h; of a cache 0]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// What it holds: data, or entries of a cache, which moves without digests, seals and permits
    #[arg(long, value_enum, default_value_t = Kind::Durable)]
    pub kind: Kind,
    /// Cache: fill gainers for so long at most before they are switched on [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub warm_up: Option<Duration>,
    /// Cache: a share of hits in per mille at gainers that ends the warm-up early
    #[arg(long, value_name = "PERMILLE", requires = "warm_up", value_parser = value_parser!(u16).range(1..=1_000))]
    pub hit_ratio: Option<u16>,
    /// Cache: a node that hears nothing from the control plane serves nobody
    #[arg(long)]
    pub stop_when_isolated: bool,
    /// Found it at once with these registered nodes
    #[arg(long, value_name = "NODE,..", value_delimiter = ',')]
    pub found_with: Vec<NodeId>,
    /// Accept quorums that may lose or split writes, or fewer founders than rf or zones
    #[arg(long)]
    pub accept: bool,
}

/// `annulus ring replication`.
#[derive(Clone, Debug, Args)]
pub struct ReplicationArgs {
    /// Replicas of a range
    #[arg(long, value_parser = value_parser!(u8).range(1..=7))]
    pub rf: u8,
    /// Replicas that must hold a write before it is acknowledged [default: a majority]
    #[arg(long, value_parser = value_parser!(u8).range(1..=7))]
    pub w: Option<u8>,
    /// Replicas that an exact read asks [default: rf - w + 1]
    #[arg(long, value_parser = value_parser!(u8).range(1..=7))]
    pub r: Option<u8>,
    /// Accept quorums that may lose or split writes
    #[arg(long)]
    pub accept: bool,
    /// How to wait and what to expect.
    #[command(flatten)]
    pub change: ChangeArgs,
}

impl ReplicationArgs {
    /// As given, or a majority.
    #[must_use]
    pub fn w(&self) -> u8 {
        self.w.unwrap_or(self.rf / 2 + 1)
    }

    /// As given, or the fewest that meet every write.
    #[must_use]
    pub fn r(&self) -> u8 {
        let fewest = (self.rf + 1).saturating_sub(self.w()).max(1);
        self.r.unwrap_or(fewest)
    }
}

/// Which ranges: by number, or those of keys.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct RangeArgs {
    /// Slots by number, such as 3,5-7; `annulus lookup` tells a key's
    #[arg(long, value_name = "SLOT,..", value_parser = slots::parse)]
    pub slots: Option<Spans>,
    /// The slot of this key, its bytes exactly as given; may be repeated
    #[arg(long, value_name = "KEY")]
    pub key: Vec<OsString>,
}

/// What a ring holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Data that must not be lost
    #[default]
    Durable,
    /// Entries whose loss is a miss
    Cache,
}

/// `annulus node ..`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Make a registered node a member and move its share of ranges to it
    Join {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// Zone, if it must be checked against what the node said
        #[arg(long)]
        zone: Option<Zone>,
        /// Weight, if it must be checked against what the node said
        #[arg(long)]
        weight: Option<u32>,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Move every range off a member, then let it leave
    Drain {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// In so many transitions, each of which takes a part of its ranges
        #[arg(long = "in", value_name = "N", value_parser = value_parser!(u32).range(2..=100))]
        steps: Option<u32>,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Let a registered node take the very ranges of a member of its zone, which then leaves
    Replace {
        /// Which ring
        ring: RingName,
        /// Which node leaves
        node: NodeId,
        /// Which node comes
        by: NodeId,
        /// The node that leaves is dead: nothing waits for it
        #[arg(long)]
        dead: bool,
        /// What is known of the dead.
        #[command(flatten)]
        burial: BurialArgs,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Take a dead member out; what it held is rebuilt from the other members
    Remove {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// It is dead and will not come back; a living member is drained
        #[arg(long, required = true)]
        dead: bool,
        /// What is known of the dead.
        #[command(flatten)]
        burial: BurialArgs,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Give a member another share of the ranges; 0 = it stays a member and owns nothing
    Weight {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// Its share, compared with those of the others in its zone
        weight: u32,
        /// In so many transitions, each of which takes a part of the difference
        #[arg(long = "ramp", value_name = "N", value_parser = value_parser!(u32).range(2..=100))]
        steps: Option<u32>,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Say that a member stands in another zone: lists are spread anew
    Zone {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// Its zone from now on; its agent may keep the old one in its configuration, or take this
        zone: Zone,
        /// Accept that it gets a copy of every range, as the first of a new zone may
        #[arg(long)]
        accept: bool,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Announce that a member will be stopped for a while: its ranges are handed over before, and
    /// its silence alarms nobody
    #[command(group = clap::ArgGroup::new("when").required(true).args(["time", "end"]))]
    Maintain {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// For how long, such as 30m; at most 168h
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Option<Duration>,
        /// It is over
        #[arg(long)]
        end: bool,
        /// Accept that ranges may have fewer members up than they need
        #[arg(long, conflicts_with = "end")]
        accept: bool,
    },
    /// Say who can be stopped together without any range falling under its quorums; exit code 0 is
    /// yes, 3 is no
    OkToRestart {
        /// Which ring
        ring: RingName,
        /// Which nodes, all at once [default: batches of all members]
        nodes: Vec<NodeId>,
    },
    /// Withdraw a change that is queued or running; after the switch the lists flip back first
    Abort {
        /// Which ring
        ring: RingName,
        /// Which change; `annulus ring show` lists them
        change: u64,
    },
    /// End the soak now: the old replicas no longer get writes
    Settle {
        /// Which ring
        ring: RingName,
    },
    /// All nodes of a ring, members or only registered
    List {
        /// Which ring
        ring: RingName,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// One node
    Show {
        /// Which ring
        ring: RingName,
        /// Which node
        node: NodeId,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
}

/// `annulus zone ..`.
#[derive(Debug, Subcommand)]
pub enum ZoneCommand {
    /// Move every range off the members of a zone, in one change, then let them leave
    Drain {
        /// Which ring
        ring: RingName,
        /// Which zone
        zone: Zone,
        /// Accept that ranges spread over fewer zones
        #[arg(long)]
        accept: bool,
        /// How to wait and what to expect.
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// How a join or drain is asked for and waited for.
#[derive(Clone, Debug, Args)]
pub struct ChangeArgs {
    /// Return as soon as the change is accepted
    #[arg(long)]
    pub detach: bool,
    /// Refuse if the layout changed since this layout epoch was seen
    #[arg(long, value_name = "EPOCH")]
    pub expect_layout: Option<u64>,
}

/// What an operator says of a member that will not come back.
#[derive(Clone, Debug, Args)]
pub struct BurialArgs {
    /// Accept that acknowledged writes of these ranges may be lost, as the refusal lists them
    #[arg(long, value_name = "SLOTS", value_parser = slots::parse, requires = "dead")]
    pub lost: Option<Spans>,
    /// Its process is stopped: your word, kept with who says so and why
    #[arg(long, value_name = "WHO AND WHY", requires = "dead")]
    pub stopped: Option<String>,
}

/// `annulus status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Answer from the asked server's own state, whatever its age
    #[arg(long)]
    pub local: bool,
}

/// `annulus watch`.
#[derive(Clone, Debug, Args)]
pub struct WatchArgs {
    /// Which ring
    pub ring: RingName,
    /// End after this many epochs
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub count: Option<u64>,
}

/// `annulus lookup`.
#[derive(Clone, Debug, Args)]
pub struct LookupArgs {
    /// Which ring
    pub ring: RingName,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// A key, byte by byte.
#[derive(Clone, Debug, Args)]
pub struct KeyArgs {
    /// The key, its bytes exactly as given
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    pub key: Option<OsString>,
    /// KEY is written in hexadecimal
    #[arg(long, conflicts_with = "stdin")]
    pub hex: bool,
    /// The key is all of standard input, a newline at its end included
    #[arg(long)]
    pub stdin: bool,
}

/// `annulus kv ..`.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Run one data node
    Serve(Box<KvServeArgs>),
    /// Print a value, its bytes exactly as stored
    Get {
        /// Which ring
        ring: RingName,
        /// The key.
        #[command(flatten)]
        key: KeyArgs,
        /// Ask any replica: may be old
        #[arg(long)]
        any: bool,
    },
    /// Store a value
    Put {
        /// Which ring
        ring: RingName,
        /// The key, its bytes exactly as given
        key: OsString,
        /// The value [default: all of standard input]
        value: Option<OsString>,
        /// KEY is written in hexadecimal
        #[arg(long)]
        hex: bool,
    },
    /// Delete a key
    Delete {
        /// Which ring
        ring: RingName,
        /// The key.
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Write keys from a file or synthetic ones, in batches, and say how fast
    Load(KvLoadArgs),
}

/// `annulus kv load`.
#[derive(Clone, Debug, Args)]
pub struct KvLoadArgs {
    /// Which ring
    pub ring: RingName,
    /// Keys, one a line, taken byte by byte
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// How many synthetic keys
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        conflicts_with = "keys"
    )]
    pub count: usize,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub value_bytes: usize,
    /// Then read, write and delete them for so long, and judge every answer
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub run: Option<Duration>,
    /// Aim of --run, in operations a second [default: as fast as it goes]
    #[arg(long, value_name = "N", requires = "run", value_parser = from_one::<u32>)]
    pub rate: Option<u32>,
}

/// `annulus kv serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct KvServeArgs {
    /// Configuration file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which ring
    #[arg(long)]
    pub ring: Option<RingName>,
    /// This node's name
    #[arg(long)]
    pub node: Option<NodeId>,
    /// Its zone: replicas of a range spread over zones
    #[arg(long)]
    pub zone: Option<Zone>,
    /// Its share, relative to other nodes [default: 100]
    #[arg(long)]
    pub weight: Option<u32>,
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address)]
    pub listen: Option<SocketAddr>,
    /// Address that others reach it by [default: the listen address]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Where its data lives
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Serve `/metrics` on this address [default: off]
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address)]
    pub metrics: Option<SocketAddr>,
    /// Copy at most so many bytes a second when gaining ranges [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    pub throttle: Option<u64>,
    /// Give out at most so many bytes a second to nodes that gain ranges [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    pub throttle_out: Option<u64>,
    /// Copy at most so many bytes a second from any one other zone [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    pub throttle_zone: Option<u64>,
    /// Copy as fast as ever while requests at this node suffer from it
    #[arg(long)]
    pub no_ease: bool,
    /// Answer replication that much later (tests)
    #[arg(long, hide = true, value_name = "MS")]
    pub replicate_delay_ms: Option<u64>,
    /// Listen on other addresses than loopback although nothing is encrypted or authenticated
    #[arg(long)]
    pub insecure: bool,
    /// End when standard input is closed (so that children end with their parent)
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// The weight of a node that says none.
pub const DEFAULT_WEIGHT: u32 = 100;

/// The limits of k, as clap wants them.
fn slot_bits() -> std::ops::RangeInclusive<i64> {
    let limits = annulus_control_plane::SLOT_BITS;
    i64::from(*limits.start())..=i64::from(*limits.end())
}

/// A number without an upper bound of its own; 0 would silently mean the default somewhere.
fn from_one<T: FromStr + PartialEq + From<u8>>(text: &str) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(number) if number != T::from(0) => Ok(number),
        Ok(_) | Err(_) => Err("expected a number, 1 or more".to_owned()),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    if timeout.is_zero() {
        return Err("leaves no time for an answer; write 10s or 500ms".to_owned());
    }
    Ok(timeout)
}

/// An address to listen on: names are for those who connect.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let example = match text.rsplit_once(':') {
            Some(("localhost", port)) => format!("127.0.0.1:{port}"),
            _ => "127.0.0.1:7001".to_owned(),
        };
        format!("expected IP:PORT, such as {example}; a name is no address to listen on")
    })
}

fn parse_server(text: &str) -> Result<(u64, String), String> {
    let (id, endpoint) = text
        .split_once('=')
        .ok_or("expected ID=HOST:PORT, such as 1=127.0.0.1:7001")?;
    match id.parse() {
        Ok(0) | Err(_) => Err(format!("{id:?} is not a server number; they start at 1")),
        Ok(id) => Ok((id, endpoint.to_owned())),
    }
}

/// Reads `250ms`, `10s`, `5m` or `24h`; a bare number is refused, as its unit would be a guess.
///
/// # Errors
/// A sentence for people.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" => return Err(format!("{text:?} has no unit; write {text}s or {text}ms")),
        _ => {
            return Err(format!(
                "{text:?} is no duration; write 250ms, 10s, 5m or 24h"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} does not start with a number"))?;
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is too long"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_definitions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_carry_their_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert!(parse_duration("10").is_err());
        assert!(parse_duration("s").is_err());
        assert!(parse_duration("10 s").is_err());
        assert!(parse_duration("99999999999999999999h").is_err());
        assert!(parse_duration("9999999999999999h").is_err());
    }

    #[test]
    fn a_key_is_taken_exactly_as_given() {
        let cli = Cli::try_parse_from(["annulus", "lookup", "users", " a key\n"]).expect("parses");
        let Command::Lookup(args) = cli.command else {
            panic!("lookup")
        };
        assert_eq!(
            args.key.key.as_deref(),
            Some(std::ffi::OsStr::new(" a key\n"))
        );
    }

    #[test]
    fn zero_is_refused_by_name_where_it_would_silently_mean_the_default() {
        for (line, flag) in [
            ("ring create users --slot-bits 0", "--slot-bits"),
            ("ring create users --rf 0", "--rf"),
            ("ring create users --w 0", "--w"),
            ("ring create users --r 0", "--r"),
            ("ring dump users --epoch 0", "--epoch"),
            ("watch users --count 0", "--count"),
            ("kv load users --run 1s --rate 0", "--rate"),
            ("serve --id 0", "--id"),
        ] {
            let words = ["annulus"].into_iter().chain(line.split(' '));
            let error = Cli::try_parse_from(words).expect_err(line).to_string();
            let limits = error.contains("1..=") || error.contains("1 or more");
            assert!(error.contains(flag) && limits, "{error}");
        }
    }

    #[test]
    fn a_name_is_no_address_to_listen_on() {
        let told = parse_address("localhost:7009").expect_err("a name");
        assert!(told.contains("IP:PORT, such as 127.0.0.1:7009"), "{told}");
    }

    #[test]
    fn servers_are_numbered_from_one() {
        assert_eq!(parse_server("1=h:7001"), Ok((1, "h:7001".to_owned())));
        assert!(parse_server("0=h:7001").is_err());
        assert!(parse_server("h:7001").is_err());
    }
}
