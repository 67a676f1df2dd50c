//! The reference data plane: a small replicated durable store.
//!
//! It exists to prove that what `annulus-client` and `annulus-agent` offer is enough to build a
//! store on, and to be copied from. It uses their public API and nothing else of this project. It
//! must never decide by itself who owns what, serve what the agent's guard did not admit, answer a
//! write that is not synced, or delete a copy that the agent did not name.
//!
//! Three nodes, a range with the list [a, b, c], w = 2, and one put:
//!
//! ```text
//!   client         a (owner)                        b                  c
//!     |--- put ----->| admit: epoch, sets, reign    |                  |
//!     |              | position (reign 7, seq 42)   |                  |
//!     |              | commit, synced               |                  |
//!     |              |--- replicate --------------->| judge, commit    |
//!     |              |--- replicate ----------------|----------------->| judge, commit
//!     |              |<-- stored -------------------|                  |
//!     |<-- (7, 42) --| two of [a, b, c] hold it     |                  |
//!     |              |<-- stored ----------------------------------------|
//! ```
//!
//! Reading order: `write` (the owner's path) with `lane` (the order of one slot) and `recover`
//! (what a restarted owner must make safe first); `peers` and `replica` (the other members);
//! `read`; `service` (the gRPC side, forwarding); [`store`] (copies of slots in one redb file);
//! [`client`]; [`load`] (a load that knows what it must find).
//!
//! # Limits
//!
//! Keys have 1 to 1,024 bytes, values up to 1 MiB, batches up to 1,000 writes and 4 MiB
//! ([`limits`]). A node keeps up to 16,384 writes that are not acknowledged yet, then refuses more.
//! Left out, each for its own issue: scans, conditional writes, expiry, collection of tombstones.

pub mod client;
pub mod config;
pub mod limits;
pub mod load;
pub mod metrics;
pub mod refused;
pub mod store;

mod channels;
mod lane;
mod node;
mod peers;
mod read;
mod recover;
mod replica;
mod serve;
mod service;
mod wire;
mod write;

#[cfg(test)]
mod tests;

/// Generated from `proto/kv.proto`.
pub mod pb {
    #![allow(missing_docs, clippy::all, clippy::unwrap_used)]
    tonic::include_proto!("annulus.kv.v1");
}

pub use annulus_agent::CopyLimits;
pub use client::{BatchItem, Error, Found, KvClient, KvClientConfig, WriteOptions, Written};
pub use config::KvConfig;
pub use serve::{Server, StartError};
