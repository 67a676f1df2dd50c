//! The seam: all that the log asks of whatever keeps it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use annulus_ring::ClusterId;
use bytes::Bytes;

use crate::raft::types::{LogId, RaftEntry, Vote};

/// One change; a store makes them in the order given.
#[derive(Clone, Debug)]
pub(in crate::raft) enum Change {
    /// Adds an entry behind the last, or replaces one that a truncation before it removed.
    Put {
        /// Where.
        log_id: LogId,
        /// The encoded payload.
        payload: Bytes,
    },
    /// This server's vote.
    Vote(Vote),
    /// What is known to be committed.
    Committed(Option<LogId>),
    /// Removes every entry from this index on.
    TruncateFrom(u64),
    /// Entries up to here are no longer needed; [`Store::sweep`] deletes them later.
    Purged(LogId),
    /// The cluster's name.
    Cluster(ClusterId),
}

/// What a store held when it was opened, checked.
#[derive(Debug, Default)]
pub(in crate::raft) struct Loaded {
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
    pub purged: Option<LogId>,
    /// Contiguous, behind `purged`; with the size of the encoded payload in bytes.
    pub entries: BTreeMap<u64, (RaftEntry, usize)>,
    pub cluster_id: Option<ClusterId>,
}

/// A store that failed; it is not asked again.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}", path = path.display())]
pub(in crate::raft) struct StoreError {
    pub path: PathBuf,
    pub reason: String,
}

/// Keeps the log. Owned by one thread; calls block.
pub(in crate::raft) trait Store: Send + 'static {
    /// Makes the changes, in order, all or none of each. They need not be durable yet.
    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// When this returns, every change so far survives the loss of power.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Deletes at most `most` keys of purged entries, whose `Purged` must be durable. Whether
    /// there are more.
    fn sweep(&mut self, most: usize) -> Result<bool, StoreError>;
}
