//! The replicated state as the rest of the server reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use annulus_membership::State;
use annulus_proto::shelf::Shelf;
use annulus_ring::{Epoch, Generation, RingName};
use tokio::sync::watch;

/// How far the log is applied here, and what that published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Index of the last applied entry; 0 before the first (raft's first entry has index 0 and
    /// is never a command).
    pub index: u64,
    /// Newest epoch of every ring that has one.
    pub epochs: Arc<BTreeMap<RingName, (Generation, Epoch)>>,
}

/// State and shelf, written by the machine alone, read by everybody.
#[derive(Debug)]
pub struct Shared {
    inner: RwLock<Inner>,
    applied: watch::Sender<Applied>,
}

/// What the lock guards.
#[derive(Clone, Debug, Default)]
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) shelf: Shelf,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            inner: RwLock::new(Inner::default()),
            applied: watch::Sender::default(),
        }
    }

    /// Reads a consistent pair. Applying waits meanwhile: take what is needed and return; no
    /// I/O, no awaiting inside.
    pub fn read<T>(&self, reader: impl FnOnce(&State, &Shelf) -> T) -> T {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        reader(&inner.state, &inner.shelf)
    }

    pub(super) fn write<T>(&self, writer: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        writer(&mut inner)
    }

    /// Wakes whenever entries were applied; keeps only the newest.
    pub fn applied(&self) -> watch::Receiver<Applied> {
        self.applied.subscribe()
    }

    pub(super) fn publish(&self, applied: Applied) {
        self.applied.send_replace(applied);
    }
}
