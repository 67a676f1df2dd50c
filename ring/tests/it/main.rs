//! Placement, layouts, lookup and vectors, against naive models and hand-made rings.
//!
//! One binary, since each would link everything anew. A case of the design's list has its number
//! in front of its name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod cases;
mod cases_layouts;
mod choices;
mod common;
mod evening;
mod jump;
mod ketama;
mod lookup;
mod properties;
mod ranges;
mod rules;
mod scale;
mod tokens;
mod vectors;
