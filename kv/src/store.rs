//! The durable store of one node: copies of slots in one redb file.
//!
//! ```text
//!   write path, replica, agent --jobs--> one writer thread --one synced commit--> redb
//!   reads, cuts, tails, digests ---------read transactions-----------------------^
//! ```
//!
//! A copy is an *area*, a number that prefixes its rows. What an area is (live, staging, retained)
//! is one row, so promoting and retaining move no record, and nothing that reads the live copy can
//! stumble over a staging one.

mod catalog;
mod merge;
mod ranges;
mod scan;
mod tables;
mod undo;
mod writer;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use annulus_agent::store::{Copy, Record, StoreError};
use annulus_ring::{Epoch, Position, Slot};
use redb::{Database, ReadableDatabase, ReadableTable};
use tokio::sync::watch;

pub(crate) use self::writer::Done;
use self::{
    catalog::{AreaId, Catalog, Role},
    merge::{Merge, Outcome},
    scan::Reading,
    tables::{AREAS, FORMAT, FORMAT_KEY, META, RECORDS, VERSIONS},
    undo::Undo,
    writer::{Work, Writer},
};

/// The database's file in the node's directory.
const FILE: &str = "kv.redb";
/// redb's page cache.
const CACHE_BYTES: usize = 256 << 20;

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory or the writer's thread.
    #[error("data directory {path}: {source}")]
    Io {
        /// Which directory.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is another process's, or damaged.
    #[error("store {path}: {source}; is another process using the directory?")]
    Engine {
        /// Which file.
        path: String,
        /// What the engine said.
        source: Box<redb::Error>,
    },
    /// Written by another version.
    #[error("store {path} has format {found}, this version reads {FORMAT}")]
    Format {
        /// Which file.
        path: String,
        /// As found.
        found: u64,
    },
    /// A copy's row makes no sense.
    #[error("store {path}: the row of area {area} is damaged; rebuild this node")]
    Damaged {
        /// Which file.
        path: String,
        /// Which area.
        area: u64,
    },
}

/// Why a store takes nothing more: the engine's first error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct StoreFault {
    doing: &'static str,
    cause: Arc<str>,
}

impl StoreFault {
    pub(crate) fn engine(doing: &'static str, error: &dyn std::error::Error) -> Self {
        Self {
            doing,
            cause: error.to_string().into(),
        }
    }

    fn panicked() -> Self {
        Self {
            doing: "write",
            cause: "the storage engine panicked, see standard error".into(),
        }
    }

    fn closed() -> Self {
        Self {
            doing: "write",
            cause: "the store is closed".into(),
        }
    }
}

impl From<StoreFault> for StoreError {
    fn from(fault: StoreFault) -> Self {
        Self::Backend {
            doing: fault.doing,
            source: (*fault.cause).into(),
        }
    }
}

/// What readers and the writer share.
struct Shared {
    /// As committed, never ahead of the disk.
    catalog: RwLock<Catalog>,
    undo: Undo,
    broken: OnceLock<StoreFault>,
    fault: watch::Sender<Option<StoreFault>>,
    stats: StoreStats,
    /// For tests: how much later repairs are taken in.
    repairs_late: OnceLock<Duration>,
}

/// Counters of the store; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Synced commits.
    pub commits: prometheus_client::metrics::counter::Counter,
    /// Jobs in them: jobs / commits is how many writes shared a sync.
    pub jobs: prometheus_client::metrics::counter::Counter,
}

impl Shared {
    fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, outcome: Outcome, jobs: usize) {
        self.stats.commits.inc();
        self.stats.jobs.inc_by(jobs as u64);
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        for (id, area) in outcome.areas {
            match area {
                Some(area) => {
                    if area.role != Role::Live {
                        self.undo.forget(id);
                    }
                    catalog.put(id, area);
                }
                None => catalog.remove(id),
            }
        }
    }

    fn break_with(&self, fault: StoreFault) {
        // Refused before it is told: who has heard of the fault must not read from the store.
        drop(self.broken.set(fault.clone()));
        self.fault.send_replace(Some(fault));
    }
}

/// The durable store of one node. Cheap to clone; the file closes with the last clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped first: it ends the thread, which holds the other database handle.
    writer: Writer,
    database: Arc<Database>,
    shared: Arc<Shared>,
    dir: PathBuf,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens or creates the store in `dir`. After a kill the engine checks every page first, which
    /// takes about a second a gigabyte.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        std::fs::create_dir_all(dir).map_err(|source| OpenError::Io {
            path: dir.display().to_string(),
            source,
        })?;
        let path = dir.join(FILE);
        let database = builder().create(&path).map_err(|error| OpenError::Engine {
            path: path.display().to_string(),
            source: Box::new(error.into()),
        })?;
        Self::on(dir, database)
    }

    /// The store on an opened database, whose file is in `dir`.
    fn on(dir: &Path, database: Database) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: dir.display().to_string(),
            source,
        };
        let shown = dir.join(FILE).display().to_string();
        let engine = |source: redb::Error| OpenError::Engine {
            path: shown.clone(),
            source: source.into(),
        };
        if let Some(found) = prepare(&database).map_err(engine)? {
            return Err(OpenError::Format { path: shown, found });
        }
        // The new file's name must survive a power cut as well as its pages.
        std::fs::File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(io)?;
        let catalog = load(&database)
            .map_err(engine)?
            .map_err(|area| OpenError::Damaged {
                path: shown,
                area: area.0,
            })?;
        let shared = Arc::new(Shared {
            catalog: RwLock::new(catalog.clone()),
            undo: Undo::default(),
            broken: OnceLock::new(),
            fault: watch::Sender::new(None),
            stats: StoreStats::default(),
            repairs_late: OnceLock::new(),
        });
        let database = Arc::new(database);
        let writer = Writer::start(database.clone(), catalog, shared.clone()).map_err(io)?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer,
                database,
                shared,
                dir: dir.to_owned(),
            }),
        })
    }

    fn writer(&self) -> &Writer {
        &self.inner.writer
    }

    fn dir(&self) -> &Path {
        &self.inner.dir
    }

    fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Refuses everything once the engine failed.
    fn check(&self) -> Result<(), StoreError> {
        self.inner
            .shared
            .broken
            .get()
            .map_or(Ok(()), |fault| Err(fault.clone().into()))
    }

    fn reading(&self, slot: Slot, copy: Copy) -> Result<Reading, StoreError> {
        self.check()?;
        Reading::open(&self.inner.database, &self.inner.shared, slot, copy)
    }

    /// For tests: from now on, what a repair brings to a complete copy is taken in that much later.
    #[doc(hidden)]
    pub fn take_repairs_late(&self, by: Duration) {
        // Said once, at the start.
        let _ = self.inner.shared.repairs_late.set(by);
    }

    /// Counters for a registry.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.inner.shared.stats.clone()
    }

    /// Done when the engine failed: the process should end, and recover when started again.
    pub async fn failed(&self) -> StoreFault {
        let mut fault = self.inner.shared.fault.subscribe();
        match fault
            .wait_for(Option::is_some)
            .await
            .map(|fault| fault.clone())
        {
            Ok(Some(fault)) => fault,
            // The sender lives in `self`, and the predicate asked for some.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// The newest record of a key in the live copy, tombstones included. Reads the page cache or
    /// the disk; a few microseconds when warm.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    pub fn get(&self, slot: Slot, key: &[u8]) -> Result<Option<Record>, StoreError> {
        self.check()?;
        scan::get_live(&self.inner.database, &self.inner.shared, slot, key)
    }

    /// How many keys with a value the live copy of a slot has. Reads all of them.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a live copy.
    pub fn count(&self, slot: Slot) -> Result<u64, StoreError> {
        let mut count = 0;
        for record in self.reading(slot, Copy::Live)?.records()? {
            count += u64::from(record?.value.is_some());
        }
        Ok(count)
    }

    /// Rows of records and versions, of whatever area.
    #[cfg(test)]
    fn rows(&self) -> u64 {
        use redb::ReadableTableMetadata;
        let txn = self.inner.database.begin_read().unwrap();
        let records = txn.open_table(RECORDS).unwrap().len().unwrap();
        records + txn.open_table(VERSIONS).unwrap().len().unwrap()
    }

    /// How far the live copy has got: (watermark, acknowledged). `None`: no live copy.
    pub(crate) fn standing(&self, slot: Slot) -> Option<(Option<Position>, Option<Position>)> {
        let catalog = self.inner.shared.catalog();
        let area = catalog.area(catalog.find(slot, Copy::Live)?)?;
        Some((area.held, area.acknowledged))
    }

    /// Records of the live copy above `from`, in the order of their versions.
    pub(crate) fn above(
        &self,
        slot: Slot,
        from: Option<Position>,
    ) -> Result<Vec<Record>, StoreError> {
        self.reading(slot, Copy::Live)?.above(from)?.collect()
    }

    /// Submits records for one copy without waiting. On `Ok` `done` is called on the writer's
    /// thread once they are durable (or failed); on `Err` nothing was done. `acknowledged` is noted
    /// with them.
    pub(crate) fn submit(
        &self,
        slot: Slot,
        copy: Copy,
        records: Vec<Record>,
        acknowledged: Option<Position>,
        done: Done,
    ) -> Result<(), StoreError> {
        let merge = Merge {
            slot,
            copy,
            records,
            through: None,
            acknowledged,
        };
        self.inner.writer.submit(Work::Merge(merge), done)
    }

    /// As [`Store::submit`], awaited.
    pub(crate) async fn take_in(
        &self,
        slot: Slot,
        copy: Copy,
        records: Vec<Record>,
        acknowledged: Option<Position>,
    ) -> Result<(), StoreError> {
        let (done, answer) = tokio::sync::oneshot::channel();
        // The receiver may be gone when the caller gave up; the records are stored all the same.
        let done: Done = Box::new(move |result| drop(done.send(result)));
        self.submit(slot, copy, records, acknowledged, done)?;
        answer
            .await
            .unwrap_or_else(|_| Err(StoreFault::closed().into()))
    }

    /// The owner's copy holds the base of this reign.
    pub(crate) async fn ensure_reign(&self, slot: Slot, reign: Epoch) -> Result<(), StoreError> {
        let (done, answer) = tokio::sync::oneshot::channel();
        let work = Work::Other(Box::new(move |batch| batch.begin_reign(&[(slot, reign)])));
        self.inner
            .writer
            .submit(work, Box::new(move |result| drop(done.send(result))))?;
        answer
            .await
            .unwrap_or_else(|_| Err(StoreFault::closed().into()))
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Makes the tables of a new file; answers the format if it is another one.
fn prepare(database: &Database) -> Result<Option<u64>, redb::Error> {
    let txn = database.begin_write()?;
    {
        let mut meta = txn.open_table(META)?;
        let found = meta.get(FORMAT_KEY)?.map(|format| format.value());
        match found {
            Some(FORMAT) => {}
            Some(other) => return Ok(Some(other)),
            None => {
                meta.insert(FORMAT_KEY, FORMAT)?;
            }
        }
        txn.open_table(RECORDS)?;
        txn.open_table(VERSIONS)?;
        txn.open_table(AREAS)?;
    }
    txn.commit()?;
    Ok(None)
}

/// The catalog as on disk; positions above a watermark are found in the version index.
fn load(database: &Database) -> Result<Result<Catalog, AreaId>, redb::Error> {
    let txn = database.begin_read()?;
    let versions = txn.open_table(VERSIONS)?;
    let mut catalog = Catalog::default();
    for row in txn.open_table(AREAS)?.iter()? {
        let (id, row) = row?;
        let id = AreaId(id.value());
        let Some(mut area) = tables::parse_area(row.value()) else {
            return Ok(Err(id));
        };
        if matches!(area.role, Role::Live | Role::Staging(_)) {
            let (first, end) = tables::area_bounds(id);
            let first = area.held.map_or_else(
                || first.to_vec(),
                |held| tables::version_key(id, Position::new(held.reign, held.seq + 1)).to_vec(),
            );
            for row in versions.range(first.as_slice()..end.as_slice())? {
                let Some(at) = tables::parse_version_key(row?.0.value()) else {
                    return Ok(Err(id));
                };
                area.took(at);
            }
        }
        catalog.put(id, area);
    }
    Ok(Ok(catalog))
}
