//! Placement offline: what a layout does to your keys, and what others would do to them.
//!
//! No cluster, no network: nodes and events come from flags or a file, keys are made from a seed
//! or read from a list or a trace. Floats are at home here, as nothing of it is ever replicated;
//! equal input and seed give equal reports, but for measured times.
//!
//! It must never decide anything: the assigner and the lookup are `annulus-ring`'s own, and what
//! other systems do is rebuilt here only to stand beside them.
//!
//! ```text
//!   Plan: nodes, layout, events ---> one map before and after each event --+
//!                                                                          +--> Report --> tables,
//!   Source: seed, list or trace ---> one pass over the keys, streamed -----+    JSON, CSV, charts
//! ```
//!
//! Memory does not grow with the number of keys: maps (a few MiB each at 2^14 slots), five counts
//! per node and map, and for files what [`keys`] remembers of repeats.
//!
//! Read on in [`scenario`] (what can be asked), [`measure`] (the one pass), [`report`] (what comes
//! out), [`compare`] (ours beside others) and [`claims`] (what is said elsewhere, checked).

mod chart;
pub mod claims;
pub mod cluster;
pub mod compare;
pub mod error;
pub mod fair;
pub mod hash;
pub mod hashes;
pub mod keys;
pub mod layout;
pub mod measure;
pub mod progress;
pub mod report;
pub mod scenario;
pub mod table;
pub mod text;
pub mod trace;
pub mod zipf;

pub use error::InputError;
