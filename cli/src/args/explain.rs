//! `annulus explain ..` and `annulus why-kept`.

use annulus_ring::{NodeId, RingName};
use clap::{Args, Subcommand};

use super::{KeyArgs, from_one};

/// `annulus explain ..`.
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// Where a key lives, since when, and what moved its range, epoch by epoch
    Key {
        /// Which ring
        ring: RingName,
        /// The key.
        #[command(flatten)]
        key: KeyArgs,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// The same for a range
    Range {
        /// Which ring
        ring: RingName,
        /// Number of the range, from 0
        slot: u32,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// What a change moves, where it is, what it waits for
    Change {
        /// Which ring
        ring: RingName,
        /// Which change; `annulus ring show` lists them
        #[arg(value_parser = from_one::<u64>)]
        change: u64,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
}

/// `annulus why-kept`.
#[derive(Clone, Debug, Args)]
pub struct WhyKeptArgs {
    /// Which ring
    pub ring: RingName,
    /// Copies of this range if it is a number, else of this node [default: all]
    #[arg(value_name = "RANGE|NODE", conflicts_with = "node")]
    pub what: Option<NodeId>,
    /// Copies of this node, whose name is a number
    #[arg(long)]
    pub node: Option<NodeId>,
}
