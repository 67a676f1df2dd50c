//! What the library knows about itself, for status pages and alarms.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use annulus_ring::{Checksum, Endpoint, Epoch, Generation};
use tokio::time::Instant;

use crate::current::{EpochRef, SnapshotRefused};

/// Where the held snapshot came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nothing is held.
    #[default]
    None,
    /// The last good file of an earlier run.
    Disk,
    /// A server's stream.
    Stream(Endpoint),
}

/// The alarm: one epoch was seen with two checksums (EPOCH-UNIQUE is broken).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Which epoch.
    pub epoch: Epoch,
    /// What is held.
    pub held: Checksum,
    /// What else was seen; absent when a server only said that it knows another.
    pub found: Option<Checksum>,
    /// Who showed it.
    pub endpoint: Endpoint,
}

/// A picture of the client at one moment. Counters count from its start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// What everything is routed by; absent before the first snapshot.
    pub epoch: Option<Epoch>,
    /// Its generation.
    pub generation: Option<Generation>,
    /// Its checksum.
    pub checksum: Option<Checksum>,
    /// Where it came from.
    pub source: Source,
    /// How old the knowledge is that it is the newest: since a server that follows its leader
    /// last said so; for a snapshot from disk since the file was written.
    pub age: Option<Duration>,
    /// The server whose stream is open.
    pub endpoint: Option<Endpoint>,
    /// How long that server had not heard from a leader when it last spoke.
    pub server_behind: Duration,
    /// Streams opened.
    pub connect_count: u64,
    /// Snapshots taken.
    pub accepted_count: u64,
    /// Snapshots refused: damaged, foreign, without sense, forked.
    pub refused_count: u64,
    /// Snapshots passed over as not newer than the held one.
    pub ignored_count: u64,
    /// Streams given up because nothing came within the silence deadline.
    pub silent_count: u64,
    /// Refreshes begun; callers that wanted the same epoch share one.
    pub refresh_count: u64,
    /// Files refused at start and kept aside.
    pub damaged_file_count: u64,
    /// Snapshots that could not be written to disk.
    pub cache_failed_count: u64,
    /// The newest snapshot on disk.
    pub cached: Option<EpochRef>,
    /// What went wrong last, if anything ever did.
    pub last_error: Option<String>,
    /// Set once, and for good: somebody must look.
    pub fork: Option<Fork>,
}

/// The writable side of [`Status`]; cold paths only.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    status: Status,
    confirmed: Option<Confirmed>,
}

#[derive(Clone, Copy, Debug)]
enum Confirmed {
    At(Instant),
    /// By the clock of the machine, as an earlier process wrote it.
    File(SystemTime),
}

impl Board {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self) -> Status {
        let inner = self.inner();
        let mut status = inner.status.clone();
        status.age = inner.confirmed.map(|confirmed| match confirmed {
            Confirmed::At(at) => at.elapsed(),
            Confirmed::File(at) => at.elapsed().unwrap_or_default(),
        });
        status
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.inner().status);
    }

    /// Something went wrong that the user may want to know.
    pub(crate) fn trouble(&self, error: impl ToString) {
        self.inner().status.last_error = Some(error.to_string());
    }

    fn hold(inner: &mut Inner, held: EpochRef, source: Source) {
        inner.status.epoch = Some(held.epoch);
        inner.status.generation = Some(held.generation);
        inner.status.checksum = Some(held.checksum);
        inner.status.source = source;
    }

    pub(crate) fn loaded(&self, held: EpochRef, written: SystemTime) {
        let mut inner = self.inner();
        Self::hold(&mut inner, held, Source::Disk);
        inner.status.cached = Some(held);
        inner.confirmed = Some(Confirmed::File(written));
    }

    pub(crate) fn accepted(&self, held: EpochRef, from: &Endpoint) {
        let mut inner = self.inner();
        Self::hold(&mut inner, held, Source::Stream(from.clone()));
        inner.status.accepted_count += 1;
        inner.confirmed = Some(Confirmed::At(Instant::now()));
    }

    pub(crate) fn refused(&self, refused: &SnapshotRefused, from: &Endpoint) {
        let mut inner = self.inner();
        if refused.is_old_news() {
            inner.status.ignored_count += 1;
            return;
        }
        inner.status.refused_count += 1;
        inner.status.last_error = Some(format!("{from}: {refused}"));
        if let Some((epoch, held, found)) = refused.fork() {
            let (found, endpoint) = (Some(found), from.clone());
            inner.status.fork.get_or_insert(Fork {
                epoch,
                held,
                found,
                endpoint,
            });
        }
    }

    /// A server said that nothing newer is committed, as of `behind` ago.
    pub(crate) fn confirmed(&self, behind: Duration) {
        let mut inner = self.inner();
        inner.status.server_behind = behind;
        let now = Instant::now();
        inner.confirmed = Some(Confirmed::At(now.checked_sub(behind).unwrap_or(now)));
    }
}
