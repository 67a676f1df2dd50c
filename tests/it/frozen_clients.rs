//! Clients frozen at every older epoch: through a whole join and a whole drain each epoch keeps a
//! client that never refreshes and goes on reading and writing by its ring. What it is answered is
//! right or a refusal; never an old value, and never an acknowledgement that does not hold.
//!
//! ```text
//!   epoch 7    8    9    10   ...            each frozen client, again and again:
//!         f7   f7   f7   f7                    a current client writes  k
//!              f8   f8   f8                    the frozen one reads     k   right or refused
//!                   f9   f9                    the frozen one writes    k   acked or refused
//!                        f10                   a current client reads   k   right
//! ```

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use annulus_kv::{
    KvClient, KvClientConfig,
    pb::{self, kv_client::KvClient as Node, refused::Cause, write_result::Result as Written},
};
use annulus_ring::{Epoch, NodeId, Slot, Snapshot};
use annulus_tests::{
    cluster::{CHANGE, Cluster, RingPlan},
    history::servers_agree,
    ledger::{Key, Verdict},
    load::{Load, Plan},
    timeline::{Meaning, Timeline, moves},
    wait::until,
};
use futures::future::join_all;
use tonic::transport::{Channel, Endpoint};

const RING: &str = "frozen";
/// So long an epoch lasts at least: its client gets to work under it.
const EPOCH_INTERVAL: Duration = Duration::from_millis(300);
/// Keys of each frozen client.
const KEYS: usize = 4;
/// Between two rounds of one client; there are many.
const ROUND: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);
const VALUE_BYTES: usize = 40;

/// What all frozen clients came to.
#[derive(Debug, Default)]
struct Tally {
    served: AtomicU64,
    refused: AtomicU64,
    acknowledged: AtomicU64,
    refused_writes: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Tally {
    fn count(which: &AtomicU64) {
        which.fetch_add(1, Ordering::Relaxed);
    }
}

/// One client that holds the ring of one epoch for ever.
struct Frozen {
    snapshot: Arc<Snapshot>,
    nodes: BTreeMap<NodeId, Node<Channel>>,
    current: KvClient,
    keys: Vec<Key>,
    tally: Arc<Tally>,
    round: u32,
}

impl Frozen {
    fn new(snapshot: Arc<Snapshot>, current: KvClient, tally: &Arc<Tally>) -> Self {
        let connect = |member: &annulus_ring::Member| {
            let address = format!("http://{}", member.endpoint);
            let channel = Endpoint::from_shared(address).expect("an endpoint is an address");
            let channel = channel.connect_timeout(Duration::from_secs(2));
            (member.node_id.clone(), Node::new(channel.connect_lazy()))
        };
        let nodes = snapshot.members.iter().map(connect).collect();
        let keys = keys_of(&current, snapshot.epoch);
        Self {
            snapshot,
            nodes,
            current,
            keys,
            tally: Arc::clone(tally),
            round: 0,
        }
    }

    async fn run(mut self, stop: Arc<AtomicBool>) -> Self {
        while !stop.load(Ordering::Acquire) {
            self.round().await;
            tokio::time::sleep(ROUND).await;
        }
        self
    }

    async fn round(&mut self) {
        self.round += 1;
        for at in 0..self.keys.len() {
            if !self.keys[at].is_retired() {
                self.current_writes(at).await;
            }
            self.frozen_reads(at).await;
            if !self.keys[at].is_retired() {
                self.frozen_writes(at).await;
            }
            self.frozen_reads(at).await;
            self.current_reads(at).await;
        }
    }

    async fn current_writes(&mut self, at: usize) {
        let key = &mut self.keys[at];
        let (content, value) = key.begin(false, VALUE_BYTES);
        let value = value.expect("it is no delete");
        match self.current.put(&key.bytes, value).await {
            Ok(_) => key.acknowledged(content),
            Err(error) if error.is_unknown() => key.unknown(content),
            Err(_) => {}
        }
    }

    async fn current_reads(&self, at: usize) {
        if let Ok(found) = self.current.get(&self.keys[at].bytes).await {
            self.judge(at, found.value.as_deref(), "a current client");
        }
    }

    /// The owner by this client's ring, and what is sent along: one time in two the node may pass
    /// the request on, else it must answer itself.
    fn owner(&self, slot: Slot) -> Option<(Node<Channel>, pb::Stamp)> {
        let owner = self.snapshot.sets(slot).owner()?;
        let member = self.snapshot.member_by_handle(owner)?;
        let stamp = pb::Stamp {
            ring: RING.to_owned(),
            generation: self.snapshot.generation.0,
            epoch: self.snapshot.epoch.0,
            hops: 1 + self.round % 2,
        };
        Some((self.nodes[&member.node_id].clone(), stamp))
    }

    async fn frozen_reads(&self, at: usize) {
        let key = &self.keys[at];
        let Some((mut node, stamp)) = self.owner(key.slot) else {
            return;
        };
        let request = pb::GetRequest {
            stamp: Some(stamp),
            key: key.bytes.clone().into(),
            mode: pb::ReadMode::Exact.into(),
            timeout_ms: 2_000,
        };
        // A node that is gone answers nothing, which is no wrong answer.
        let answer = node.get(request).await.ok();
        match answer.and_then(|answer| answer.into_inner().result) {
            Some(pb::get_response::Result::Found(found)) => {
                Tally::count(&self.tally.served);
                self.judge(at, found.value.as_deref(), "a frozen client");
            }
            Some(pb::get_response::Result::Refused(_)) | None => {
                Tally::count(&self.tally.refused);
            }
        }
    }

    async fn frozen_writes(&mut self, at: usize) {
        let Some((mut node, stamp)) = self.owner(self.keys[at].slot) else {
            return;
        };
        let key = &mut self.keys[at];
        let (content, value) = key.begin(false, VALUE_BYTES);
        let request = pb::PutRequest {
            stamp: Some(stamp),
            key: key.bytes.clone().into(),
            value: value.expect("it is no delete").into(),
            timeout_ms: 2_000,
        };
        let answer = node.put(request).await;
        let answer = answer.map(|answer| answer.into_inner().result.and_then(|one| one.result));
        match answer {
            Ok(Some(Written::Written(_))) => {
                key.acknowledged(content);
                Tally::count(&self.tally.acknowledged);
            }
            Ok(Some(Written::Refused(refused))) => {
                if matches!(refused.cause, Some(Cause::Unknown(_)) | None) {
                    key.unknown(content);
                }
                Tally::count(&self.tally.refused_writes);
            }
            Ok(None) | Err(_) => key.unknown(content),
        }
    }

    fn judge(&self, at: usize, answer: Option<&[u8]>, who: &str) {
        let key = &self.keys[at];
        let verdict = key.judge(answer);
        if verdict != Verdict::Right {
            let epoch = self.snapshot.epoch;
            let mut wrong = self.tally.wrong.lock().expect("nobody panics holding it");
            wrong.push(format!(
                "{verdict:?}: {who}, of the client frozen at {epoch}, {key:?}"
            ));
        }
    }
}

/// New keys, on moving ranges where something moves.
fn keys_of(current: &KvClient, epoch: Epoch) -> Vec<Key> {
    let lookup = current.ring().current().expect("a snapshot was waited for");
    let aims = |slot| {
        let snapshot = lookup.snapshot();
        snapshot.transition.is_none() || moves(snapshot, slot)
    };
    let all = (0..10_000).map(|number| {
        let bytes = format!("frozen {epoch} {number}").into_bytes();
        let slot = lookup.slot(&bytes);
        Key::new(bytes, slot)
    });
    all.filter(|key| aims(key.slot)).take(KEYS).collect()
}

/// Freezes a client at each epoch that it sees, until it is stopped.
async fn freeze_all(
    cluster: &Cluster,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
) -> tokio::task::JoinHandle<Vec<Frozen>> {
    let client = cluster.client(RING).await;
    let config = KvClientConfig {
        deadline: PATIENCE,
        ..KvClientConfig::default()
    };
    let current = KvClient::with_config(client.clone(), config);
    tokio::spawn(async move {
        let mut epochs = client.epochs();
        let mut running = Vec::new();
        let mut goes_on = true;
        while goes_on {
            epochs.borrow_and_update();
            let lookup = client.current().expect("a snapshot was waited for");
            let snapshot = Arc::clone(lookup.snapshot());
            let frozen = Frozen::new(snapshot, current.clone(), &tally);
            running.push(tokio::spawn(frozen.run(Arc::clone(&stop))));
            goes_on = loop {
                if stop.load(Ordering::Acquire) {
                    break false;
                }
                if let Ok(changed) = tokio::time::timeout(ROUND, epochs.changed()).await {
                    break changed.is_ok();
                }
            };
        }
        let ended = join_all(running).await;
        let ended = ended.into_iter();
        ended.map(|one| one.expect("no client panics")).collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_frozen_at_any_epoch_is_answered_right_or_not_at_all() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start_paced(crate::BINARY, EPOCH_INTERVAL).await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    cluster.founded_ring(RingPlan::small(RING), &nodes).await;
    cluster.add_nodes(RING, &[("n4", "z1")]).await;
    let timeline = Timeline::watch(&cluster, RING, 1).await;
    let plan = Plan {
        writers: 4,
        keys: 20,
        writes_per_s: 60,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    let (tally, stop) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let freezer = freeze_all(&cluster, Arc::clone(&tally), Arc::clone(&stop)).await;

    let first = timeline.snapshot();
    cluster.change_to_its_end("join", RING, "n4").await;
    // n1 owned ranges: they are handed over, and its clients go on asking it.
    cluster.change_to_its_end("drain", RING, "n1").await;
    timeline
        .until(CHANGE, "nothing moves", |snapshot| {
            snapshot.transition.is_none()
        })
        .await;
    stop.store(true, Ordering::Release);
    let mut frozen = freezer.await.expect("it does not panic");

    // After it: also a client of each epoch that was too short to be seen.
    let current = frozen[0].current.clone();
    for snapshot in Meaning::read(&cluster.endpoints[0], RING).await.snapshots() {
        let known = |one: &Frozen| one.snapshot.epoch == snapshot.epoch;
        if snapshot.epoch >= first.epoch && !frozen.iter().any(known) {
            frozen.push(Frozen::new(Arc::clone(snapshot), current.clone(), &tally));
        }
    }
    for one in &mut frozen {
        // Twice: passed on, and not.
        one.round().await;
        one.round().await;
    }
    for one in &frozen {
        for (at, key) in one.keys.iter().enumerate() {
            let found = until(PATIENCE, "an exact read at the end", || async {
                let found = one.current.get(&key.bytes).await;
                found.map_err(|error| error.to_string())
            })
            .await;
            one.judge(at, found.value.as_deref(), "a read at the end");
        }
    }

    let wrong = tally
        .wrong
        .lock()
        .expect("nobody panics holding it")
        .clone();
    let (clients, shown) = (frozen.len(), &wrong[..wrong.len().min(10)]);
    assert!(wrong.is_empty(), "{} wrong: {shown:#?}", wrong.len());
    println!("{clients} frozen clients: {tally:?}");
    // A whole join and a whole drain, and each kind of answer was seen.
    assert!(clients > 14, "{clients} epochs");
    for count in [
        &tally.served,
        &tally.refused,
        &tally.acknowledged,
        &tally.refused_writes,
    ] {
        assert_ne!(count.load(Ordering::Relaxed), 0, "{tally:?}");
    }
    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    outcome.read_everything_back().await;
    timeline.rose();
    servers_agree(&cluster.endpoints, RING).await;
    cluster.nobody_panicked();
    cluster.kill_servers().await;
}
