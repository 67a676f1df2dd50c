//! The harness: clusters of real processes, a load that is judged, and eyes on every epoch.
//!
//! It never reaches into a process: what it knows it got from a command line, a gRPC call, a log
//! file or `/proc`, as any operator could. It ends every process it started, also when a test fails.
//!
//! ```text
//!   a test --> Cluster --> Process x n     servers and data nodes: kill, pause, start again
//!         \--> Timeline                    every epoch as clients saw it, and what each means
//!         \--> Load --> Ledger             writers, readers, and the judge of every answer
//!         \--> probe                       one node asked directly, past all routing
//! ```
//!
//! Waiting is always for a condition ([`wait::until`]); a time is only ever the limit.

pub mod cluster;
pub mod command;
pub mod files;
pub mod history;
pub mod ledger;
pub mod liar;
pub mod load;
pub mod ports;
pub mod probe;
pub mod process;
pub mod stand_in;
pub mod timeline;
pub mod wait;
