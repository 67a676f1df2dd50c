//! A cache ring over an existing fleet of Redis-protocol servers: an agent beside each server,
//! slots by the ring's hash of the key, entries moved by `DUMP` and `RESTORE` with their TTLs.
//!
//! ```text
//!   client: CacheClient --- lookup: key -> owner ---> redis-server of the owner
//!
//!   host 1                                    host 2 (joins)
//!   +--------------+      +-----------+      +-----------+      +--------------+
//!   | redis-server |<-----| RedisNode |----->| RedisNode |----->| redis-server |
//!   |              | DUMP |   agent   | Pull |   agent   | RES- |              |
//!   +--------------+ PTTL +-----------+      +-----------+ TORE +--------------+
//! ```
//!
//! **What a cache promises here.** A moved entry is found at its new owner, with what is left of
//! its TTL, if the warm-up gave it the time; otherwise it is a miss. An invalidation through
//! [`CacheClient::delete`] reaches every server that may serve the key, before and after the
//! switch, and an entry under way does not bring a deleted key back. **What it does not**: there
//! are no versions, so two writers of one key are ordered by each server for itself; there are no
//! digests, so nobody compares copies; a client that has not heard of an epoch yet (a second, as a
//! rule) invalidates under the old one, and what it misses lives as long as its TTL. Entries
//! without a TTL live until evicted: give them one.
//!
//! Clients speak to the servers directly, so the agent cannot refuse them anything:
//! `serve_when_isolated` has no effect here. One server is one node, database 0 alone; the
//! prefix `annulus:` of keys is this crate's. The ring is a cache ring of any rf; founded over
//! a fleet that holds entries already, those that lie elsewhere than the ring says are misses.
//!
//! Read on in [`store`] (what the agent drives), [`node`] (the process beside a server),
//! [`client`] (reads, writes, invalidations).

pub mod client;
pub mod node;
pub mod store;

mod copies;
mod entry;
mod server;
#[cfg(test)]
mod tests;

pub use client::{CacheClient, CacheError};
pub use node::{RedisNode, RedisNodeConfig, StartError};
pub use server::ServerError;
pub use store::{OpenError, RedisStore};
