//! Real servers in one process: what they answer, what they refuse, and what damage does to them.
//!
//! One binary, since each would link everything anew. Tests that need a process for themselves (a
//! quiet one, a simulated network, their own disk) stand beside this folder.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod api;
mod changes;
mod cluster;
mod damage;
mod plans;
#[path = "../servers/mod.rs"]
mod servers;
mod support;
