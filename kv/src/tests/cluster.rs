//! The harness: nodes without agents, a ring without a control plane.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use annulus_agent::{NodeView, guard::EpochGuard, store::RangeStore};
use annulus_client::Client;
use annulus_proto::{snapshot, v1};
use annulus_ring::{
    Availability, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, HashName, Incarnation,
    Layout, Lookup, Member, MemberState, NodeId, Replication, RingName, Slot, SlotTable, Snapshot,
    Step, Transition, Weight, Zone,
};
use futures::Stream;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_stream::{StreamExt, wrappers::WatchStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    KvClient, KvClientConfig,
    node::{Node, Settings},
    serve,
    store::Store,
};

const SLOT_BITS: u8 = 4;

/// One node.
pub(super) struct TestNode {
    pub node: Arc<Node>,
    pub guard: EpochGuard,
    dir: tempfile::TempDir,
    endpoint: Endpoint,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// A ring, its nodes (by handle; `None` while one is down) and who watches it.
pub(super) struct Cluster {
    pub snapshot: Snapshot,
    reigns: Vec<Epoch>,
    last_changes: Vec<Epoch>,
    pub nodes: Vec<Option<TestNode>>,
    down: Vec<Option<(tempfile::TempDir, Endpoint)>>,
    published: watch::Sender<Option<(Epoch, v1::SnapshotBytes)>>,
    watch_endpoint: Endpoint,
    _watch: JoinHandle<()>,
}

impl Cluster {
    /// `members` of `count` nodes founded with rf 3, w 2, each slot on three of them.
    pub async fn start(count: u16, members: u16) -> Self {
        Self::start_with(count, members, |_| Settings::default()).await
    }

    pub async fn start_with(count: u16, members: u16, settings: impl Fn(u16) -> Settings) -> Self {
        let replication = Replication { rf: 3, w: 2, r: 2 };
        let mut slots = SlotTable::empty(SLOT_BITS, 3);
        for slot in slots.slots() {
            let first = u16::try_from(slot.index()).unwrap();
            let list: Vec<_> = (0..3).map(|at| Handle((first + at) % members)).collect();
            slots.set(slot, &list);
        }
        let (published, events) = watch::channel(None);
        let (watch_endpoint, watch) = serve_watch(events).await;
        let slot_count = slots.slot_count();
        let mut cluster = Self {
            snapshot: Snapshot {
                format: annulus_ring::snapshot::FORMAT,
                cluster_id: ClusterId(7),
                ring: RingName::new("test").unwrap(),
                generation: Generation(1),
                epoch: Epoch(1),
                previous_checksum: Checksum::default(),
                created_at_ms: 0,
                layout: Layout {
                    placement_version: 1,
                    hash: HashName::Xxh3_64,
                    seed: 0,
                    replication,
                    slots,
                },
                members: Vec::new(),
                transition: None,
            },
            reigns: vec![Epoch(1); slot_count],
            last_changes: vec![Epoch(1); slot_count],
            nodes: Vec::new(),
            down: (0..count).map(|_| None).collect(),
            published,
            watch_endpoint,
            _watch: watch,
        };
        for handle in 0..count {
            let dir = tempfile::tempdir().unwrap();
            let node = cluster.run(handle, dir, None, settings(handle)).await;
            cluster.snapshot.members.push(Member {
                node_id: node_id(handle),
                incarnation: Incarnation(1),
                handle: Handle(handle),
                zone: Zone::new("z").unwrap(),
                weight: Weight::new(1).unwrap(),
                endpoint: node.endpoint.clone(),
                state: MemberState::Active,
                availability: Availability::Up,
            });
            cluster.nodes.push(Some(node));
        }
        for (handle, node) in cluster.nodes.iter().flatten().enumerate() {
            let handle = Handle(u16::try_from(handle).unwrap());
            let table = &cluster.snapshot.layout.slots;
            let held: Vec<_> = table
                .slots()
                .filter(|slot| table.list(*slot).contains(&handle))
                .collect();
            node.node.store.open_live(&held).unwrap();
            let reigns: Vec<_> = held.iter().map(|slot| (*slot, Epoch(1))).collect();
            node.node.store.begin_reign(&reigns).unwrap();
        }
        cluster.publish();
        cluster
    }

    async fn run(
        &self,
        handle: u16,
        dir: tempfile::TempDir,
        endpoint: Option<Endpoint>,
        settings: Settings,
    ) -> TestNode {
        let address = endpoint.map_or("127.0.0.1:0".to_owned(), |endpoint| endpoint.to_string());
        let listener = TcpListener::bind(address).await.unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap().to_string()).unwrap();
        let guard = EpochGuard::detached(NodeView::unknown(
            self.snapshot.ring.clone(),
            node_id(handle),
        ));
        let store = Store::open(dir.path()).unwrap();
        let settings = Settings {
            endpoint: Some(endpoint.clone()),
            ..settings
        };
        let node = Node::start(guard.clone(), store, settings);
        let stop = CancellationToken::new();
        let serving = serve::serve(serve::routes(&node), listener, stop.clone());
        TestNode {
            node,
            guard,
            dir,
            endpoint,
            stop,
            serving,
        }
    }

    /// The present snapshot, to watchers and to every node.
    pub fn publish(&self) {
        self.publish_to_clients();
        for handle in 0..self.nodes.len() {
            self.adopt(handle);
        }
    }

    pub fn publish_to_clients(&self) {
        let message = snapshot::encode(&self.snapshot).message();
        self.published
            .send_replace(Some((self.snapshot.epoch, message)));
    }

    /// One node adopts the present snapshot.
    pub fn adopt(&self, handle: usize) {
        self.adopt_with(handle, BTreeMap::new());
    }

    /// The same, and refuses the slot's present reign.
    pub fn adopt_refusing(&self, handle: usize, slot: Slot) {
        self.adopt_with(handle, BTreeMap::from([(slot, self.reigns[slot.index()])]));
    }

    fn adopt_with(&self, handle: usize, seals: BTreeMap<Slot, Epoch>) {
        let Some(node) = &self.nodes[handle] else {
            return;
        };
        let handle = u16::try_from(handle).unwrap();
        let lookup = Lookup::compile(Arc::new(self.snapshot.clone())).unwrap();
        node.guard.adopt(NodeView {
            incarnation: Some(Incarnation(1)),
            lookup: Some(Arc::new(lookup)),
            reigns: self.reigns.clone().into(),
            last_changes: self.last_changes.clone().into(),
            own: Some(Handle(handle)),
            seals: Arc::new(seals),
            ..NodeView::unknown(self.snapshot.ring.clone(), node_id(handle))
        });
    }

    /// The next epoch; `slots` are changed by it, and begin a new reign if `reign`.
    pub fn next_epoch(&mut self, slots: &[Slot], reign: bool) {
        self.snapshot.previous_checksum = snapshot::encode(&self.snapshot).checksum;
        self.snapshot.epoch = self.snapshot.epoch.next();
        for slot in slots {
            self.last_changes[slot.index()] = self.snapshot.epoch;
            if reign {
                self.reigns[slot.index()] = self.snapshot.epoch;
            }
        }
    }

    /// Gives the slot another order and begins a reign; the caller says who adopts it.
    pub fn hand_over(&mut self, slot: Slot, list: &[u16]) {
        self.next_epoch(&[slot], true);
        let list: Vec<_> = list.iter().copied().map(Handle).collect();
        self.snapshot.layout.slots.set(slot, &list);
    }

    /// A transition of one slot at a step, or none.
    pub fn transit(&mut self, slot: Slot, to: &[u16], step: Option<Step>) {
        let changed = step.is_none_or(Step::changes_sets);
        self.next_epoch(
            if changed {
                std::slice::from_ref(&slot)
            } else {
                &[]
            },
            false,
        );
        self.snapshot.transition = step.map(|step| Transition {
            replication: None,
            id: annulus_ring::TransitionId(1),
            step,
            target: vec![annulus_ring::SlotChange {
                slot,
                to: to.iter().copied().map(Handle).collect(),
            }],
        });
    }

    pub fn node(&self, handle: usize) -> &TestNode {
        self.nodes[handle].as_ref().unwrap()
    }

    /// Ends a node as a kill would, but for what its store had not answered yet.
    pub async fn kill(&mut self, handle: usize) {
        let node = self.nodes[handle].take().unwrap();
        node.node.begin_stop();
        node.stop.cancel();
        node.serving.await.unwrap();
        node.node.stop().await;
        let TestNode {
            node,
            dir,
            endpoint,
            ..
        } = node;
        // Handlers that were cut off may hold the node a moment longer, and so the file.
        let weak = Arc::downgrade(&node);
        drop(node);
        until("the killed node lets go of its store", || {
            weak.strong_count() == 0
        })
        .await;
        self.down[handle] = Some((dir, endpoint));
    }

    /// Starts a killed node on its directory and endpoint, without a view.
    pub async fn restart(&mut self, handle: usize) {
        let (dir, endpoint) = self.down[handle].take().unwrap();
        let number = u16::try_from(handle).unwrap();
        let node = self
            .run(number, dir, Some(endpoint), Settings::default())
            .await;
        self.nodes[handle] = Some(node);
    }

    pub async fn client(&self) -> KvClient {
        self.client_with(Duration::from_secs(10)).await
    }

    pub async fn client_with(&self, deadline: Duration) -> KvClient {
        let ring = Client::builder(&self.snapshot.ring)
            .endpoints([&self.watch_endpoint])
            .connect_lazy()
            .unwrap();
        ring.ready(Duration::from_secs(10)).await.unwrap();
        KvClient::with_config(
            ring,
            KvClientConfig {
                deadline,
                ..KvClientConfig::default()
            },
        )
    }

    pub fn slot(&self, key: &[u8]) -> Slot {
        let layout = &self.snapshot.layout;
        Slot::of(layout.hash.hash(layout.seed, key), layout.slots.bits())
    }

    /// A key whose slot has this list.
    pub fn key_of(&self, list: &[u16], number: usize) -> Vec<u8> {
        let list: Vec<_> = list.iter().copied().map(Handle).collect();
        (0..)
            .map(|index| format!("key-{index}").into_bytes())
            .filter(|key| self.snapshot.layout.slots.list(self.slot(key)) == list)
            .nth(number)
            .unwrap()
    }

    /// Whether this node's live copy has a value for the key.
    pub fn has(&self, handle: usize, key: &[u8], value: &[u8]) -> bool {
        let record = self.node(handle).node.store.get(self.slot(key), key);
        record
            .is_ok_and(|record| record.is_some_and(|record| record.value.as_deref() == Some(value)))
    }
}

fn node_id(handle: u16) -> NodeId {
    NodeId::new(format!("n{handle}")).unwrap()
}

/// Waits for a condition, at most 20 s.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}

/// A server of snapshots and nothing else.
struct Watched(watch::Receiver<Option<(Epoch, v1::SnapshotBytes)>>);

#[tonic::async_trait]
impl v1::watch_server::Watch for Watched {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchEvent, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let have = request.into_inner().have.map_or(0, |have| have.epoch);
        let events = WatchStream::new(self.0.clone()).filter_map(move |snapshot| {
            let (_, snapshot) = snapshot.filter(|(epoch, _)| epoch.0 > have)?;
            let event = Some(v1::watch_event::Event::Full(snapshot));
            Some(Ok(v1::WatchEvent { event }))
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn report_applied(
        &self,
        _: Request<v1::ReportAppliedRequest>,
    ) -> Result<Response<v1::ReportAppliedResponse>, Status> {
        Ok(Response::new(v1::ReportAppliedResponse { fork: false }))
    }
}

async fn serve_watch(
    events: watch::Receiver<Option<(Epoch, v1::SnapshotBytes)>>,
) -> (Endpoint, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(listener.local_addr().unwrap().to_string()).unwrap();
    let service = v1::watch_server::WatchServer::new(Watched(events));
    let mut routes = tonic::service::RoutesBuilder::default();
    routes.add_service(service);
    (
        endpoint,
        serve::serve(routes, listener, CancellationToken::new()),
    )
}
