//! The shelf in a log snapshot: each section once, epochs as indexes into them.
//!
//! Hashes and counts are not stored: they follow from the bytes, and are computed again when
//! the log snapshot is read, which also finds damage.

use std::{collections::BTreeMap, fmt};

use annulus_ring::{Checksum, Epoch, Generation, RingName, TransitionId};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{History, Kept, Shelf};
use crate::snapshot::{checksum, hash_section};

/// Why a stored shelf was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("shelf of ring {ring}, epoch {epoch}: names section {index} of {count}")]
    Index {
        ring: RingName,
        epoch: Epoch,
        index: u32,
        count: usize,
    },
    #[error("shelf of ring {ring}, epoch {epoch}: hashes to {found}, expected {expected}")]
    Checksum {
        ring: RingName,
        epoch: Epoch,
        found: Checksum,
        expected: Checksum,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredShelf {
    rings: BTreeMap<RingName, StoredHistory>,
}

#[derive(Serialize, Deserialize)]
struct StoredHistory {
    /// In the order of their hashes.
    sections: Vec<Section>,
    epochs: Vec<StoredEpoch>,
}

#[derive(Serialize, Deserialize)]
struct StoredEpoch {
    generation: Generation,
    epoch: Epoch,
    checksum: Section,
    format: u32,
    transition: Option<TransitionId>,
    sections: Vec<u32>,
}

/// Bytes: hex where people may read, bytes elsewhere.
struct Section(Bytes);

impl Serialize for Section {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.serialize_str(&hex::encode(&self.0))
        } else {
            to.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Section {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Section;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section as hex digits or bytes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Section, E> {
                hex::decode(text)
                    .map(|bytes| Section(bytes.into()))
                    .map_err(E::custom)
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Section, E> {
                Ok(Section(Bytes::copy_from_slice(bytes)))
            }
            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Section, E> {
                Ok(Section(bytes.into()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Section, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Section(bytes.into()))
            }
        }
        if from.is_human_readable() {
            from.deserialize_str(Visitor)
        } else {
            from.deserialize_byte_buf(Visitor)
        }
    }
}

impl From<Shelf> for StoredShelf {
    fn from(shelf: Shelf) -> Self {
        let rings = shelf.rings.into_iter();
        Self {
            rings: rings
                .map(|(ring, history)| (ring, history.into()))
                .collect(),
        }
    }
}

impl From<History> for StoredHistory {
    fn from(history: History) -> Self {
        let index: BTreeMap<_, _> = history.sections.keys().zip(0_u32..).collect();
        let epochs = history.epochs.iter().map(|kept| StoredEpoch {
            generation: kept.generation,
            epoch: kept.epoch,
            checksum: Section(Bytes::copy_from_slice(&kept.checksum.0)),
            format: kept.format,
            transition: kept.transition,
            sections: kept.sections.iter().map(|hash| index[hash]).collect(),
        });
        let epochs = epochs.collect();
        let sections = history.sections.into_values();
        Self {
            sections: sections.map(|counted| Section(counted.bytes)).collect(),
            epochs,
        }
    }
}

impl TryFrom<StoredShelf> for Shelf {
    type Error = Damage;
    fn try_from(stored: StoredShelf) -> Result<Self, Damage> {
        let mut shelf = Self::default();
        for (ring, history) in stored.rings {
            let history = history.restore(&ring)?;
            shelf.rings.insert(ring, history);
        }
        Ok(shelf)
    }
}

impl StoredHistory {
    fn restore(self, ring: &RingName) -> Result<History, Damage> {
        let sections: Vec<_> = self.sections.into_iter().map(|section| section.0).collect();
        let hashes: Vec<_> = sections
            .iter()
            .map(|section| hash_section(section))
            .collect();
        let mut history = History::default();
        for stored in self.epochs {
            let epoch = stored.epoch;
            let wrong = stored
                .sections
                .iter()
                .find(|at| **at as usize >= sections.len());
            if let Some(index) = wrong {
                let (ring, count) = (ring.clone(), sections.len());
                return Err(Damage::Index {
                    ring,
                    epoch,
                    index: *index,
                    count,
                });
            }
            let at = || stored.sections.iter().map(|at| *at as usize);
            let lengths = at().map(|at| sections[at].len());
            let own: Vec<_> = at().map(|at| hashes[at]).collect();
            let found = checksum(stored.format, lengths.zip(own.iter()));
            if found.0[..] != stored.checksum.0[..] {
                let expected = stored.checksum.0[..]
                    .try_into()
                    .map(Checksum)
                    .unwrap_or_default();
                return Err(Damage::Checksum {
                    ring: ring.clone(),
                    epoch,
                    found,
                    expected,
                });
            }
            let bytes = at().map(|at| &sections[at]);
            let kept = Kept {
                generation: stored.generation,
                epoch,
                checksum: found,
                format: stored.format,
                transition: stored.transition,
                sections: own,
            };
            history.add(kept, bytes);
        }
        Ok(history)
    }
}
