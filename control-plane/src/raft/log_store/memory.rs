//! A store in memory, for simulations and tests: what it holds lives as long as the handle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annulus_ring::ClusterId;
use bytes::Bytes;

use super::store::{Change, Loaded, Store, StoreError};
use crate::raft::codec;
use crate::raft::types::{LogId, Vote};

/// One server's "disk" in memory. Clones are the same disk: keep one to restart a server.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, (LogId, Bytes)>,
    cluster_id: Option<ClusterId>,
    /// The newest log snapshot, as its file would be.
    snapshot: Option<Bytes>,
}

impl MemoryStorage {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::raft) fn snapshot(&self) -> Option<Bytes> {
        self.held().snapshot.clone()
    }

    pub(in crate::raft) fn keep_snapshot(&self, bytes: Bytes) {
        self.held().snapshot = Some(bytes);
    }

    pub(in crate::raft) fn load(&self) -> Result<Loaded, StoreError> {
        let held = self.held();
        let decoded = held.entries.iter().map(|(index, (log_id, payload))| {
            let size = payload.len();
            let payload = codec::decode_payload(payload).map_err(|error| StoreError {
                path: PathBuf::from("memory"),
                reason: format!("entry {index}: {error}"),
            })?;
            Ok((
                *index,
                (
                    openraft::Entry {
                        log_id: *log_id,
                        payload,
                    },
                    size,
                ),
            ))
        });
        Ok(Loaded {
            vote: held.vote,
            committed: held.committed,
            purged: held.purged,
            entries: decoded.collect::<Result<_, _>>()?,
            cluster_id: held.cluster_id,
        })
    }
}

impl Store for MemoryStorage {
    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut held = self.held();
        for change in changes {
            match change {
                Change::Put { log_id, payload } => {
                    held.entries
                        .insert(log_id.index, (*log_id, payload.clone()));
                }
                Change::Vote(vote) => held.vote = Some(*vote),
                Change::Committed(committed) => held.committed = *committed,
                Change::TruncateFrom(from) => {
                    held.entries.split_off(from);
                }
                Change::Purged(upto) => {
                    held.purged = held.purged.max(Some(*upto));
                    held.entries = held.entries.split_off(&(upto.index + 1));
                }
                Change::Cluster(id) => held.cluster_id = Some(*id),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn sweep(&mut self, _most: usize) -> Result<bool, StoreError> {
        Ok(false)
    }
}
