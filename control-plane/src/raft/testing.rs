//! Doors for this crate's own tests: the log store without raft around it, and what openraft's
//! suite needs. Not an API.

use std::io;
use std::path::Path;

use annulus_membership::{Command, Entry};
use openraft::RaftLogReader;
use openraft::alias::OneshotReceiverOf;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;

use super::fatal::FatalBell;
use super::log_store::{LogStore, MemoryStorage, Writer, open_directory};
use super::types::{LogEntry, Payload, RaftEntry, TypeConfig, Vote, log_id};
use super::{Node, StartError, log_store::Loaded};

/// A log store by itself.
#[derive(Debug)]
pub struct Log {
    store: LogStore,
    bell: FatalBell,
}

/// An append that was made and is not known to be durable yet.
#[derive(Debug)]
pub struct Pending(OneshotReceiverOf<TypeConfig, io::Result<()>>);

impl Pending {
    /// Comes back when the append is acknowledged.
    ///
    /// # Errors
    /// The store failed.
    pub async fn acknowledged(self) -> io::Result<()> {
        self.0
            .await
            .map_err(|_| io::Error::other("the store was dropped"))?
    }
}

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Term and node of the vote.
    pub vote: Option<(u64, u64)>,
    /// Index, term and size of the entries' own bytes.
    pub entries: Vec<(u64, u64, u64)>,
    /// Index of the last purged entry.
    pub purged: Option<u64>,
}

/// A command whose JSON is a little over `bytes` long, about a ring that is not there.
fn filler(bytes: usize) -> Command {
    let slots = vec![annulus_ring::Slot(u32::MAX); bytes / 11];
    let copies = annulus_membership::CopySet {
        node: "n".parse().expect("a legal name"),
        incarnation: annulus_ring::Incarnation(1),
        session: annulus_ring::SessionId(1),
        slots,
    };
    Command::Ring {
        ring: "r".parse().expect("a legal name"),
        command: annulus_membership::RingCommand::Released { copies },
    }
}

/// An entry of about so many bytes; `tag` comes back in its `wall_ms`.
fn entry(term: u64, index: u64, tag: u64, bytes: usize) -> RaftEntry {
    let command = filler(bytes);
    let entry = LogEntry::new(Entry {
        wall_ms: tag,
        request_id: None,
        command,
    });
    let entry = entry.expect("an entry made here encodes");
    RaftEntry {
        log_id: log_id(term, index),
        payload: Payload::Normal(entry),
    }
}

impl Log {
    /// Opens or makes a directory. Blocks.
    ///
    /// # Errors
    /// As [`super::Node::start`].
    pub fn open(dir: &Path, server_id: u64) -> Result<Self, StartError> {
        let (store, loaded) = open_directory(dir, server_id)?;
        let bell = FatalBell::new();
        let writer = Writer::spawn(store, bell.clone()).map_err(|error| StartError::Io {
            path: dir.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            store: LogStore::new(loaded, writer),
            bell,
        })
    }

    /// One in memory.
    #[must_use]
    pub fn memory() -> Self {
        let writer = Writer::inline(MemoryStorage::default());
        Self {
            store: LogStore::new(Loaded::default(), writer),
            bell: FatalBell::new(),
        }
    }

    /// Appends entries of so many bytes each, from `index` on, in one go.
    ///
    /// # Errors
    /// The store failed.
    pub async fn append(
        &mut self,
        term: u64,
        index: u64,
        tag: u64,
        sizes: &[usize],
    ) -> io::Result<Pending> {
        let (sender, receiver) = TypeConfig::oneshot();
        let entries: Vec<_> = sizes
            .iter()
            .zip(index..)
            .map(|(bytes, index)| entry(term, index, tag, *bytes))
            .collect();
        self.store
            .append(entries, IOFlushed::signal(sender))
            .await?;
        Ok(Pending(receiver))
    }

    /// Votes; durable when it comes back.
    ///
    /// # Errors
    /// The store failed.
    pub async fn vote(&mut self, term: u64, node: u64) -> io::Result<()> {
        self.store.save_vote(&Vote::new(term, node)).await
    }

    /// Removes entries from `from` on.
    ///
    /// # Errors
    /// The store failed.
    pub async fn truncate_from(&mut self, from: u64) -> io::Result<()> {
        let last = match from.checked_sub(1) {
            None => None,
            Some(last) => {
                let entries = self.store.try_get_log_entries(last..=last).await?;
                entries.first().map(|entry| entry.log_id)
            }
        };
        self.store.truncate_after(last).await
    }

    /// Purges up to `index`, an entry of the log.
    ///
    /// # Errors
    /// The store failed.
    pub async fn purge(&mut self, index: u64) -> io::Result<()> {
        let entries = self.store.try_get_log_entries(index..=index).await?;
        match entries.first() {
            Some(entry) => self.store.purge(entry.log_id).await,
            None => Ok(()),
        }
    }

    /// Purges beyond the log's end, as installing a log snapshot does.
    ///
    /// # Errors
    /// The store failed.
    pub async fn purge_beyond(&mut self, term: u64, index: u64) -> io::Result<()> {
        self.store.purge(log_id(term, index)).await
    }

    /// Remembers a committed index; not synced.
    ///
    /// # Errors
    /// The store failed.
    pub async fn commit(&mut self, term: u64, index: u64) -> io::Result<()> {
        self.store.save_committed(Some(log_id(term, index))).await
    }

    /// What it holds.
    ///
    /// # Errors
    /// The store failed.
    pub async fn held(&mut self) -> io::Result<Held> {
        let vote = self.store.read_vote().await?;
        let entries = self.store.try_get_log_entries(..).await?;
        let entries = entries.iter().map(|entry| {
            let tag = match &entry.payload {
                Payload::Normal(entry) => entry.entry().wall_ms,
                Payload::Blank | Payload::Membership(_) => 0,
            };
            (entry.log_id.index, entry.log_id.leader_id.term, tag)
        });
        Ok(Held {
            vote: vote.map(|vote| (vote.leader_id.term, vote.leader_id.voted_for)),
            entries: entries.collect(),
            purged: self.store.range().2,
        })
    }

    /// As [`super::Node::fatal`].
    pub async fn fatal(&self) -> String {
        self.bell.heard().await
    }

    /// Closes it; the directory is unlocked when this comes back.
    pub async fn close(self) {
        self.store.close().await;
    }
}

/// Appends ticks of 1 ms as leader, all at once, past every check.
///
/// # Errors
/// At least one was not acknowledged.
pub async fn write_ticks(node: &Node, count: usize) -> Result<(), String> {
    let writes = (0..count).map(|_| write(node, Command::Tick { elapsed_ms: 1 }));
    futures::future::try_join_all(writes).await.map(drop)
}

/// Appends an entry of about so many bytes as leader, past every check. It changes nothing.
///
/// # Errors
/// It was not acknowledged.
pub async fn write_bytes(node: &Node, bytes: usize) -> Result<(), String> {
    write(node, filler(bytes)).await
}

/// Appends a command as leader, past every check.
///
/// # Errors
/// It was not acknowledged.
pub async fn write(node: &Node, command: Command) -> Result<(), String> {
    let entry = LogEntry::new(Entry {
        wall_ms: 0,
        request_id: None,
        command,
    });
    let entry = entry.map_err(|error| error.to_string())?;
    node.raft()
        .client_write(entry)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// A request over [`super::MAX_ENTRY_BYTES`].
#[must_use]
pub fn oversized_request() -> annulus_membership::Request {
    let bytes = usize::try_from(super::MAX_ENTRY_BYTES).unwrap_or(usize::MAX) + (1 << 20);
    annulus_membership::Request {
        request_id: None,
        command: filler(bytes),
    }
}
