//! The store passes the agent's conformance kit, killed after each call and inside each call.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use annulus_agent::{
    conformance::{self, Lab, OpenError, Subject},
    store::{Copy, RangeStore, Record, StoreError},
};
use annulus_ring::{Position, Slot};
use bytes::Bytes;
use redb::{StorageBackend, backends::FileBackend};

use super::{FILE, Store, builder};

struct KvLab;

impl Lab for KvLab {
    fn open(&self, dir: &Path) -> Result<Box<dyn Subject>, OpenError> {
        Ok(Box::new(Store::open(dir)?))
    }

    /// The file as the system had it before the engine closed it.
    fn crash(&self, store: Box<dyn Subject>, dir: &Path) -> Result<Box<dyn Subject>, OpenError> {
        let (file, image) = (dir.join(FILE), dir.join("image"));
        std::fs::copy(&file, &image)?;
        drop(store);
        std::fs::rename(&image, &file)?;
        self.open(dir)
    }

    fn open_failing(&self, dir: &Path, writes: u64) -> Option<Result<Box<dyn Subject>, OpenError>> {
        Some(open_failing(dir, writes))
    }
}

fn open_failing(dir: &Path, writes: u64) -> Result<Box<dyn Subject>, OpenError> {
    let file = File::options()
        .read(true)
        .write(true)
        .open(dir.join(FILE))?;
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let disk = FailingDisk {
        file: FileBackend::new(file)?,
        left: left.clone(),
    };
    let store = Store::on(dir, builder().create_with_backend(disk)?)?;
    left.store(writes, Ordering::SeqCst);
    Ok(Box::new(store))
}

/// A disk that takes so many more writes and then none.
#[derive(Debug)]
struct FailingDisk {
    file: FileBackend,
    left: Arc<AtomicU64>,
}

impl FailingDisk {
    fn spend(&self) -> io::Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        match left {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the disk is gone")),
        }
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.spend()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.spend()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.spend()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

impl Subject for Store {
    fn write(&self, slot: Slot, key: &[u8], value: Option<&[u8]>) -> Result<Position, StoreError> {
        // As the lane of an owner does: the next position, committed before anything else.
        let last = self.last_position(slot)?;
        let version = Position::new(last.reign, last.seq + 1);
        let record = Record {
            key: Bytes::copy_from_slice(key),
            version,
            value: value.map(Bytes::copy_from_slice),
        };
        self.merge(slot, Copy::Live, vec![record], None)?;
        Ok(version)
    }

    fn read(&self, slot: Slot, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.get(slot, key)?.and_then(|record| record.value))
    }

    fn scan(&self, slot: Slot) -> Result<Vec<Bytes>, StoreError> {
        let records = self.reading(slot, Copy::Live)?.records()?;
        let keys = records.filter_map(|record| match record {
            Ok(record) => record.value.is_some().then_some(Ok(record.key)),
            Err(error) => Some(Err(error)),
        });
        keys.collect()
    }

    fn count(&self, slot: Slot) -> Result<u64, StoreError> {
        Self::count(self, slot)
    }
}

/// In memory where the system offers that: a store is opened anew for each write of each call, and
/// what its syncs are worth is decided by [`FailingDisk`], not by the disk below.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    dir.unwrap()
}

#[test]
fn the_store_passes_every_check_of_the_kit() {
    let scratch = scratch();
    let report = conformance::run(&KvLab, scratch.path());
    assert!(report.passed_all(), "{report}");
}
