//! A seeded, exactly replayable model of one ring: random changes, deaths, returns, emptied disks,
//! late, repeated and lost reports, new and deposed leaders, and forged commands, with every promise
//! of the state checked after each entry.
//!
//! `cargo x model --steps 1000000 --seed 1` runs the long form and prints what it has seen. A broken
//! promise is shrunk to a short scenario; put into `found/`, it is replayed for ever.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod coverage;
mod episode;
mod golden;
mod moves;
mod node;
mod promises;
mod run;
mod shrink;
mod trial;
mod variants;
mod verb;
mod world;
