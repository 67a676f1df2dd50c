//! What "on disk" means here: openraft's log storage over our own small seam.
//!
//! ```text
//!   openraft core --> LogStore --(ops, in order)--> writer thread --> Store (sled | memory)
//!   readers     <---  cache (a BTreeMap of every entry that is not purged)
//! ```
//!
//! Reads never leave memory, so an entry is readable before `append` returns; it is *completed*
//! only after the store synced it (DURABLE-ACK). One thread owns the store and takes what waits
//! in one go: group commit and order for free. See `docs/decisions/0001-sled-made-durable.md`.

mod durable;
mod identity;
mod mark;
mod memory;
mod record;
mod sled_store;
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annulus_ring::ClusterId;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};

pub(super) use identity::{sync_directory, write_durably};
pub use memory::MemoryStorage;
pub(super) use sled_store::open as open_directory;
pub(super) use store::{Change, Loaded};
pub(super) use writer::Writer;

use super::codec;
use super::types::{LogId, RaftEntry, TypeConfig, Vote};

/// Most bytes of entries in one raft message, if there is more than one entry.
const MAX_APPEND_BYTES: usize = 1 << 20;

/// openraft's log, vote and committed index. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct LogStore {
    cache: Arc<Mutex<Cache>>,
    writer: Arc<Writer>,
    name: Name,
}

/// The cluster that the store belongs to, once it is known; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Name(Arc<Mutex<Option<ClusterId>>>);

impl Name {
    pub(super) fn get(&self) -> Option<ClusterId> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Cache {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    /// With the size of the encoded payload in bytes.
    entries: BTreeMap<u64, (RaftEntry, usize)>,
}

impl LogStore {
    pub(super) fn new(loaded: Loaded, writer: Writer) -> Self {
        let Loaded {
            vote,
            committed,
            purged,
            entries,
            cluster_id,
        } = loaded;
        let cache = Cache {
            vote,
            committed,
            purged,
            entries,
        };
        Self {
            cache: Arc::new(Mutex::new(cache)),
            writer: Arc::new(writer),
            name: Name(Arc::new(Mutex::new(cluster_id))),
        }
    }

    /// Whose log this is.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Nothing was ever voted for or appended here: a new server's store, or one whose directory
    /// was lost. The two differ in that a new one was named before its cluster began.
    pub(super) fn is_pristine(&self) -> bool {
        let cache = self.cache();
        cache.vote.is_none() && cache.entries.is_empty() && cache.purged.is_none()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the cluster's name beside the log. Comes back when it is durable.
    pub(super) async fn name_cluster(&self, id: ClusterId) -> io::Result<()> {
        self.writer.durable(vec![Change::Cluster(id)]).await?;
        *self.name.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        Ok(())
    }

    /// Ends the writer and closes the store; what is in the queue is written first.
    pub(super) async fn close(&self) {
        self.writer.close().await;
    }

    /// First and last index in the log, and the purged one: for tests and status.
    #[must_use]
    pub fn range(&self) -> (Option<u64>, Option<u64>, Option<u64>) {
        let cache = self.cache();
        (
            cache.entries.keys().next().copied(),
            cache.entries.keys().next_back().copied(),
            cache.purged.map(|id| id.index),
        )
    }
}

impl Debug for LogStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStore")
            .field("range", &self.range())
            .finish()
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<RaftEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        if is_empty(&range) {
            return Ok(Vec::new());
        }
        Ok(self
            .cache()
            .entries
            .range(range)
            .map(|(_, (entry, _))| entry.clone())
            .collect())
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> io::Result<Vec<RaftEntry>> {
        if start >= end {
            return Ok(Vec::new());
        }
        let cache = self.cache();
        let mut bytes = 0;
        let fitting = cache
            .entries
            .range(start..end)
            .take_while(|(_, (_, size))| {
                let first = bytes == 0;
                bytes += size.max(&1);
                first || bytes <= MAX_APPEND_BYTES
            });
        Ok(fitting.map(|(_, (entry, _))| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.cache().vote)
    }
}

/// `BTreeMap::range` panics on these.
fn is_empty(range: &impl RangeBounds<u64>) -> bool {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(&u64::MAX) => return true,
        Bound::Excluded(start) => start + 1,
        Bound::Unbounded => 0,
    };
    match range.end_bound() {
        Bound::Included(end) => start > *end,
        Bound::Excluded(end) => start >= *end,
        Bound::Unbounded => false,
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let cache = self.cache();
        let last = cache
            .entries
            .values()
            .next_back()
            .map(|(entry, _)| entry.log_id);
        Ok(LogState {
            last_purged_log_id: cache.purged,
            last_log_id: last.or(cache.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.writer.durable(vec![Change::Vote(*vote)]).await?;
        self.cache().vote = Some(*vote);
        Ok(())
    }

    /// Not synced: the core waits for it at every commit, and losing it costs a few entries
    /// that are applied after the next leader's first heartbeat instead of at start.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.cache().committed = committed;
        self.writer.lazy(vec![Change::Committed(committed)]).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.cache().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut changes = Vec::new();
        {
            let mut cache = self.cache();
            for entry in entries {
                let payload = codec::encode_payload(&entry.payload)?;
                let log_id = entry.log_id;
                cache.entries.insert(log_id.index, (entry, payload.len()));
                changes.push(Change::Put { log_id, payload });
            }
        }
        self.writer.flushed(changes, callback).await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let committed = self.cache().committed;
        if committed > last {
            // Some server forgot what it had acknowledged. To go on would make two histories of one.
            return Err(io::Error::other(format!(
                "the leader's log lacks entry {}, which was committed here: a server has lost its \
                 history; stop all servers, keep this directory, and find out which",
                committed.map_or(0, |id| id.index)
            )));
        }
        let from = last.map_or(0, |id| id.index + 1);
        self.cache().entries.split_off(&from);
        self.writer.durable(vec![Change::TruncateFrom(from)]).await
    }

    /// Queued only: what was purged may be there again after a crash, which is harmless, and
    /// every later append is behind it in the queue, so there is never a hole.
    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        {
            let mut cache = self.cache();
            cache.entries = cache.entries.split_off(&(upto.index + 1));
            cache.purged = cache.purged.max(Some(upto));
        }
        self.writer.lazy(vec![Change::Purged(upto)]).await
    }
}
