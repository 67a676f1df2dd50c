//! The life of rings, members and transitions, without I/O: scripted and shuffled.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod plans;
mod scenarios;
mod shuffle;
mod support;
