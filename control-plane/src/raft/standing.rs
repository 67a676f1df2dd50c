//! Where this server stands in its raft group, in words that outlive openraft's metrics.

use std::collections::BTreeMap;

/// What this server is at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Not a voter of any cluster: waits to be initialised or added.
    #[default]
    Waiting,
    /// Follows.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
}

/// The leader as this server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its server id.
    pub id: u64,
    /// Its endpoint, `host:port`.
    pub endpoint: String,
}

/// One server of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Its endpoint, `host:port`.
    pub endpoint: String,
    /// Votes; otherwise it only receives the log.
    pub voter: bool,
    /// Highest log index known to be on it. Known to the leader only.
    pub matched: Option<u64>,
}

/// A point-in-time view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// This server.
    pub server_id: u64,
    /// What it is.
    pub role: Role,
    /// Raft's term.
    pub term: u64,
    /// Who leads, as far as this server knows. May be itself.
    pub leader: Option<Leader>,
    /// The group by server id; empty before it is initialised.
    pub servers: BTreeMap<u64, Voter>,
    /// Last entry in this server's log.
    pub last_log_index: Option<u64>,
    /// Last entry applied here.
    pub applied_index: Option<u64>,
    /// Last entry of the newest log snapshot here.
    pub snapshot_index: Option<u64>,
    /// Last entry purged from the log here.
    pub purged_index: Option<u64>,
}

impl Standing {
    /// Whether this server leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }

    /// Whether there is a cluster at all, as far as this server knows.
    #[must_use]
    pub fn initialised(&self) -> bool {
        !self.servers.is_empty()
    }
}
