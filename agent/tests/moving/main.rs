//! Agents move ranges over real sockets; a leader in the test's hand tells them to.
//!
//! Lists are of two nodes, w = 2: slot 0 is [a, b], slot 1 is [b, a], and a gainer takes b's place
//! in slot 0. In `stories` and `rules` they are of three, [a, b, c], and g takes c's place.

#![allow(clippy::unwrap_used, reason = "an expectation of the test")]

use annulus_agent::Place;
use annulus_ring::{Epoch, Slot};

mod c50_clean_up;
mod c52_missing_data;
mod cache;
mod failover;
mod hand_over;
mod leader;
mod memory;
mod node;
mod outage;
mod ring;
mod rules;
mod stories;
mod take_over;
mod transition;

/// A slot of a ring that was never converted.
fn placed(slot: Slot) -> Place {
    let converted = Epoch(0);
    Place { slot, converted }
}

const SLOT: Slot = Slot(0);
const OTHER: Slot = Slot(1);
