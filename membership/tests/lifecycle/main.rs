//! The life of rings, members and transitions, without I/O: scripted and shuffled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod failover;
mod plans;
mod quorums;
mod scenarios;
mod shuffle;
mod stories;
mod support;
