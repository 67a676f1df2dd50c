//! Decisions: the replicated state machine of rings, members and transitions.
//!
//! No I/O, no clock, no chance, no floats, no map order: the same log gives the same bytes on
//! every server and in ten years. Time enters in entries (`wall_ms` for people, `Tick` for what
//! must run out); random choices and targets are made by the proposer and checked here.
//!
//! ```text
//!   Entry --> State::apply --> Effect { outcome, published }
//!               |    decide(&self)  may this happen? which events follow?   may refuse
//!               |    evolve(&mut)   fold the events in                      cannot fail
//!
//!   (State, Reports) --> due() --> the next command the leader should propose
//!   (State, Reports) --> directive(node) --> what that data node should do
//! ```
//!
//! Read on in [`command`] (what may be asked), [`state`] (what is known), `decide` (the rules),
//! [`mod@due`] (the leader's next step), `cache` (what cache rings do without), [`conversion`] (another hash, or
//! twice as many slots).

mod bait;
pub mod burial;
mod cache;
pub mod command;
pub mod conversion;
mod decide;
pub mod due;
pub mod event;
pub mod evidence;
mod evolve;
pub mod expected;
pub mod fold;
pub mod greet;
pub mod kept;
pub mod outcome;
pub mod pins;
pub mod plan;
mod preflight;
pub mod rejection;
pub mod reports;
pub mod restart;
pub mod spans;
pub mod state;
pub mod told;
pub mod view;
pub mod wanted;

pub use cache::WarmUp;
pub use command::*;
pub use conversion::{CONVERSION_BUDGET_MS, Conversion, Coordinates};
pub use due::{due, found_command, tick_due};
pub use event::Event;
pub use greet::{Greeting, Hello, greet};
pub use kept::{Kept, Lack, why_kept};
pub use outcome::{Applied, Effect, Outcome};
pub use pins::{PinKind, Pins};
pub use plan::{Plan, PlanId, plan_command};
pub use rejection::{EvidenceFault, PermitFault, Rejection, TargetFault, WaveFault};
pub use reports::{Digest, Held, NodeReport, Report, Reports, SlotReport, SlotStanding, Word};
pub use restart::{Blocked, Restart};
pub use spans::Spans;
pub use state::{
    Afterwards, Answers, Brake, ChangePhase, ChangeRecord, KnownBirth, Maintenance, Registered,
    Requorum, RetainedCopies, RingState, RosterEntry, State, TransitionState, Wave,
};
pub use told::{Moved, change_waits, moved};
pub use wanted::{Directive, directive, waiting_for};

/// Most ranges of one hand-over wave.
pub const MAX_WAVE: usize = 64;
/// Most ranges of one failover: nothing is sealed for it that was not silent already.
pub const MAX_FAILOVER: usize = 1_024;
/// Members are not removed by themselves sooner than this after they went down, in ms.
pub const MIN_AUTO_REMOVE_MS: u64 = 10 * 60 * 1000;
/// Longest tick, in ms.
pub const MAX_TICK_MS: u64 = 10_000;
/// k of a ring that the log carries: founding 2^18 ranges makes the largest entry that fits.
pub const SLOT_BITS: std::ops::RangeInclusive<u8> = 1..=18;
/// Most rings of one control plane.
pub const MAX_RINGS: usize = 256;
/// Most changes that wait in one ring.
pub const MAX_QUEUE: usize = 1_000;
/// Ended changes that one ring remembers.
pub const MAX_ENDED_CHANGES: usize = 1_000;
/// Longest reason of a pause or a hold, in bytes.
pub const MAX_REASON: usize = 256;
/// Most pins of one ring, as (slot, node) pairs.
pub const MAX_PINS: usize = 10_000;
/// Most changes of one row.
pub const MAX_ROW: u32 = 100;
/// Longest maintenance, in ms of ring time.
pub const MAX_MAINTENANCE_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Zones, and weights, remembered that a member had before the present one.
pub const MAX_FORMER: usize = 8;
/// Births remembered per node id.
pub const MAX_BIRTHS: usize = 16;
/// Answers kept for retries.
pub const MAX_ANSWERS: usize = 100_000;
/// How long an answer is kept at least, in ms of ring time, while fewer than [`MAX_ANSWERS`].
pub const ANSWER_AGE_MS: u64 = 24 * 60 * 60 * 1000;
/// Most members of one ring.
pub const MAX_MEMBERS: usize = annulus_ring::node::MAX_MEMBERS;
