//! The one ordered log of the control plane: openraft on sled, and the replicated state on top.
//!
//! ```text
//!   propose ----> openraft ----> log_store (sled, synced) ----> peers (network / service)
//!                    |  committed
//!                    v
//!                 machine ----> Shared (State + Shelf) ----> api, publish, drive read it
//!                    |
//!                    v
//!              log_snapshot (files)
//! ```
//!
//! openraft and sled stop at this folder's border: what leaves it are `membership`'s types and
//! the few of this file. Read on in `propose` (how a request becomes an entry), `machine` (what
//! a committed entry does), `log_store` (what "on disk" means here).

mod bait;
mod codec;
mod error;
mod fatal;
mod init;
mod log_snapshot;
mod log_store;
mod machine;
mod network;
mod node;
mod propose;
mod runtime;
mod service;
mod shared;
mod standing;
mod types;
mod wire;

pub mod dial;
#[doc(hidden)]
pub mod testing;

pub use dial::Dial;
pub use error::{InitError, ProposeError, ReadError, StartError};
pub use log_store::MemoryStorage;
pub use node::{Node, NodeConfig, Storage, WallClock};
pub use propose::MAX_ENTRY_BYTES;
pub use runtime::seed_this_thread;
pub use service::RaftService;
pub use shared::{Applied, Shared};
pub use standing::{Leader, Role, Standing, Voter};
