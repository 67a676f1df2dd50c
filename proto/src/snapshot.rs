//! A snapshot as bytes: encode, verify, decode. The only place that hashes one.
//!
//! Bytes are hashed as sent and checked as received; nobody encodes again to verify. Why:
//! `docs/decisions/0002-snapshot-bytes.md`.

use annulus_ring::{
    Checksum, ClusterId, Epoch, Generation, RingName, Slot, SnapshotError, TransitionId,
};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{MAX_MESSAGE_BYTES, convert::ConvertError, v1};

pub(crate) mod decode;
pub(crate) mod encode;

pub use encode::encode;

/// Slots per slot section and per target section.
pub const SLOTS_PER_SECTION: usize = 1_024;

/// Sets this hash apart from every other use of SHA-256.
const DOMAIN: &[u8] = b"annulus snapshot\0";

/// A snapshot's sections and what they hash to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// SHA-256 over the sections; names this snapshot for ever.
    pub checksum: Checksum,
    /// Header, members, slots, target, in this order.
    pub sections: Vec<Bytes>,
    /// SHA-256 of each section, in order.
    pub hashes: Vec<[u8; 32]>,
    /// The `format` of the sections.
    pub format: u32,
    /// The transition that runs at this epoch: the shelf keeps the epoch it began from.
    pub transition: Option<TransitionId>,
}

impl Encoded {
    /// Hashes sections.
    fn new(format: u32, sections: Vec<Bytes>, transition: Option<TransitionId>) -> Self {
        let hashes: Vec<_> = sections
            .iter()
            .map(|section| hash_section(section))
            .collect();
        let lengths = sections.iter().map(Bytes::len);
        let checksum = checksum(format, lengths.zip(&hashes));
        Self {
            checksum,
            sections,
            hashes,
            format,
            transition,
        }
    }

    /// The message that carries it; shares the bytes.
    #[must_use]
    pub fn message(&self) -> v1::SnapshotBytes {
        v1::SnapshotBytes {
            format: self.format,
            checksum: Bytes::copy_from_slice(&self.checksum.0),
            sections: self.sections.clone(),
        }
    }

    /// Payload bytes over all sections.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.sections.iter().map(Bytes::len).sum()
    }
}

impl From<&Encoded> for v1::SnapshotBytes {
    fn from(encoded: &Encoded) -> Self {
        encoded.message()
    }
}

/// SHA-256 of one section.
pub(crate) fn hash_section(section: &[u8]) -> [u8; 32] {
    Sha256::digest(section).into()
}

/// SHA-256 over the domain tag, the format, the number of sections, then length and hash of
/// each. Numbers are big-endian: format and count in 4 bytes, lengths in 8.
pub(crate) fn checksum<'a>(
    format: u32,
    sections: impl ExactSizeIterator<Item = (usize, &'a [u8; 32])>,
) -> Checksum {
    let mut hasher = Sha256::new();
    hasher.update(DOMAIN);
    hasher.update(format.to_be_bytes());
    hasher.update((sections.len() as u32).to_be_bytes());
    for (length, hash) in sections {
        hasher.update((length as u64).to_be_bytes());
        hasher.update(hash);
    }
    Checksum(hasher.finalize().into())
}

/// What a receiver expects of the next snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'a> {
    /// The cluster, once known; a first snapshot tells it.
    pub cluster_id: Option<ClusterId>,
    /// The ring that was asked for.
    pub ring: &'a RingName,
    /// What the receiver has: nothing at or below it is taken.
    pub held: Option<(Generation, Epoch, Checksum)>,
}

/// Why a snapshot was refused. The receiver keeps what it has, counts this by
/// [`DecodeError::kind`], says why, and asks again with backoff.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// More bytes than any snapshot has, or none.
    #[error("snapshot has {found} bytes in {sections} sections, expected 1 to {limit} bytes")]
    Length {
        /// Bytes found over all sections.
        found: usize,
        /// Sections found.
        sections: usize,
        /// Most bytes allowed.
        limit: usize,
    },
    /// The bytes are not those that were sent.
    #[error("snapshot: sections hash to {found}, the message says {expected}")]
    Checksum {
        /// What the bytes hash to.
        found: Checksum,
        /// What came with them; zeroes when it had not 32 bytes.
        expected: Checksum,
    },
    /// A format from the future: upgrade this program.
    #[error("snapshot format {found} is not known here, expected {expected}; upgrade this program")]
    Format {
        /// As found.
        found: u32,
        /// What this build reads.
        expected: u32,
    },
    /// Another control plane answered.
    #[error("snapshot is of cluster {found}, expected {expected}; check the endpoints")]
    Cluster {
        /// As found.
        found: ClusterId,
        /// As known.
        expected: ClusterId,
    },
    /// Another ring was sent.
    #[error("snapshot is of ring {found}, expected {expected}")]
    Ring {
        /// As found.
        found: String,
        /// As asked for.
        expected: RingName,
    },
    /// The receiver has this or a newer one.
    #[error("snapshot epoch {found_generation}/{found} is not newer than {held_generation}/{held}")]
    NotNewer {
        /// Generation found.
        found_generation: Generation,
        /// Epoch found.
        found: Epoch,
        /// Generation held.
        held_generation: Generation,
        /// Epoch held.
        held: Epoch,
    },
    /// The alarm: one epoch with two checksums (EPOCH-UNIQUE is broken).
    #[error("FORK: snapshot epoch {generation}/{epoch} hashes to {found}, the one held to {held}")]
    Fork {
        /// Their generation.
        generation: Generation,
        /// Their epoch.
        epoch: Epoch,
        /// The new one's checksum.
        found: Checksum,
        /// The held one's.
        held: Checksum,
    },
    /// The next epoch does not follow from the one held (EPOCH-CHAIN is broken).
    #[error(
        "snapshot epoch {generation}/{epoch} names predecessor {found}, the one held hashes to \
         {held}"
    )]
    Predecessor {
        /// Its generation.
        generation: Generation,
        /// Its epoch.
        epoch: Epoch,
        /// What it names.
        found: Checksum,
        /// What is held.
        held: Checksum,
    },
    /// Keys cannot be hashed here: upgrade this program.
    #[error("snapshot epoch {epoch}: {source}; upgrade this program")]
    UnknownHash {
        /// Its epoch.
        epoch: Epoch,
        /// Which.
        source: annulus_ring::hash::UnknownHash,
    },
    /// The circle cannot be cut here: upgrade this program.
    #[error("snapshot epoch {epoch}: layout {found} is not known here; upgrade this program")]
    UnknownLayout {
        /// Its epoch.
        epoch: Epoch,
        /// Number of the layout's kind.
        found: i32,
    },
    /// A member in a state that is not known here counts as not serving, yet it is listed
    /// for reads: upgrade this program.
    #[error(
        "snapshot epoch {epoch}: slot {slot} is read at {node}, whose state {found} is not known \
         here; upgrade this program"
    )]
    UnknownState {
        /// Its epoch.
        epoch: Epoch,
        /// A slot whose read set names the member.
        slot: Slot,
        /// The member.
        node: annulus_ring::NodeId,
        /// Number of the state.
        found: i32,
    },
    /// Not a message of its kind.
    #[error("snapshot section {section}: {source}")]
    Section {
        /// Place of the section, from 0.
        section: usize,
        /// What prost found.
        source: prost::DecodeError,
    },
    /// A field that is no value.
    #[error("snapshot section {section}: {source}")]
    Field {
        /// Place of the section, from 0.
        section: usize,
        /// Which field, and why.
        source: ConvertError,
    },
    /// Sections that do not fit together.
    #[error("snapshot section {section}: {what}")]
    Shape {
        /// Place of the section, from 0.
        section: usize,
        /// What does not fit.
        what: &'static str,
    },
    /// It decodes, and makes no sense.
    #[error("snapshot epoch {epoch}: {source}")]
    Sense {
        /// Its epoch.
        epoch: Epoch,
        /// Why not.
        source: SnapshotError,
    },
}

impl DecodeError {
    /// One word per variant, for counters and logs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Length { .. } => "length",
            Self::Checksum { .. } => "checksum",
            Self::Format { .. } => "format",
            Self::Cluster { .. } => "cluster",
            Self::Ring { .. } => "ring",
            Self::NotNewer { .. } => "not_newer",
            Self::Fork { .. } => "fork",
            Self::Predecessor { .. } => "predecessor",
            Self::UnknownHash { .. } => "unknown_hash",
            Self::UnknownLayout { .. } => "unknown_layout",
            Self::UnknownState { .. } => "unknown_state",
            Self::Section { .. } | Self::Field { .. } | Self::Shape { .. } => "malformed",
            Self::Sense { .. } => "sense",
        }
    }
}

/// Checks received bytes in the order that a receiver must, then decodes them, then asks whether
/// the value makes sense. Costs one SHA-256 over the bytes and O(slots x rf).
///
/// The order: length, checksum of the bytes, format, cluster, ring, newer than held,
/// predecessor; then the rest is decoded; then [`annulus_ring::Snapshot::check`]. Before the
/// checksum holds, no byte of a section is interpreted.
///
/// # Errors
/// The first check that fails, as [`DecodeError`].
pub fn verify_and_decode(
    message: &v1::SnapshotBytes,
    expect: Expect<'_>,
) -> Result<annulus_ring::Snapshot, DecodeError> {
    verify_and_decode_with(message, expect, None)
}

/// As [`verify_and_decode`], where the lists are known from which the sections were packed.
pub(crate) fn verify_and_decode_with(
    message: &v1::SnapshotBytes,
    expect: Expect<'_>,
    known: Option<decode::Known>,
) -> Result<annulus_ring::Snapshot, DecodeError> {
    let (header, found) = verify(message, expect)?;
    let snapshot = decode::decode(message, header, known)?;
    snapshot.check().map_err(|source| DecodeError::Sense {
        epoch: found,
        source,
    })?;
    Ok(snapshot)
}

/// The checks that need the header alone.
fn verify(
    message: &v1::SnapshotBytes,
    expect: Expect<'_>,
) -> Result<(v1::SnapshotHeader, Epoch), DecodeError> {
    let found = message.sections.iter().map(Bytes::len).sum();
    let sections = message.sections.len();
    if sections == 0 || found == 0 || found > MAX_MESSAGE_BYTES {
        return Err(DecodeError::Length {
            found,
            sections,
            limit: MAX_MESSAGE_BYTES,
        });
    }

    let hashes: Vec<_> = message
        .sections
        .iter()
        .map(|section| hash_section(section))
        .collect();
    let lengths = message.sections.iter().map(Bytes::len);
    let found = checksum(message.format, lengths.zip(&hashes));
    if found.0[..] != message.checksum[..] {
        let expected = message.checksum[..]
            .try_into()
            .map(Checksum)
            .unwrap_or_default();
        return Err(DecodeError::Checksum { found, expected });
    }

    decode::format(message.format)?;
    let header = decode::section::<v1::SnapshotHeader>(message, 0)?;
    decode::format(header.format)?;
    let cluster_id = decode::field(
        0,
        crate::convert::cluster_id("cluster_id", &header.cluster_id),
    )?;
    if let Some(expected) = expect.cluster_id.filter(|expected| *expected != cluster_id) {
        return Err(DecodeError::Cluster {
            found: cluster_id,
            expected,
        });
    }
    if header.ring != expect.ring.as_str() {
        let expected = expect.ring.clone();
        return Err(DecodeError::Ring {
            found: header.ring,
            expected,
        });
    }
    let epoch = Epoch(header.epoch);
    if let Some(held) = expect.held {
        newer(&header, found, held)?;
    }
    Ok((header, epoch))
}

/// Newer than what is held, and, when it is the very next, its successor.
fn newer(
    header: &v1::SnapshotHeader,
    checksum: Checksum,
    (held_generation, held, held_checksum): (Generation, Epoch, Checksum),
) -> Result<(), DecodeError> {
    let (generation, epoch) = (Generation(header.generation), Epoch(header.epoch));
    if (generation, epoch) == (held_generation, held) && checksum != held_checksum {
        let (found, held) = (checksum, held_checksum);
        return Err(DecodeError::Fork {
            generation,
            epoch,
            found,
            held,
        });
    }
    if (generation, epoch) <= (held_generation, held) {
        let (found_generation, found) = (generation, epoch);
        return Err(DecodeError::NotNewer {
            found_generation,
            found,
            held_generation,
            held,
        });
    }
    if generation == held_generation && epoch == held.next() {
        let previous = decode::previous_checksum(header)?;
        if previous != held_checksum {
            let (found, held) = (previous, held_checksum);
            return Err(DecodeError::Predecessor {
                generation,
                epoch,
                found,
                held,
            });
        }
    }
    Ok(())
}
