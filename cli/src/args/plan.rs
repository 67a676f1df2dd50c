//! `annulus plan ..`.

use annulus_ring::RingName;
use clap::{Args, Subcommand};

use super::from_one;

const CHANGES: &str = "\
Changes, in the order in which they are to be accepted:
  join NODE..                make registered nodes members
  drain NODE..               move every range off members, then let them leave
  weight NODE=WEIGHT..       give members another share; 0 owns nothing
  replace NODE=BY..          let a registered node take the very ranges of a member

  annulus plan make users join n7 drain n1 n2 weight n3=200

A plan holds for one layout: whatever changes it meanwhile makes the plan one to look at only.";

/// `annulus plan ..`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Compute what changes would do, show it and keep it; nothing else is changed
    #[command(after_help = CHANGES)]
    Make {
        /// Which ring
        ring: RingName,
        /// The changes, as words; see below
        #[arg(required = true, value_name = "CHANGE")]
        changes: Vec<String>,
        /// How it is looked at.
        #[command(flatten)]
        look: LookArgs,
    },
    /// Show a kept plan: who copies what from whom, load, disks, time, ways back
    Show {
        /// Which ring
        ring: RingName,
        /// Which plan
        #[arg(value_parser = from_one::<u64>)]
        plan: u64,
        /// How it is looked at.
        #[command(flatten)]
        look: LookArgs,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// The kept plans of a ring
    List {
        /// Which ring
        ring: RingName,
        /// Answer from the asked server's own state, whatever its age
        #[arg(long)]
        local: bool,
    },
    /// Print a kept plan whole, every list before and after, as JSON
    Export {
        /// Which ring
        ring: RingName,
        /// Which plan
        #[arg(value_parser = from_one::<u64>)]
        plan: u64,
        /// How it is looked at.
        #[command(flatten)]
        look: LookArgs,
    },
    /// Say in what two kept plans differ: changes, figures, lists
    Diff {
        /// Which ring
        ring: RingName,
        /// One plan
        #[arg(value_parser = from_one::<u64>)]
        one: u64,
        /// The other
        #[arg(value_parser = from_one::<u64>)]
        other: u64,
        /// How they are looked at.
        #[command(flatten)]
        look: LookArgs,
    },
    /// Do what a plan says, exactly that, or refuse all of it
    Commit {
        /// Which ring
        ring: RingName,
        /// Which plan
        #[arg(value_parser = from_one::<u64>)]
        plan: u64,
        /// Return as soon as the changes are accepted
        #[arg(long)]
        detach: bool,
    },
    /// Keep a plan no longer
    Drop {
        /// Which ring
        ring: RingName,
        /// Which plan
        #[arg(value_parser = from_one::<u64>)]
        plan: u64,
    },
}

/// How a plan is looked at.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LookArgs {
    /// Foretell the time as if each node copied at most so many bytes a second [default: each
    /// node's own limit]
    #[arg(long, value_name = "BYTES", value_parser = from_one::<u64>)]
    pub throttle: Option<u64>,
}
