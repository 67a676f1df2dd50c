//! openraft's type parameters, chosen once.

use std::fmt;
use std::sync::Arc;

use annulus_membership::{Applied, Command, Entry, Outcome};
use annulus_ring::Epoch;
use bytes::Bytes;
use openraft::impls::leader_id_std;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::runtime::SeededTokio;

openraft::declare_raft_types!(
    /// Plain Raft ordering (`leader_id_std`): one leader a term, a log id is (term, index).
    pub TypeConfig:
        D = LogEntry,
        R = Outcome,
        NodeId = u64,
        Node = openraft::BasicNode,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = SeededTokio,
);

/// An [`Entry`] with its JSON: made once a server, where the entry is proposed or received, and
/// never in raft's core, where a large one would hold up heartbeats.
#[derive(Clone, Debug)]
pub struct LogEntry {
    entry: Arc<Entry>,
    json: Bytes,
}

impl LogEntry {
    pub(super) fn new(entry: Entry) -> Result<Self, serde_json::Error> {
        let json = serde_json::to_vec(&entry)?.into();
        Ok(Self {
            entry: Arc::new(entry),
            json,
        })
    }

    pub(super) fn from_json(json: Bytes) -> Result<Self, serde_json::Error> {
        Ok(Self {
            entry: Arc::new(serde_json::from_slice(&json)?),
            json,
        })
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    pub(super) fn json(&self) -> &Bytes {
        &self.json
    }
}

impl Serialize for LogEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.entry.serialize(to)
    }
}

impl<'de> Deserialize<'de> for LogEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Entry::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry.command {
            Command::Init { cluster_id } => write!(f, "init {cluster_id:?}"),
            Command::Tick { elapsed_ms } => write!(f, "tick {elapsed_ms} ms"),
            Command::Ring { ring, .. } => write!(f, "command on ring {ring}"),
        }
    }
}

pub(super) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(super) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(super) type RaftEntry = openraft::alias::EntryOf<TypeConfig>;
pub(super) type Payload = openraft::alias::PayloadOf<TypeConfig>;
pub(super) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(super) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(super) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, bytes::Bytes>;
pub(super) type Raft = openraft::Raft<TypeConfig, super::machine::Machine>;

pub(super) fn log_id(term: u64, index: u64) -> LogId {
    openraft::LogId {
        leader_id: openraft::vote::leader_id_std::CommittedLeaderId::new(term),
        index,
    }
}

/// The answer to entries that decide nothing (raft's own).
pub(super) fn no_outcome() -> Outcome {
    Outcome::Applied(Applied {
        epoch: Epoch::default(),
        ..Applied::default()
    })
}
