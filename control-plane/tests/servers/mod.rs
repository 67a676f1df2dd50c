//! Three servers' raft in this process, over real loopback TCP and real directories.

// Each test binary uses its part.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use annulus_control_plane::raft::{Node, NodeConfig, StartError, Storage};
use annulus_membership::{Command, Outcome, Request, RequestId};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Running {
    pub node: Node,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

pub struct Cluster {
    dir: tempfile::TempDir,
    pub addresses: BTreeMap<u64, SocketAddr>,
    pub running: BTreeMap<u64, Running>,
    pub snapshot_every: u64,
    pub keep_log: u64,
}

/// Waits for a condition, not for a time.
pub async fn eventually<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn tick(id: u128, elapsed_ms: u64) -> Request {
    Request {
        request_id: Some(RequestId(id)),
        command: Command::Tick { elapsed_ms },
    }
}

impl Cluster {
    /// Makes the places of `count` servers; none runs yet.
    pub async fn new(count: u64) -> Self {
        // RUST_LOG shows what happens; another test of the binary may have begun it.
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "off".to_owned());
        let logs = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let _ = logs.try_init();
        let mut addresses = BTreeMap::new();
        for id in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.insert(id, listener.local_addr().unwrap());
        }
        Self {
            dir: tempfile::tempdir().unwrap(),
            addresses,
            running: BTreeMap::new(),
            snapshot_every: 5_000,
            keep_log: 10_000,
        }
    }

    pub fn directory(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("server-{id}"))
    }

    pub async fn try_start(&mut self, id: u64) -> Result<(), StartError> {
        let mut config = NodeConfig::new(id, Storage::Directory(self.directory(id)));
        config.snapshot_every = self.snapshot_every;
        config.keep_log = self.keep_log;
        let node = Node::start(config).await?;
        let listener = TcpListener::bind(self.addresses[&id]).await.unwrap();
        let service = node.service();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let served = Server::builder()
                .add_service(service)
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
                    // Told, or the cluster is gone: the same.
                    let _ = stopped.await;
                });
            served.await.unwrap();
        });
        self.running.insert(
            id,
            Running {
                node,
                stop,
                serving,
            },
        );
        Ok(())
    }

    pub async fn start(&mut self, id: u64) {
        self.try_start(id).await.unwrap();
    }

    pub async fn stop(&mut self, id: u64) {
        let Running {
            node,
            stop,
            serving,
        } = self.running.remove(&id).unwrap();
        // Its connections must go too: a task that only stopped accepting would answer the
        // others in the dead server's name, where a dead process would not.
        let _ = stop.send(());
        node.shutdown().await;
        tokio::time::timeout(PATIENCE, serving)
            .await
            .unwrap()
            .unwrap();
    }

    pub async fn stop_all(&mut self) {
        for id in self.running.keys().copied().collect::<Vec<_>>() {
            self.stop(id).await;
        }
    }

    pub fn node(&self, id: u64) -> Node {
        self.running[&id].node.clone()
    }

    pub fn servers(&self) -> BTreeMap<u64, String> {
        self.addresses
            .iter()
            .map(|(id, address)| (*id, address.to_string()))
            .collect()
    }

    /// Starts all and founds the cluster.
    pub async fn found(&mut self) -> annulus_ring::ClusterId {
        for id in self.addresses.keys().copied().collect::<Vec<_>>() {
            self.start(id).await;
        }
        self.node(1).init(self.servers(), PATIENCE).await.unwrap()
    }

    pub async fn leader(&self) -> u64 {
        eventually("a leader", || {
            self.running
                .iter()
                .find(|(_, running)| running.node.standing().is_leader())
                .map(|(id, _)| *id)
        })
        .await
    }

    pub async fn follower(&self) -> u64 {
        let leader = self.leader().await;
        *self.running.keys().find(|id| **id != leader).unwrap()
    }

    /// All that run have applied the same and hold equal states.
    pub async fn all_equal(&self) {
        let began = Instant::now();
        loop {
            let mut states = Vec::new();
            for running in self.running.values() {
                // An error is a leader still to come; the states are compared all the same.
                let _ = running.node.linearize(Duration::from_secs(5)).await;
                let state = running
                    .node
                    .shared()
                    .read(|state, shelf| serde_json::to_string(&(state, shelf)).unwrap());
                states.push((running.node.applied().borrow().index, state));
            }
            if states.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            if began.elapsed() > PATIENCE {
                for (running, state) in self.running.values().zip(states) {
                    println!("{:?}\n{state:?}", running.node.standing());
                }
                panic!("never came: equal states at all servers");
            }
        }
    }
}

pub fn ring_time(node: &Node) -> u64 {
    node.shared().read(|state, _| state.ring_time_ms)
}

pub fn applied(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Applied(_))
}
