//! One control-plane server: raft on sled, the APIs, the publisher and the driver.
//!
//! All the I/O around `annulus-membership`, and none of its decisions: a server carries
//! requests into the log, shows what the log made of them, and carries out what the state says
//! ought to be. It never decides by a clock, and never answers by what is not committed.
//!
//! ```text
//!   operators      watchers       data nodes        other servers
//!       |              ^              ^  |                |
//!   api/admin      api/watch      api/agent             raft/
//!       |              |              |  v                |
//!       |         publish/hub         | links             |
//!       |              ^              |  |                |
//!       |              |              |  v                |
//!       |              |            drive  (leader only)  |
//!       v              |              v                   v
//!    raft: propose --> log --> apply --> State + Shelf <--+
//! ```
//!
//! A ring of three nodes, from nothing: three servers are started and told of each other once
//! (`InitCluster`). `CreateRing` publishes epoch 1, without members. Three agents say Hello to
//! the leader, which registers them; `JoinNode` collects them; `FoundRing` makes the three
//! members and publishes epoch 2. Every server's watchers have it as soon as that server has
//! applied the entry, byte for byte the same.
//!
//! Read on in `api` (what may be asked), [`raft`] (the log), `publish` (who is told), `links`
//! and `drive` (the leader's work).

mod api;
mod clock;
pub mod config;
mod context;
mod drive;
mod greeting;
mod links;
mod metrics;
mod publish;
pub mod raft;
mod server;

pub use annulus_membership::SLOT_BITS;
pub use config::{Config, ConfigError};
pub use server::{Ended, Server, StartError, Wiring};
