//! One server's raft, as the rest of the control plane holds it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use annulus_membership::{Outcome, Request};
use annulus_proto::v1;
use annulus_ring::ClusterId;
use openraft::rt::WatchReceiver;
use openraft::{Instant as _, RaftMetrics, ServerState};
use tokio::sync::watch;
use tokio::time::Instant;

use super::fatal::FatalBell;
use super::log_snapshot::{self, LogSnapshots};
use super::log_store::{Loaded, LogStore, Writer, open_directory};
use super::machine::Machine;
use super::network::{Network, Peers};
use super::service::RaftService;
use super::standing::{Role, Voter};
use super::types::{Raft, TypeConfig};
use super::{
    Applied, Dial, InitError, Leader, ProposeError, ReadError, Shared, Standing, StartError,
    propose, wire,
};

/// A leader unheard for so long is no longer named, and a leader that no majority acknowledged
/// for so long no longer calls itself one. Three elections.
const LEADER_SILENCE: Duration = Duration::from_millis(1_800);
/// How often the standing is looked at when nothing wakes.
const OBSERVE: Duration = Duration::from_millis(500);

/// Milliseconds since 1970, for people.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// The system's.
    #[must_use]
    pub fn system() -> Self {
        Self::new(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| {
                    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
                })
        })
    }

    /// Another one, for simulations.
    pub fn new(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// What it says.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// Where the log lives.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In this directory, which is made where it is missing; its parent must exist.
    Directory(PathBuf),
    /// In memory, for simulations; what it holds survives as long as the handle.
    Memory(super::MemoryStorage),
}

/// How a server's raft is to be started.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// From 1; never used again for another directory.
    pub server_id: u64,
    /// Where the log lives.
    pub storage: Storage,
    /// Makes channels to the others.
    pub dial: Dial,
    /// Stamps entries.
    pub wall_clock: WallClock,
    /// A log snapshot every so many entries. Default 5,000. Lower: faster start, more writing.
    pub snapshot_every: u64,
    /// Entries kept in the log behind the newest log snapshot. Default 10,000; a follower that
    /// lags by more gets the log snapshot. Never below 10,000 in production.
    pub keep_log: u64,
}

impl NodeConfig {
    /// Defaults for everything but who and where.
    #[must_use]
    pub fn new(server_id: u64, storage: Storage) -> Self {
        Self {
            server_id,
            storage,
            dial: Dial::tcp(),
            wall_clock: WallClock::system(),
            snapshot_every: 5_000,
            keep_log: 10_000,
        }
    }
}

/// One server's raft. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    server_id: u64,
    raft: Raft,
    log: LogStore,
    shared: Arc<Shared>,
    peers: Peers,
    wall_clock: WallClock,
    /// Largest time stamped by this server as leader.
    last_stamp: AtomicU64,
    /// When the leader was last heard.
    heard: Mutex<Option<Instant>>,
    /// It was said that this server's directory was lost.
    lost: AtomicBool,
    standing: watch::Sender<Standing>,
    bell: FatalBell,
    stopping: AtomicBool,
}

impl Node {
    /// Opens the storage and starts raft. A server of no cluster waits to be initialised.
    ///
    /// # Errors
    /// See [`StartError`]: each names the place and the remedy.
    pub async fn start(config: NodeConfig) -> Result<Self, StartError> {
        let NodeConfig {
            server_id,
            storage,
            dial,
            wall_clock,
            snapshot_every,
            keep_log,
        } = config;
        let bell = FatalBell::new();
        let (loaded, writer, snapshots) = open(server_id, storage, bell.clone()).await?;
        let log = LogStore::new(loaded, writer);
        let shared = Arc::new(Shared::new());
        let machine = Machine::new(shared.clone(), snapshots);
        let peers = Peers::new(dial, log.name().clone());
        let network = Network {
            server_id,
            peers: peers.clone(),
        };
        let config = raft_config(snapshot_every, keep_log)?;
        let raft = Raft::new(server_id, config, network, log.clone(), machine).await;
        let raft = match raft {
            Ok(raft) => raft,
            Err(error) => {
                log.close().await;
                return Err(StartError::Raft {
                    reason: error.to_string(),
                });
            }
        };
        let node = Self {
            inner: Arc::new(Inner {
                server_id,
                raft,
                log,
                shared,
                peers,
                wall_clock,
                last_stamp: AtomicU64::new(0),
                heard: Mutex::new(None),
                lost: AtomicBool::new(false),
                standing: watch::Sender::new(Standing::default()),
                bell,
                stopping: AtomicBool::new(false),
            }),
        };
        if let Err(reason) = node.inner.reported().await {
            node.shutdown().await;
            return Err(StartError::Raft { reason });
        }
        node.inner.standing.send_replace(node.standing());
        tokio::spawn(observe(Arc::downgrade(&node.inner)));
        Ok(node)
    }

    /// This server.
    #[must_use]
    pub fn server_id(&self) -> u64 {
        self.inner.server_id
    }

    /// A server without any history belongs to this cluster from now on, durably.
    ///
    /// # Errors
    /// The reason, if it has a history or another name.
    pub(super) async fn enlist(&self, id: ClusterId) -> Result<(), String> {
        let log = &self.inner.log;
        match log.name().get() {
            Some(own) if own == id => Ok(()),
            // Also where that cluster never began: two founders at once must not both succeed.
            Some(own) => Err(format!("it is of cluster {:032x} already", own.0)),
            None if !log.is_pristine() => Err("it has a history, and no cluster yet".to_owned()),
            None => log
                .name_cluster(id)
                .await
                .map_err(|error| error.to_string()),
        }
    }

    pub(super) fn log(&self) -> &LogStore {
        &self.inner.log
    }

    /// A cluster counts on this server, whose directory is empty: said once, loudly.
    pub(super) fn lost_directory(&self, cluster: ClusterId) {
        if !self.inner.lost.swap(true, Ordering::Relaxed) {
            tracing::error!(
                server = self.inner.server_id,
                cluster = %format_args!("{:032x}", cluster.0),
                "this directory is empty, and a cluster counts on this server: what it had \
                 acknowledged is not here, so it neither votes nor takes entries. Stop it; bring \
                 its directory back, or put a server with a new id in its place"
            );
        }
    }

    /// Founds the cluster from `servers` (id -> endpoint, this one among them), and names it.
    /// Harmless when repeated with the same list: answers the same cluster id.
    ///
    /// # Errors
    /// See [`InitError`].
    pub async fn init(
        &self,
        servers: BTreeMap<u64, String>,
        deadline: Duration,
    ) -> Result<ClusterId, InitError> {
        super::init::init(self, servers, deadline).await
    }

    /// Has `request` decided: here when this server leads, at the leader otherwise. Answers when
    /// the entry is committed and applied at the leader. A request that the rules refuse is
    /// answered without an entry; a request id that was answered before gets the same answer.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub async fn propose(
        &self,
        request: Request,
        deadline: Duration,
    ) -> Result<Outcome, ProposeError> {
        propose::propose(self, request, deadline).await
    }

    /// Waits until this server has applied everything that was committed before the call. On a
    /// follower the leader is asked for the index. Gives that index.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn linearize(&self, deadline: Duration) -> Result<u64, ReadError> {
        propose::linearize(self, deadline).await
    }

    /// State and shelf.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Same as [`Shared::applied`].
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<Applied> {
        self.inner.shared.applied()
    }

    /// Where this server stands now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.inner.stand()
    }

    /// Wakes when it changes; at most half a second behind where it changes by time alone (a
    /// leader unheard).
    #[must_use]
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.inner.standing.subscribe()
    }

    /// How long ago this server last knew that its state was the cluster's: heard from the
    /// leader, or as leader from a majority. `None`: never since the start.
    #[must_use]
    pub fn last_heard(&self) -> Option<Duration> {
        self.inner
            .last_heard(&self.inner.raft.metrics().borrow_watched())
    }

    /// As leader: how long ago each other server last answered, heartbeats included; without those
    /// that have not answered this leader yet. Empty elsewhere.
    #[must_use]
    pub fn answered(&self) -> BTreeMap<u64, Duration> {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let others = metrics.heartbeat.iter().flatten();
        others
            .filter(|(id, _)| **id != self.inner.server_id)
            .filter_map(|(id, at)| Some((*id, at.as_ref()?.elapsed())))
            .collect()
    }

    /// The gRPC service of the other servers; limits on message size are set.
    #[must_use]
    pub fn service(&self) -> v1::raft_server::RaftServer<RaftService> {
        v1::raft_server::RaftServer::new(RaftService::new(self.clone()))
            .max_decoding_message_size(wire::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(wire::MAX_MESSAGE_BYTES)
    }

    /// Hands the leadership to `to`; only the leader can, elsewhere nothing happens.
    ///
    /// # Errors
    /// This server's raft has ended.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), ProposeError> {
        let transfer = self.inner.raft.trigger().transfer_leader(to).await;
        transfer.map_err(|error| ProposeError::Fatal {
            reason: error.to_string(),
        })
    }

    /// Comes back when raft or its storage has failed for good, with the reason: the process
    /// must end, non-zero, with this as its last log line.
    pub async fn fatal(&self) -> String {
        self.inner.bell.heard().await
    }

    /// Stops raft and closes the storage; when this returns the directory is unlocked.
    pub async fn shutdown(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop in order");
        }
        self.inner.log.close().await;
    }

    /// First and last index in the log and the purged one: for tests and status.
    #[must_use]
    pub fn log_range(&self) -> (Option<u64>, Option<u64>, Option<u64>) {
        self.inner.log.range()
    }

    pub(super) fn raft(&self) -> &Raft {
        &self.inner.raft
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.inner.peers
    }

    pub(super) fn heard_leader(&self) {
        *self
            .inner
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(super) fn fatal_reason(&self) -> Option<String> {
        let stopping = self.inner.stopping.load(Ordering::Relaxed);
        self.inner
            .bell
            .reason()
            .or_else(|| stopping.then(|| "it was told to".to_owned()))
    }

    pub(super) fn wall_ms(&self) -> u64 {
        self.inner.wall_clock.now_ms()
    }

    pub(super) fn last_stamp(&self) -> &AtomicU64 {
        &self.inner.last_stamp
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("server_id", &self.inner.server_id)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Waits for raft's first report: before it, a server of a cluster looks like one of none.
    async fn reported(&self) -> Result<(), String> {
        let initialised = self
            .raft
            .is_initialized()
            .await
            .map_err(|error| error.to_string())?;
        let mut metrics = self.raft.metrics();
        while initialised
            && metrics
                .borrow_watched()
                .membership_config
                .membership()
                .nodes()
                .next()
                .is_none()
        {
            metrics
                .changed()
                .await
                .map_err(|_| "raft ended at its start".to_owned())?;
        }
        Ok(())
    }

    fn last_heard(&self, metrics: &RaftMetrics<TypeConfig>) -> Option<Duration> {
        if metrics.state == ServerState::Leader {
            // Who is a majority alone is acknowledged by nobody else, ever.
            let mut voters = metrics.membership_config.membership().voter_ids();
            if voters.next() == Some(self.server_id) && voters.next().is_none() {
                return Some(Duration::ZERO);
            }
            return metrics
                .last_quorum_acked
                .as_ref()
                .map(|acked| acked.elapsed());
        }
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.map(|heard| heard.elapsed())
    }

    fn stand(&self) -> Standing {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let fresh = self
            .last_heard(&metrics)
            .is_some_and(|ago| ago < LEADER_SILENCE);
        let membership = metrics.membership_config.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let servers = membership.nodes().map(|(id, node)| {
            let matched = metrics
                .replication
                .as_ref()
                .and_then(|all| all.get(id).copied());
            let matched = matched.flatten().map(|id| id.index);
            let voter = voters.contains(id);
            (
                *id,
                Voter {
                    endpoint: node.addr.clone(),
                    voter,
                    matched,
                },
            )
        });
        let servers: BTreeMap<u64, Voter> = servers.collect();
        let leader = metrics.current_leader.filter(|_| fresh).and_then(|id| {
            let endpoint = servers.get(&id)?.endpoint.clone();
            Some(Leader { id, endpoint })
        });
        let role = match metrics.state {
            ServerState::Leader if fresh => Role::Leader,
            ServerState::Leader | ServerState::Candidate => Role::Candidate,
            ServerState::Follower => Role::Follower,
            ServerState::Learner if servers.is_empty() => Role::Waiting,
            ServerState::Learner => Role::Follower,
            ServerState::Shutdown => Role::Waiting,
        };
        Standing {
            server_id: self.server_id,
            role,
            term: metrics.current_term,
            leader,
            servers,
            last_log_index: metrics.last_log_index,
            applied_index: metrics.last_applied.map(|id| id.index),
            snapshot_index: metrics.snapshot.map(|id| id.index),
            purged_index: metrics.purged.map(|id| id.index),
        }
    }
}

type Opened = (Loaded, Writer, LogSnapshots);

async fn open(server_id: u64, storage: Storage, bell: FatalBell) -> Result<Opened, StartError> {
    match storage {
        Storage::Memory(memory) => {
            let loaded = memory.load().map_err(|error| StartError::Damaged {
                path: error.path.clone(),
                reason: error.reason.clone(),
            })?;
            let snapshots = LogSnapshots::Memory(memory.clone());
            Ok((loaded, Writer::inline(memory), snapshots))
        }
        Storage::Directory(dir) => {
            let opening = tokio::task::spawn_blocking(move || open_here(server_id, &dir, bell));
            opening.await.unwrap_or_else(|panic| {
                Err(StartError::Raft {
                    reason: panic.to_string(),
                })
            })
        }
    }
}

fn open_here(server_id: u64, dir: &Path, bell: FatalBell) -> Result<Opened, StartError> {
    let (store, loaded) = open_directory(dir, server_id)?;
    let snapshots = LogSnapshots::directory(dir.join("snapshots"))?;
    let newest = snapshots.newest()?;
    let newest = newest.map(|bytes| log_snapshot::decode(&bytes)).transpose();
    let newest = newest.map_err(|error| StartError::Damaged {
        path: snapshots.path(),
        reason: format!("the newest log snapshot: {error}"),
    })?;
    // What was purged from the log must be in a log snapshot, or it is nowhere.
    let covered = newest.as_ref().and_then(|newest| newest.meta.last_log_id);
    if loaded.purged > covered {
        return Err(StartError::Damaged {
            path: snapshots.path(),
            reason: format!(
                "the log begins behind entry {}, but the newest log snapshot ends at {}",
                loaded.purged.map_or(0, |id| id.index),
                covered.map_or_else(|| "nothing".to_owned(), |id| id.index.to_string()),
            ),
        });
    }
    let inside = newest.and_then(|newest| newest.state.cluster_id);
    if let (Some(beside), Some(inside)) = (loaded.cluster_id, inside)
        && beside != inside
    {
        return Err(StartError::Damaged {
            path: snapshots.path(),
            reason: format!("it is of cluster {inside:?}, the log beside it of {beside:?}"),
        });
    }
    let writer = Writer::spawn(store, bell).map_err(|error| StartError::Io {
        path: dir.to_owned(),
        reason: error.to_string(),
    })?;
    Ok((loaded, writer, snapshots))
}

fn raft_config(snapshot_every: u64, keep_log: u64) -> Result<Arc<openraft::Config>, StartError> {
    let config = openraft::Config {
        cluster_name: "annulus".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 300,
        election_timeout_max: 600,
        // At least the leader's lease and one election, each 600 ms at most.
        quorum_loss_probe_interval: Some(1_500),
        enable_pre_vote: Some(true),
        // A restarted leader asks for votes again: its committed index may not have been synced.
        enable_leader_restore: Some(false),
        max_payload_entries: 512,
        install_snapshot_timeout: 600_000,
        snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(snapshot_every),
        max_in_snapshot_log_to_keep: keep_log,
        replication_lag_threshold: keep_log.max(snapshot_every) + 1,
        ..openraft::Config::default()
    };
    let config = config.validate();
    config.map(Arc::new).map_err(|error| StartError::Raft {
        reason: error.to_string(),
    })
}

/// Keeps the standing fresh, rings the bell when raft ends by itself, and names the store after
/// its cluster. Ends with the node.
async fn observe(node: Weak<Inner>) {
    let Some(mut metrics) = node.upgrade().map(|inner| inner.raft.metrics()) else {
        return;
    };
    loop {
        {
            let Some(inner) = node.upgrade() else { return };
            let standing = inner.stand();
            inner.standing.send_if_modified(|known| {
                let changed = *known != standing;
                *known = standing;
                changed
            });
            let running = metrics.borrow_watched().running_state.clone();
            if let Err(fatal) = running {
                if !inner.stopping.load(Ordering::Relaxed) {
                    inner.bell.ring(format!("raft ended: {fatal}"));
                }
                return;
            }
            if inner.log.name().get().is_none() {
                let cluster = inner.shared.read(|state, _| state.cluster_id);
                if let Some(cluster) = cluster
                    && let Err(error) = inner.log.name_cluster(cluster).await
                {
                    tracing::warn!(%error, "the store was not named");
                }
            }
        }
        tokio::select! {
            biased;
            changed = metrics.changed() => {
                if changed.is_err() {
                    // The core went without a last report: it panicked.
                    if let Some(inner) = node.upgrade()
                        && !inner.stopping.load(Ordering::Relaxed)
                    {
                        inner.bell.ring("raft ended: its core panicked".to_owned());
                    }
                    return;
                }
            }
            () = tokio::time::sleep(OBSERVE) => {}
        }
    }
}
