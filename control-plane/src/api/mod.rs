//! What others may ask of a server: operators, watchers, data nodes.
//!
//! Protobuf types stop here. A call is decoded and checked, handed on as domain values, and its
//! answer or refusal encoded; [`status`] is the only place that makes a gRPC status.

pub(crate) mod admin;
pub(crate) mod agent;
mod changes;
mod explain;
mod pass_on;
mod plans;
mod reports;
mod show;
pub(crate) mod status;
pub(crate) mod watch;

pub(crate) use show::{adopted, kind, progress};
