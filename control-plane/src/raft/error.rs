//! What can go wrong at this folder's border, by what a caller would do about it.

use std::path::PathBuf;

/// A proposal that has no [`annulus_membership::Outcome`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProposeError {
    /// No leader was known within the deadline. Nothing was appended: try again.
    #[error("no leader within {waited_ms} ms; nothing was changed, try again")]
    NoLeader {
        /// How long was waited.
        waited_ms: u64,
    },
    /// This server belongs to no cluster yet.
    #[error("the cluster is not initialised; run `annulus cluster init` once, against any server")]
    NotInitialised,
    /// The leader could not be asked. Nothing was appended: try again.
    #[error("the leader at {leader} could not be asked: {reason}; nothing was changed, try again")]
    Unavailable {
        /// Its endpoint.
        leader: String,
        /// What happened.
        reason: String,
    },
    /// It may have been appended: ask again with the same request id.
    #[error("the outcome is unknown: {reason}; ask again with the same request id")]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// The entry is over the limit. Nothing was appended.
    #[error(
        "the entry has {bytes} bytes, the limit is {limit}; nothing was changed, split the request"
    )]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// [`super::MAX_ENTRY_BYTES`].
        limit: u64,
    },
    /// This server's raft has ended; the process is about to.
    #[error("this server stops: {reason}")]
    Fatal {
        /// Why.
        reason: String,
    },
}

/// A read that could not be made linearizable.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReadError {
    /// No leader confirmed within the deadline.
    #[error("no leader confirmed the read within {waited_ms} ms; try again, or read locally")]
    NoLeader {
        /// How long was waited.
        waited_ms: u64,
    },
    /// This server belongs to no cluster yet.
    #[error("the cluster is not initialised; run `annulus cluster init` once, against any server")]
    NotInitialised,
    /// This server's raft has ended; the process is about to.
    #[error("this server stops: {reason}")]
    Fatal {
        /// Why.
        reason: String,
    },
}

/// A cluster that could not be founded.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum InitError {
    /// It is a cluster already.
    #[error("this server belongs to a cluster already; nothing was changed")]
    AlreadyInitialised,
    /// The list is empty, or names an id or an endpoint twice, or id 0, or not this server.
    #[error("the list of servers does not do: {reason}")]
    BadServers {
        /// What is wrong with it.
        reason: String,
    },
    /// A server did not note that it belongs to the new cluster.
    #[error(
        "server {server} at {endpoint} does not take part ({reason}); no cluster was founded; \
         ask the same server again when it does"
    )]
    NotEnlisted {
        /// Which.
        server: u64,
        /// Where.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// Founded, but the first entry has no known outcome yet: asking again is harmless.
    #[error(
        "the servers were told, but no leader came up in time ({reason}); are all of them running? ask again"
    )]
    Unknown {
        /// What happened.
        reason: String,
    },
    /// This server's raft has ended; the process is about to.
    #[error("this server stops: {reason}")]
    Fatal {
        /// Why.
        reason: String,
    },
}

/// A server that does not start: each names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process holds the directory.
    #[error("{dir} is locked by another process (waited {waited_ms} ms): one server, one directory; stop the other process or choose another directory", dir = dir.display())]
    Locked {
        /// Which directory.
        dir: PathBuf,
        /// How long was waited for it.
        waited_ms: u64,
    },
    /// The directory is another server's.
    #[error("{dir} belongs to server {found}, this is server {expected}: point each server at its own directory", dir = dir.display())]
    OtherServer {
        /// Which directory.
        dir: PathBuf,
        /// Whose it is.
        found: u64,
        /// Who asked.
        expected: u64,
    },
    /// Written by a newer release.
    #[error("{dir} has store format {found}, this release reads {expected}: start the release that wrote it", dir = dir.display())]
    Format {
        /// Which directory.
        dir: PathBuf,
        /// What it says.
        found: u64,
        /// What is known here.
        expected: u64,
    },
    /// Something in it is not as it was written.
    #[error("{path} is damaged: {reason}; this server does not start with it. Remedy: keep the directory for inspection, remove this server from the cluster and add a new one under a new id with an empty directory", path = path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file system refused.
    #[error("{path}: {reason}; check that the directory exists, is writable and has room", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The guard against undurable log writes is not in force in this binary.
    #[error(
        "log writes would not be durable in this binary: {reason}; see docs/decisions/0001-sled-made-durable.md"
    )]
    NotDurable {
        /// What was found.
        reason: String,
    },
    /// openraft refused what was stored or configured.
    #[error("raft does not start: {reason}")]
    Raft {
        /// What it said.
        reason: String,
    },
}
