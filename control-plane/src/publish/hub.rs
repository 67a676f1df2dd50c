//! The newest bytes of every ring, and whom a new epoch wakes.
//!
//! Follows the applied state of this server, leader or not. A stream holds a receiver and looks
//! only at the newest value: a slow reader skips epochs, and costs no queue (BOUNDED).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use annulus_proto::v1;
use annulus_ring::{Epoch, Generation, RingName};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::raft::Shared;

/// One epoch of one ring, as it was encoded when its entry was applied.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// Rises when a backup is restored.
    pub(crate) generation: Generation,
    /// Of the snapshot.
    pub(crate) epoch: Epoch,
    /// Sections as `Bytes`: a clone shares them.
    pub(crate) bytes: v1::SnapshotBytes,
}

impl Published {
    /// Snapshots are ordered by this.
    pub(crate) fn place(&self) -> (Generation, Epoch) {
        (self.generation, self.epoch)
    }

    /// Payload, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.bytes
            .sections
            .iter()
            .map(|section| section.len() as u64)
            .sum()
    }
}

type Newest = watch::Sender<Arc<Published>>;

/// Newest bytes by ring.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
    rings: Mutex<BTreeMap<RingName, Newest>>,
}

impl Hub {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            rings: Mutex::default(),
        }
    }

    /// Follows the applied state until `stop`.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut applied = self.shared.applied();
        loop {
            let epochs = Arc::clone(&applied.borrow_and_update().epochs);
            for ring in epochs.keys() {
                self.refresh(ring);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = applied.changed() => if changed.is_err() { return },
            }
        }
    }

    /// The newest of `ring`, and a wake-up for each newer one. `None`: not applied here.
    pub(crate) fn subscribe(&self, ring: &RingName) -> Option<watch::Receiver<Arc<Published>>> {
        // The state may be ahead of `run`: a reader that just created the ring must find it.
        self.refresh(ring);
        self.rings().get(ring).map(watch::Sender::subscribe)
    }

    fn rings(&self) -> std::sync::MutexGuard<'_, BTreeMap<RingName, Newest>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest from the shelf, if it is newer.
    fn refresh(&self, ring: &RingName) {
        let mut rings = self.rings();
        let held = rings.get(ring).map(|newest| newest.borrow().place());
        let newer = self.shared.read(|state, shelf| {
            let known = state.rings.get(ring)?;
            let place = (known.generation, known.epoch);
            if held.is_some_and(|held| held >= place) {
                return None;
            }
            let bytes = shelf.get(ring, known.epoch)?;
            Some(Published {
                generation: known.generation,
                epoch: known.epoch,
                bytes,
            })
        });
        let Some(newer) = newer.map(Arc::new) else {
            return;
        };
        match rings.get(ring) {
            // WATCH-MONOTONE starts here: refreshes are serial under the lock, and rise.
            Some(newest) => {
                newest.send_replace(newer);
            }
            None => {
                rings.insert(ring.clone(), watch::Sender::new(newer));
            }
        }
    }
}
