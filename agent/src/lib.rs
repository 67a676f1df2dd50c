//! On data nodes: the link to the control plane, the epoch guard, and the movement of ranges.
//!
//! The user's store stays the user's: it implements [`RangeStore`] and asks the [`EpochGuard`]
//! before it serves. The agent does the rest: it tells the leader what this node durably holds,
//! takes in views, and copies, verifies, promotes and releases ranges as they demand.
//!
//! ```text
//!                 leader of the control plane
//!        Hello, Renew, Report ^   | View, Directive
//!                             |   v
//!   +----------------------- link ------------------------------+
//!   |  board <--- work: gain, tend, hand over, release          |      other agents
//!   |    ^             |         ^                              |
//!   |    |             |         '-- fetch <--------------------|--- Pull, Tail, Digest
//!   |  adopt --------> | RangeStore (the user's, durable) ------|--> peer service
//!   |    |             ^                                        |
//!   |    v             | reads and writes                       |
//!   |  guard ------> the user's services <----------------------|--- clients, replicas
//!   +-----------------------------------------------------------+
//! ```
//!
//! What it must never do: say something to the leader that is not durable, serve a range of which
//! no copy is held, answer another node for a reign that it does not own, delete a copy without
//! a permit that was read right before.
//!
//! A join on three nodes a, b, c with a gainer g, rf 3, as g lives through it: step 1 opens hidden
//! staging copies and says so; from 2 on the owners send every write there too; at 3 each range
//! is pulled from its owner at a cut; at 4 holes are closed and digests compared at the same cut;
//! at 6 everything up to the owner's J is merged; at 7 staging becomes live *before* the guard
//! obeys the epoch, so g never answers for what it has not got.
//!
//! Read on in [`store`] (what a store must offer; the feature `conformance` brings the checks that
//! it runs against itself), [`guard`] (what it must ask), `adopt` (from a
//! view to an ack), `work` (what runs in between).

mod adopt;
mod agent;
mod bait;
mod board;
pub mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod digest;
mod fetch;
pub mod guard;
pub mod identity;
mod link;
mod mend;
pub mod metrics;
pub mod peer;
mod plan;
mod shared;
pub mod store;
mod strain;
mod terms;
mod throttle;
mod tree;
pub mod view;
mod wire;
mod work;

pub use agent::{Agent, AgentError, AgentStatus, Repairer};
pub use config::{AgentConfig, ConfigError, CopyLimits};
pub use guard::{
    Admission, EpochGuard, Intent, Peer, Refusal, ReplicaAdmission, ReplicaStamp, SourceStamp,
    Stamp,
};
pub use identity::IdentityError;
pub use metrics::Metrics;
pub use peer::{PeerServer, PeerService};
pub use store::{
    Copy, Cut, DigestAt, Holding, RangeStore, Record, Records, SlotOf, StoreError, Stray, Versions,
    Watermark,
};
pub use view::{NodeView, Place};
