//! What lies between two snapshots of one ring, small enough to send for every epoch.
//!
//! ```text
//!   base   header | a | b | c | slots 0.. | slots 1024.. | target
//!   delta  header'      b'       (17, [b x a]) (1030, [c x b])        <- changed pairs alone
//!   new    header'| a | b'| c | slots 0..'| slots 1024..'|
//! ```
//!
//! A delta is not trusted: the sections that it leads to are hashed like those of any
//! snapshot, and unless they are byte for byte the sections that the sender has, it is refused
//! and the reader asks for the full snapshot. So a delta can never be applied in part, to
//! another base, or by a reader that would encode a field differently.
//!
//! A join of one node to 120 with 2^14 slots takes some 1.8 KB, the full snapshot 50 KB.

use annulus_ring::{Checksum, Epoch, Generation, Snapshot};

use crate::{
    snapshot::{DecodeError, Expect, verify_and_decode_with},
    v1,
};

mod apply;
mod encode;
mod pairs;

pub use encode::between;

/// A snapshot as bytes together with its value.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// As received or encoded; verified by whoever holds it.
    pub bytes: &'a v1::SnapshotBytes,
    /// What was decoded from them.
    pub snapshot: &'a Snapshot,
}

/// Why a delta was refused. The reader keeps what it has and asks for the full snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// It starts from a snapshot that is not the one held.
    #[error(
        "delta from epoch {found_generation}/{found} ({found_checksum}), held is \
         {held_generation}/{held} ({held_checksum})"
    )]
    Base {
        /// Generation that it names.
        found_generation: Generation,
        /// Epoch that it names.
        found: Epoch,
        /// Checksum that it names; zeroes when it had not 32 bytes.
        found_checksum: Checksum,
        /// Generation held.
        held_generation: Generation,
        /// Epoch held.
        held: Epoch,
        /// Checksum held; zeroes when the bytes held have none.
        held_checksum: Checksum,
    },
    /// It cannot be put together with its base.
    #[error("delta: {what}")]
    Shape {
        /// What does not fit.
        what: &'static str,
    },
    /// It leads to bytes that the sender does not have, or to a snapshot that is refused.
    #[error("delta: {0}")]
    Leads(#[from] DecodeError),
}

/// The snapshot that a delta leads to, verified and decoded like any other.
///
/// Cost: O(members + slots x rf); sections that the delta does not touch are shared, those it
/// does are packed again, and all are hashed.
///
/// # Errors
/// [`DeltaError`]; nothing of the delta is used then. `expect` is what
/// [`crate::snapshot::verify_and_decode`] is asked with.
pub fn apply(
    held: Held<'_>,
    delta: &v1::Delta,
    expect: Expect<'_>,
) -> Result<(v1::SnapshotBytes, Snapshot), DeltaError> {
    let (bytes, known) = apply::sections(held, delta)?;
    let snapshot = verify_and_decode_with(&bytes, expect, Some(known))?;
    Ok((bytes, snapshot))
}
