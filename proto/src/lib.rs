//! The wire: protobuf messages, the bytes of a snapshot and their checksum.
//!
//! The one place where bytes become values. It decides nothing, keeps nothing but the shelf's
//! bytes, and does no I/O. What comes in is checked here, once: a value of a domain type is a
//! value that made sense.
//!
//! ```text
//!   ring::Snapshot --snapshot::encode--> sections + checksum --shelf--> every watcher
//!   watcher: length, checksum, format, cluster, ring, newer  THEN decode  THEN check
//! ```
//!
//! A ring of three nodes and two slots is five sections: a header, members `a`, `b` and `c`,
//! and one chunk of slots with four handles of two bits in one byte. Two epochs that differ in
//! one member's endpoint share all sections but the header and that member's.
//!
//! Read on in [`snapshot`] (encode, verify, decode), [`delta`] (what lies between two),
//! [`shelf`] (the kept epochs) and [`convert`] (everything smaller).

pub mod convert;
pub mod delta;
pub mod shelf;
pub mod snapshot;

mod packing;

/// Generated from `annulus/v1/*.proto`.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::unwrap_used)]
    tonic::include_proto!("annulus.v1");
}

/// Largest message that either end sends or decodes, in bytes; both ends set it, as tonic's own
/// limit is 4 MiB on the receiver alone.
///
/// The largest legal snapshot (2^20 slots, rf 7, every slot changing, 10,000 members) has
/// about 38 MB, and the view that a data node gets of it adds two numbers per slot.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
