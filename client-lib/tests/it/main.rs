//! The library against stub servers on loopback.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows test functions, not what they share"
)]

mod admin;
mod damage;
mod disk;
mod own_ring;
mod rings;
mod router;
mod stub;
mod watch;
