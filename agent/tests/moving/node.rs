//! One data node: an agent, a store in memory, and just enough of a data plane to write.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use annulus_agent::{
    Admission, Agent, AgentConfig, Copy, EpochGuard, Intent, RangeStore, Record, Refusal,
    ReplicaStamp, Stamp,
};
use annulus_ring::{Endpoint, Epoch, Handle, NodeId, Position, RingName, Slot, Weight, Zone};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

use crate::{leader::Leader, memory::MemoryStore};

pub struct Node {
    pub name: &'static str,
    pub handle: Handle,
    pub dir: Arc<tempfile::TempDir>,
    pub store: Arc<MemoryStore>,
    pub agent: Agent,
    pub guard: EpochGuard,
    /// Replicated writes to it are lost while this is set.
    pub deaf: AtomicBool,
    /// Replicated writes that it did not take, for whatever reason.
    pub refused: AtomicU32,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Node {
    pub async fn start(name: &'static str, leader: &Leader, control: &Endpoint) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::start_on(name, leader, control, dir, Arc::default(), None).await
    }

    pub async fn start_on(
        name: &'static str,
        leader: &Leader,
        control: &Endpoint,
        dir: Arc<tempfile::TempDir>,
        store: Arc<MemoryStore>,
        bytes_per_second: Option<u64>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap().to_string()).unwrap();
        leader
            .script()
            .endpoints
            .insert(name.to_owned(), endpoint.to_string());
        let mut config = AgentConfig::new(
            dir.path().to_owned(),
            RingName::new("r").unwrap(),
            NodeId::new(name).unwrap(),
            endpoint,
            Zone::new(name).unwrap(),
            Weight::new(1).unwrap(),
            vec![control.clone()],
        );
        config.copy_limits.bytes_in = bytes_per_second.and_then(std::num::NonZeroU64::new);
        config.debounce = std::time::Duration::from_millis(5);
        config.tend = std::time::Duration::from_millis(50);
        config.renew = std::time::Duration::from_millis(100);
        if leader.script().short_silence {
            config.silence = std::time::Duration::from_millis(500);
        }
        let agent = Agent::start(config, store.clone()).unwrap();
        let service = agent.peer_service();
        let server = tokio::spawn(async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        let handle = Handle(u16::from(name.as_bytes()[0] - b'a'));
        let guard = agent.guard();
        let deaf = AtomicBool::new(false);
        Self {
            name,
            handle,
            dir,
            store,
            agent,
            guard,
            deaf,
            refused: AtomicU32::new(0),
            server,
        }
    }

    /// Stops the process; what is durable stays.
    pub async fn stop(self) -> (Arc<tempfile::TempDir>, Arc<MemoryStore>) {
        let (dir, store) = (self.dir.clone(), self.store.clone());
        self.server.abort();
        self.agent.shutdown().await;
        (dir, store)
    }

    async fn replicate(
        &self,
        slot: Slot,
        stamp: ReplicaStamp,
        record: Record,
    ) -> Result<(), Refusal> {
        let admission = self.guard.admit_replica(slot, stamp).await?;
        if self.deaf.load(Ordering::SeqCst) {
            return Err(Refusal::NotMember {
                epoch: admission.epoch,
                slot,
            });
        }
        // A copy that was promoted in between: the owner sends again.
        self.store
            .merge(slot, admission.copy, vec![record], None)
            .map_err(|_| Refusal::Behind {
                generation: stamp.generation,
                epoch: admission.epoch,
                asked: stamp.epoch,
            })
    }
}

/// All nodes of a test.
#[derive(Clone)]
pub struct Nodes(pub Vec<Arc<Node>>);

impl Nodes {
    pub fn get(&self, name: &str) -> &Node {
        self.0.iter().find(|node| node.name == name).unwrap()
    }

    fn by_handle(&self, handle: Handle) -> Option<&Node> {
        self.0
            .iter()
            .find(|node| node.handle == handle)
            .map(|node| &**node)
    }

    /// Writes through `owner` until it is acknowledged or refused. A reference data plane in small:
    /// commit locally, send to the rest of the write set, re-stamp when the view changes.
    pub async fn write(
        &self,
        owner: &str,
        slot: Slot,
        key: &str,
        value: Option<&str>,
    ) -> Result<Position, Refusal> {
        let owner = self.get(owner);
        let view = owner.guard.view();
        let stamp = Stamp {
            generation: view.generation(),
            epoch: view.epoch(),
        };
        let admission = owner
            .guard
            .admit(crate::placed(slot), stamp, Intent::Write)
            .await?;
        let (key, value) = (
            Bytes::from(key.to_owned()),
            value.map(|one| one.to_owned().into()),
        );
        let version = owner.store.assign(slot, key.clone(), value.clone());
        self.push(
            owner,
            admission,
            Record {
                key,
                version,
                value,
            },
        )
        .await
    }

    pub async fn push(
        &self,
        owner: &Node,
        mut admission: Admission,
        record: Record,
    ) -> Result<Position, Refusal> {
        let mut holders = vec![owner.handle];
        loop {
            let sends = admission.replicas().filter_map(|peer| {
                let stamp = ReplicaStamp {
                    generation: admission.generation,
                    epoch: admission.epoch,
                    reign: admission.reign,
                    session: peer.session,
                };
                let node = self.by_handle(peer.handle)?;
                let record = record.clone();
                Some(async move {
                    let taken = node.replicate(admission.slot, stamp, record).await;
                    let refused = u32::from(taken.is_err());
                    node.refused.fetch_add(refused, Ordering::SeqCst);
                    taken.ok().map(|()| node.handle)
                })
            });
            holders.extend(futures::future::join_all(sends).await.into_iter().flatten());
            if admission.satisfied(&holders) {
                return Ok(record.version);
            }
            // Not at once: whoever refused will refuse again.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            if admission.outdated() {
                admission = admission.restamp()?;
                holders = vec![owner.handle];
            }
        }
    }
}

pub fn live(
    node: &Node,
    slot: Slot,
) -> std::collections::BTreeMap<Bytes, (Position, Option<Bytes>)> {
    node.store.newest(slot, Copy::Live)
}

pub fn epoch(node: &Node) -> Epoch {
    node.guard.view().epoch()
}
