//! The snapshot that everything is routed by: one atomic swap, never to an older epoch.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use annulus_proto::{
    snapshot::{DecodeError, Expect, verify_and_decode},
    v1,
};
use annulus_ring::{
    Checksum, ClusterId, Epoch, Generation, Lookup, RingName, Snapshot, SnapshotError,
};
use arc_swap::ArcSwapOption;
use tokio::sync::watch;

/// A place in a ring's history: which snapshot, and what its bytes hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRef {
    /// Rises when a backup is restored.
    pub generation: Generation,
    /// The epoch within the generation.
    pub epoch: Epoch,
    /// SHA-256 over the snapshot's sections.
    pub checksum: Checksum,
}

impl EpochRef {
    /// The order of snapshots: generation first.
    #[must_use]
    pub fn order(&self) -> (Generation, Epoch) {
        (self.generation, self.epoch)
    }
}

impl fmt::Display for EpochRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{} ({:?})",
            self.generation, self.epoch, self.checksum
        )
    }
}

/// Why a snapshot was refused. What was held before is held still.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotRefused {
    /// Not what was sent, not for us, not newer, or without sense.
    #[error(transparent)]
    Damaged(#[from] DecodeError),
    /// It decoded, and could not be compiled for lookup.
    #[error("snapshot epoch {epoch}: {source}")]
    Compile {
        /// Its epoch.
        epoch: Epoch,
        /// Why not.
        source: SnapshotError,
    },
}

impl SnapshotRefused {
    /// Whether this is no damage: the reader already holds this epoch or a newer one.
    #[must_use]
    pub fn is_old_news(&self) -> bool {
        matches!(self, Self::Damaged(DecodeError::NotNewer { .. }))
    }

    /// The alarm: one epoch with two checksums, as (epoch, held, found).
    #[must_use]
    pub fn fork(&self) -> Option<(Epoch, Checksum, Checksum)> {
        match self {
            Self::Damaged(DecodeError::Fork {
                epoch, found, held, ..
            }) => Some((*epoch, *held, *found)),
            _ => None,
        }
    }
}

/// What is held, and the one door through which it changes.
///
/// Readers take the swap alone; the lock orders writers, so that two offers at once cannot
/// leave the older one in place (WATCH-MONOTONE).
#[derive(Debug)]
pub(crate) struct Current {
    ring: RingName,
    swap: Arc<ArcSwapOption<Lookup>>,
    door: Mutex<Door>,
    epochs: watch::Sender<Option<EpochRef>>,
}

#[derive(Debug)]
struct Door {
    /// As configured, or as the first accepted snapshot told.
    cluster_id: Option<ClusterId>,
    held: Option<EpochRef>,
}

impl Current {
    pub(crate) fn new(ring: RingName, cluster_id: Option<ClusterId>) -> Self {
        Self {
            ring,
            swap: Arc::default(),
            door: Mutex::new(Door {
                cluster_id,
                held: None,
            }),
            epochs: watch::Sender::new(None),
        }
    }

    pub(crate) fn ring(&self) -> &RingName {
        &self.ring
    }

    /// The one pointer of the hot path.
    pub(crate) fn swap(&self) -> &Arc<ArcSwapOption<Lookup>> {
        &self.swap
    }

    pub(crate) fn held(&self) -> Option<EpochRef> {
        self.door().held
    }

    pub(crate) fn epochs(&self) -> watch::Receiver<Option<EpochRef>> {
        self.epochs.subscribe()
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the bytes, compiles them, swaps. O(slots x rf); nothing changes on an error.
    ///
    /// APPLY-ATOMIC: every check comes before the one store, and a lookup loads once.
    pub(crate) fn offer(&self, bytes: &v1::SnapshotBytes) -> Result<EpochRef, SnapshotRefused> {
        let mut door = self.door();
        let snapshot = verify_and_decode(
            bytes,
            Expect {
                cluster_id: door.cluster_id,
                ring: &self.ring,
                held: door
                    .held
                    .map(|held| (held.generation, held.epoch, held.checksum)),
            },
        )?;
        let reference = reference(&snapshot, bytes);
        let (cluster_id, epoch) = (snapshot.cluster_id, snapshot.epoch);
        let lookup = Lookup::compile(Arc::new(snapshot))
            .map_err(|source| SnapshotRefused::Compile { epoch, source })?;
        assert!(
            door.held
                .is_none_or(|held| held.order() < reference.order()),
            "WATCH-MONOTONE: {reference} was let through while {:?} is held",
            door.held
        );
        self.swap.store(Some(Arc::new(lookup)));
        door.cluster_id = Some(cluster_id);
        door.held = Some(reference);
        // Inside the lock: whoever hears of an epoch finds it, or a newer one, in the swap.
        self.epochs.send_replace(Some(reference));
        Ok(reference)
    }
}

/// The checksum is the one just verified, so 32 bytes long.
fn reference(snapshot: &Snapshot, bytes: &v1::SnapshotBytes) -> EpochRef {
    let checksum = bytes.checksum[..]
        .try_into()
        .expect("a verified checksum has 32 bytes");
    EpochRef {
        generation: snapshot.generation,
        epoch: snapshot.epoch,
        checksum: Checksum(checksum),
    }
}

#[cfg(test)]
mod tests;
