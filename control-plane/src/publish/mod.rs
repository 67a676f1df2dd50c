//! From applied state to whoever watches.

pub(crate) mod hub;
pub(crate) mod watchers;
