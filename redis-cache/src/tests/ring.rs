//! A cache ring over three servers: joined and drained, entries are where the ring says.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    time::{Duration, Instant},
};

use annulus_client::{AdminClient, Client, admin::Read};
use annulus_control_plane::{Config, Server as ControlPlane};
use annulus_proto::v1;
use annulus_ring::{Endpoint, NodeId, RingName, Weight, Zone};
use bytes::Bytes;

use super::{DEADLINE, Redis};
use crate::{CacheClient, RedisNode, RedisNodeConfig};

const RING: &str = "cache";
const KEYS: usize = 400;
const TTL: Duration = Duration::from_secs(3_600);

/// A control plane of one server, and nodes each beside a redis-server.
struct Fleet {
    dir: tempfile::TempDir,
    control: ControlPlane,
    admin: AdminClient,
    nodes: BTreeMap<&'static str, (Redis, RedisNode)>,
}

impl Fleet {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let id = NonZeroU64::MIN;
        let mut config = Config::new(id, listen, dir.path().join("control"));
        config.limits.epoch_interval_ms = std::num::NonZeroU32::MIN;
        let control = ControlPlane::start(config).await.unwrap();
        let endpoint = Endpoint::new(control.local_addr().to_string()).unwrap();
        let admin = AdminClient::new([endpoint.clone()]).unwrap();
        admin.init_cluster([(1, endpoint)]).await.unwrap();
        Self {
            dir,
            control,
            admin,
            nodes: BTreeMap::new(),
        }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.control.local_addr().to_string()).unwrap()
    }

    async fn node(&mut self, name: &'static str, redis: Redis) {
        let node = RedisNode::start(RedisNodeConfig {
            dir: self.dir.path().join(name),
            ring: RingName::new(RING).unwrap(),
            node_id: NodeId::new(name).unwrap(),
            zone: Zone::new("z").unwrap(),
            weight: Weight::new(100).unwrap(),
            listen: "127.0.0.1:0".parse().unwrap(),
            server: redis.address.clone(),
            control: vec![self.endpoint()],
        })
        .await
        .unwrap();
        let start = Instant::now();
        while node.status().linked_to.is_none() {
            assert!(start.elapsed() < DEADLINE, "{name}: {:?}", node.status());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.nodes.insert(name, (redis, node));
    }

    /// Waits until nothing moves and nothing is kept; the ring then.
    async fn at_rest(&self, member: &str, is_member: bool) -> v1::RingStatus {
        let start = Instant::now();
        loop {
            let name = RingName::new(RING).unwrap();
            let ring = self.admin.ring(&name, Read::Linearizable).await.unwrap();
            let there = ring
                .nodes
                .iter()
                .any(|node| node.node_id == member && node.member);
            if there == is_member && ring.transition.is_none() && ring.retained_copies == 0 {
                return ring;
            }
            assert!(start.elapsed() < DEADLINE, "{member}: {ring:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for a conversion that began after `epoch`, also at the nodes and the client.
    async fn converted(&self, client: &Client, epoch: u64) -> v1::RingStatus {
        let name = RingName::new(RING).unwrap();
        let start = Instant::now();
        loop {
            let ring = self.admin.ring(&name, Read::Linearizable).await.unwrap();
            let adopted = ring.nodes_at.iter().all(|at| at.epoch >= ring.epoch);
            if ring.converted_epoch > epoch && adopted {
                let before = annulus_ring::Epoch(ring.epoch - 1);
                client.wait_newer_than(before, DEADLINE).await.unwrap();
                return ring;
            }
            assert!(start.elapsed() < DEADLINE, "{ring:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Of each node, the keys that its server holds.
    fn held(&self) -> BTreeMap<&'static str, Vec<Bytes>> {
        let keys = |redis: &Redis| {
            let mut keys = Vec::new();
            redis.server().scan(|key| keys.push(key)).unwrap();
            keys
        };
        let nodes = self.nodes.iter();
        nodes
            .map(|(name, (redis, _))| (*name, keys(redis)))
            .collect()
    }
}

fn key(at: usize) -> Bytes {
    Bytes::from(format!("user:{at}"))
}

/// Entries with an even number have a TTL.
fn ttl(at: usize) -> Option<Duration> {
    at.is_multiple_of(2).then_some(TTL)
}

/// Every key is found through the ring, and lies at its owner and nowhere else, with its TTL.
fn all_found(fleet: &Fleet, client: &Client, cache: &CacheClient) -> BTreeMap<String, usize> {
    let mut owned: BTreeMap<String, usize> = BTreeMap::new();
    for at in 0..KEYS {
        let key = key(at);
        let value = cache.get(&key).unwrap();
        assert_eq!(value, Some(Bytes::from(format!("value {at}"))), "{key:?}");
        let owner = client.lookup(&key).unwrap().owner().node_id.to_string();
        let (redis, _) = &fleet.nodes[owner.as_str()];
        let there = redis.server().dump(std::slice::from_ref(&key)).unwrap();
        let left = there[0].as_ref().map(|entry| entry.ttl_ms);
        let whole = u64::try_from(TTL.as_millis()).unwrap();
        match ttl(at) {
            Some(_) => assert!(left.is_some_and(|ms| (1..=whole).contains(&ms)), "{left:?}"),
            None => assert_eq!(left, Some(0), "{key:?} at {owner}"),
        }
        *owned.entry(owner).or_default() += 1;
    }
    for (node, keys) in fleet.held() {
        let owns = owned.get(node).copied().unwrap_or(0);
        assert_eq!(keys.len(), owns, "{node} holds what it does not own");
    }
    owned
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_follow_the_ring_through_a_join_and_a_drain() {
    let name = "entries_follow_the_ring_through_a_join_and_a_drain";
    let servers: Vec<Redis> = (0..3).map_while(|_| Redis::start(name)).collect();
    let Ok([one, two, three]) = <[Redis; 3]>::try_from(servers) else {
        return;
    };
    let mut fleet = Fleet::start().await;
    let create = v1::CreateRingRequest {
        ring: RING.to_owned(),
        slot_bits: 5,
        rf: 1,
        w: 1,
        r: 1,
        kind: "cache".to_owned(),
        warm_up: Some(v1::WarmUp {
            limit_ms: 60_000,
            hit_ratio_permille: 0,
        }),
        ..v1::CreateRingRequest::default()
    };
    fleet.admin.create_ring(create).await.unwrap();
    fleet.node("n1", one).await;
    fleet.node("n2", two).await;
    let found = v1::FoundRingRequest {
        ring: RING.to_owned(),
        nodes: vec!["n1".to_owned(), "n2".to_owned()],
        ..v1::FoundRingRequest::default()
    };
    fleet.admin.found_ring(found).await.unwrap();

    let client = Client::builder(RING).endpoints([fleet.endpoint()]);
    let client = client.connect_lazy().unwrap();
    let founded = fleet.at_rest("n2", true).await;
    assert_eq!(
        (founded.kind.as_str(), founded.soak_ms, founded.grace_ms),
        ("cache", 0, 0)
    );
    let addresses = |fleet: &Fleet, late: &Redis| {
        let known = fleet.nodes.iter();
        let known = known.map(|(name, (redis, _))| (*name, redis.address.clone()));
        let all = known.chain([("n3", late.address.clone())]);
        all.map(|(name, at)| (NodeId::new(name).unwrap(), at))
            .collect::<Vec<_>>()
    };
    let cache = CacheClient::new(client.clone(), addresses(&fleet, &three)).unwrap();
    let epoch = |ring: &v1::RingStatus| annulus_ring::Epoch(ring.epoch - 1);
    client
        .wait_newer_than(epoch(&founded), DEADLINE)
        .await
        .unwrap();
    for at in 0..KEYS {
        cache
            .set(&key(at), format!("value {at}").as_bytes(), ttl(at))
            .unwrap();
    }
    let owned = all_found(&fleet, &client, &cache);
    assert_eq!(owned.keys().collect::<Vec<_>>(), ["n1", "n2"]);

    fleet.node("n3", three).await;
    let join = v1::JoinNodeRequest {
        ring: RING.to_owned(),
        node: "n3".to_owned(),
        ..v1::JoinNodeRequest::default()
    };
    fleet.admin.join_node(join).await.unwrap();
    let joined = fleet.at_rest("n3", true).await;
    client
        .wait_newer_than(epoch(&joined), DEADLINE)
        .await
        .unwrap();
    let owned = all_found(&fleet, &client, &cache);
    assert!(owned["n3"] > KEYS / 10, "n3 took its share: {owned:?}");

    let drain = v1::DrainNodeRequest {
        ring: RING.to_owned(),
        node: "n1".to_owned(),
        ..v1::DrainNodeRequest::default()
    };
    fleet.admin.drain_node(drain).await.unwrap();
    let drained = fleet.at_rest("n1", false).await;
    client
        .wait_newer_than(epoch(&drained), DEADLINE)
        .await
        .unwrap();
    let owned = all_found(&fleet, &client, &cache);
    assert!(!owned.contains_key("n1"), "{owned:?}");

    // Twice as many ranges: entries lie where they lay. Another hash: they are looked for elsewhere,
    // and those of before take no room.
    let convert = |double: bool, hash: Option<&str>| v1::ConvertRequest {
        ring: RING.to_owned(),
        hash: hash.map(str::to_owned),
        double,
        ..v1::ConvertRequest::default()
    };
    fleet.admin.convert_ring(convert(true, None)).await.unwrap();
    let doubled = fleet.converted(&client, drained.epoch).await;
    assert_eq!(doubled.slot_bits, 6);
    all_found(&fleet, &client, &cache);
    let hash = convert(false, Some("md5-64"));
    fleet.admin.convert_ring(hash).await.unwrap();
    let rehashed = fleet.converted(&client, doubled.epoch).await;
    assert_eq!(rehashed.hash, "md5-64");
    assert!(
        fleet.held().values().all(Vec::is_empty),
        "{:?}",
        fleet.held()
    );
    for at in 0..KEYS {
        assert_eq!(cache.get(&key(at)).unwrap(), None, "it begins cold");
        cache
            .set(&key(at), format!("value {at}").as_bytes(), ttl(at))
            .unwrap();
    }
    all_found(&fleet, &client, &cache);

    // An invalidation holds at whoever owns the key now.
    cache.delete(&key(7)).unwrap();
    assert_eq!(cache.get(&key(7)).unwrap(), None);
    for (_, (_, node)) in fleet.nodes {
        node.shutdown().await;
    }
    fleet.control.shutdown().await;
}
