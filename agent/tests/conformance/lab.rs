//! Opens stores in memory for the kit: sound ones, and each with one bug.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use annulus_agent::{
    Copy,
    conformance::{Lab, OpenError, Subject},
};
use annulus_ring::{Position, SessionId, Slot};
use bytes::Bytes;

use crate::{broken::Broken, bug::Bug, memory::MemoryStore};

/// What outlives a store that is dropped: the copies, and what the bug made of them.
#[derive(Default)]
pub struct Disk {
    pub store: MemoryStore,
    pub bent: Mutex<Bent>,
}

/// Lies that a bug tells later.
#[derive(Clone, Default)]
pub struct Bent {
    /// Watermarks told instead of the true ones.
    pub marks: BTreeMap<(Slot, Copy), Option<Position>>,
    /// Staging copies that have lost their marker.
    pub unmarked: BTreeSet<(Slot, SessionId)>,
    /// Values told instead of the newest ones.
    pub values: BTreeMap<(Slot, Bytes), Option<Bytes>>,
    /// Copies in which a record came after a newer one.
    pub disordered: BTreeSet<(Slot, Copy)>,
    /// Positions begin anew.
    pub restarted: bool,
}

/// Stores in memory, one a directory.
#[derive(Default)]
pub struct MemoryLab {
    bug: Option<Bug>,
    unstoppable: bool,
    disks: Mutex<BTreeMap<PathBuf, Arc<Disk>>>,
}

impl MemoryLab {
    pub fn with(bug: Bug) -> Self {
        Self {
            bug: Some(bug),
            ..Self::default()
        }
    }

    /// One that cannot stop its stores inside a call.
    pub fn unstoppable() -> Self {
        Self {
            unstoppable: true,
            ..Self::default()
        }
    }

    fn disk(&self, dir: &Path) -> Arc<Disk> {
        let mut disks = self.disks.lock().unwrap();
        disks.entry(dir.to_owned()).or_default().clone()
    }

    fn broken(&self, dir: &Path, writes: u64) -> Broken {
        Broken {
            bug: self.bug,
            disk: self.disk(dir),
            writes: AtomicU64::new(writes),
        }
    }
}

impl Lab for MemoryLab {
    fn open(&self, dir: &Path) -> Result<Box<dyn Subject>, OpenError> {
        Ok(Box::new(self.broken(dir, u64::MAX)))
    }

    fn crash(&self, store: Box<dyn Subject>, dir: &Path) -> Result<Box<dyn Subject>, OpenError> {
        let disk = self.disk(dir);
        let holdings = store.holdings()?;
        let mut bent = disk.bent.lock().unwrap();
        if self.bug == Some(Bug::ForgetsTheMarker) {
            let staging = holdings.into_iter().filter_map(|one| match one.copy {
                Copy::Staging(session) => Some((one.slot, session)),
                Copy::Live | Copy::Retained(_) => None,
            });
            bent.unmarked.extend(staging);
        }
        bent.restarted = self.bug == Some(Bug::AssignsPositionsAnew);
        drop(bent);
        drop(store);
        self.open(dir)
    }

    fn fork(&self, from: &Path, to: &Path) -> Result<(), OpenError> {
        let from = self.disk(from);
        let disk = Disk {
            store: from.store.image(),
            bent: Mutex::new(from.bent.lock().unwrap().clone()),
        };
        self.disks
            .lock()
            .unwrap()
            .insert(to.to_owned(), Arc::new(disk));
        Ok(())
    }

    fn open_failing(&self, dir: &Path, writes: u64) -> Option<Result<Box<dyn Subject>, OpenError>> {
        (!self.unstoppable).then(|| Ok(Box::new(self.broken(dir, writes)) as Box<dyn Subject>))
    }
}
