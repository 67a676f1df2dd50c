//! Routes keys by verified ring snapshots, without asking anybody.
//!
//! One task watches the control plane and keeps the newest snapshot; every lookup reads it
//! through one pointer. What comes in is checked before it is believed, and a client never goes
//! back to an older epoch, never bends the ring by its own opinion, and never fails a lookup
//! because the control plane is away.
//!
//! ```text
//!   server --Watch--> watch.rs --bytes--> current.rs: verify, decode, check, compile, swap
//!                         |                                  |
//!                         +--> cache.rs (last good file)     +--> Client::lookup(key) -> Route
//!                                                            +--> Router::call: stamp, send,
//!                                                                 refresh and send again
//! ```
//!
//! A worked ring of three nodes, four slots, two replicas; the slot is the top bits of the
//! key's hash:
//!
//! ```text
//!   slot 0 [a, b]   slot 1 [b, c]   slot 2 [c, a]   slot 3 [a, b]
//!   hash("user:42") = 9c..  ->  top bits 10  ->  slot 2  ->  owner c, then a
//! ```
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = annulus_client::Client::builder("cache")
//!     .endpoints(["127.0.0.1:1", "127.0.0.1:2"])
//!     .name("example")
//!     .connect_lazy()?;
//! // With `cache_dir` a start needs no control plane; without, it waits for the first answer.
//! match client.ready(Duration::from_millis(20)).await {
//!     Ok(held) => {
//!         let route = client.lookup(b"user:42")?;
//!         let owner = route.owner();
//!         println!("epoch {}: {} at {}", held.epoch, owner.node_id, owner.endpoint);
//!     }
//!     // Nobody listens at the ports of this example.
//!     Err(error) => assert!(error.is_retryable()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Read on in [`Client`] (lookups, epochs, status), [`Router`] (requests that follow the ring),
//! [`config`] (every setting with its price), [`dial`] (connections) and [`admin`] (operators'
//! calls).

pub mod admin;
pub mod config;
pub mod dial;
pub mod router;

mod backoff;
mod cache;
mod chance;
mod client;
mod current;
mod deadline;
mod endpoints;
mod error;
mod explain;
mod forward;
mod route;
mod status;
mod watch;

pub use admin::{AdminClient, AdminConfig, AdminError};
pub use client::Client;
pub use config::{Builder, Config};
pub use current::{EpochRef, SnapshotRefused};
pub use deadline::Deadline;
pub use dial::{Dial, DialError, DialSettings};
pub use error::{BoxError, ConfigError, Error, LookupError};
pub use route::{Reader, Route};
pub use router::{CallError, CallKind, Reach, Router, RouterConfig, RouterStats, Stamp, Target};
pub use status::{Fork, Source, Status};
