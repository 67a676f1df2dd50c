//! The shelf: every ring's kept epochs, their sections stored once and counted.
//!
//! Replicated beside the state and part of the log snapshot, so it is ordered, deterministic
//! and trimmed by rules that every server applies alike, whoever is down.

use std::collections::{BTreeMap, VecDeque};

use annulus_ring::{Checksum, Epoch, Generation, RingName, TransitionId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{snapshot::Encoded, v1};

mod history;
mod stored;

pub use history::KeptList;

/// Most kept epochs of one ring.
pub const MAX_EPOCHS: usize = 1_000;
/// Most bytes of sections over all rings, each section counted once.
pub const MAX_BYTES: usize = 256 << 20;

/// Kept epochs of all rings.
///
/// Trimmed from the oldest on to [`MAX_EPOCHS`] a ring, and to [`MAX_BYTES`] in all by taking
/// from the ring that uses most. Never trimmed: a ring's newest epoch, and the base of its
/// running transition (the last epoch before it).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "stored::StoredShelf", into = "stored::StoredShelf")]
pub struct Shelf {
    rings: BTreeMap<RingName, History>,
}

type SectionHash = [u8; 32];

/// One ring's kept epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct History {
    /// Oldest first; ordered by (generation, epoch).
    epochs: VecDeque<Kept>,
    sections: BTreeMap<SectionHash, Counted>,
    /// Over `sections`.
    bytes: usize,
}

/// One kept epoch: a list of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    generation: Generation,
    epoch: Epoch,
    checksum: Checksum,
    format: u32,
    transition: Option<TransitionId>,
    sections: Vec<SectionHash>,
}

/// A section, and how many times kept epochs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    bytes: Bytes,
    uses: usize,
}

impl Shelf {
    /// Puts a ring's newest epoch on the shelf and trims. Repeating the last push, or pushing
    /// what is not newer, changes nothing. O(sections x log(kept sections)).
    pub fn push(
        &mut self,
        ring: &RingName,
        generation: Generation,
        epoch: Epoch,
        encoded: &Encoded,
    ) {
        self.push_within(ring, generation, epoch, encoded, MAX_EPOCHS, MAX_BYTES);
    }

    fn push_within(
        &mut self,
        ring: &RingName,
        generation: Generation,
        epoch: Epoch,
        encoded: &Encoded,
        max_epochs: usize,
        max_bytes: usize,
    ) {
        let history = self.rings.entry(ring.clone()).or_default();
        if history
            .epochs
            .back()
            .is_some_and(|last| (generation, epoch) <= (last.generation, last.epoch))
        {
            return;
        }
        history.add(
            Kept {
                generation,
                epoch,
                checksum: encoded.checksum,
                format: encoded.format,
                transition: encoded.transition,
                sections: encoded.hashes.clone(),
            },
            encoded.sections.iter(),
        );
        while history.epochs.len() > max_epochs && history.trim_oldest() {}
        self.trim_to(max_bytes);
    }

    /// Takes from the ring that uses most bytes (of equals the first by name) that has
    /// something to give.
    fn trim_to(&mut self, max_bytes: usize) {
        let mut total = self.bytes();
        while total > max_bytes {
            let fullest = self
                .rings
                .iter_mut()
                .rev()
                .filter(|(_, history)| history.oldest_trimmable().is_some())
                .max_by_key(|(_, history)| history.bytes);
            let Some((_, history)) = fullest else { return };
            let before = history.bytes;
            history.trim_oldest();
            total -= before - history.bytes;
        }
    }

    /// A ring's newest epoch. Shares the bytes.
    #[must_use]
    pub fn newest(&self, ring: &RingName) -> Option<v1::SnapshotBytes> {
        let history = self.rings.get(ring)?;
        history.message(history.epochs.back()?)
    }

    /// The newest generation's snapshot of this epoch, if it is kept. Shares the bytes.
    #[must_use]
    pub fn get(&self, ring: &RingName, epoch: Epoch) -> Option<v1::SnapshotBytes> {
        let history = self.rings.get(ring)?;
        history.message(
            history
                .epochs
                .iter()
                .rev()
                .find(|kept| kept.epoch == epoch)?,
        )
    }

    /// A ring's kept epochs with their checksums, oldest first.
    #[must_use]
    pub fn epochs(&self, ring: &RingName) -> Vec<(Generation, Epoch, Checksum)> {
        let kept = self
            .rings
            .get(ring)
            .into_iter()
            .flat_map(|history| &history.epochs);
        kept.map(|kept| (kept.generation, kept.epoch, kept.checksum))
            .collect()
    }

    /// Rings that have kept epochs, by name.
    pub fn rings(&self) -> impl Iterator<Item = &RingName> {
        self.rings.keys()
    }

    /// Bytes of all sections, each counted once per ring.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rings.values().map(|history| history.bytes).sum()
    }
}

impl History {
    /// Adds an epoch; `bytes` are its sections in order.
    fn add<'a>(&mut self, kept: Kept, bytes: impl Iterator<Item = &'a Bytes>) {
        for (hash, bytes) in kept.sections.iter().zip(bytes) {
            let stored = &mut self.bytes;
            let counted = self.sections.entry(*hash).or_insert_with(|| {
                *stored += bytes.len();
                Counted {
                    bytes: bytes.clone(),
                    uses: 0,
                }
            });
            counted.uses += 1;
        }
        self.epochs.push_back(kept);
    }

    /// Place of the oldest epoch that is neither the newest nor the base of the running
    /// transition.
    fn oldest_trimmable(&self) -> Option<usize> {
        let newest = self.epochs.len().checked_sub(1)?;
        let running = self.epochs[newest].transition;
        let base = running.and_then(|_| {
            self.epochs
                .iter()
                .rposition(|kept| kept.transition != running)
        });
        // At most one of the first two is the base.
        (0..newest).find(|at| Some(*at) != base)
    }

    /// Drops that epoch and the sections only it used; says whether there was one.
    fn trim_oldest(&mut self) -> bool {
        let Some(kept) = self
            .oldest_trimmable()
            .and_then(|at| self.epochs.remove(at))
        else {
            return false;
        };
        for hash in &kept.sections {
            let Some(counted) = self.sections.get_mut(hash) else {
                continue;
            };
            counted.uses -= 1;
            if counted.uses == 0 {
                self.bytes -= counted.bytes.len();
                self.sections.remove(hash);
            }
        }
        true
    }

    fn message(&self, kept: &Kept) -> Option<v1::SnapshotBytes> {
        let sections = kept.sections.iter();
        Some(v1::SnapshotBytes {
            format: kept.format,
            checksum: Bytes::copy_from_slice(&kept.checksum.0),
            sections: sections
                .map(|hash| Some(self.sections.get(hash)?.bytes.clone()))
                .collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests;
