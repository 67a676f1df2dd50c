//! C51: the source or the target of a copy dies in the middle. Slots stay where they are, so "the
//! same tokens" (step 2) is the same target. Of step 5 there is no test: a copy is taken from the
//! range's owner, and a node that reaches every server but not one owner waits for that owner by
//! name, until it can be reached or the change is withdrawn.

use annulus_kv::KvClient;
use annulus_ring::{NodeId, Snapshot};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan, wide},
    history::servers_agree,
    load::{Load, Plan},
    timeline::Timeline,
    wait::until,
};
use futures::{StreamExt, stream};

pub(crate) const RING: &str = "midcopy";
pub(crate) const GUEST: &str = "n4";
/// Bytes a second from each source: the copy takes some seconds.
const THROTTLE: u64 = 20_000;
const FILLED: usize = 300;

/// A ring with some data, and a guest that copies slowly.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) timeline: Timeline,
    pub(crate) load: Load,
    kv: KvClient,
}

impl Scene {
    pub(crate) async fn start(nodes: &[(&str, &str)], throttle: u64) -> Self {
        let mut cluster = Cluster::start(crate::BINARY).await;
        cluster.founded_ring(RingPlan::small(RING), nodes).await;
        cluster.add_node(&NodePlan {
            ring: RING,
            name: GUEST,
            zone: "z1",
            throttle: Some(throttle),
            ..NodePlan::default()
        });
        cluster.registered(RING, &[GUEST]).await;
        let timeline = Timeline::watch(&cluster, RING, 1).await;
        let client = cluster.client(RING).await;
        let kv = KvClient::new(client.clone());
        stream::iter(0..FILLED)
            .for_each_concurrent(16, |number| {
                let kv = kv.clone();
                async move {
                    let key = format!("filled {number}");
                    let _ = kv
                        .put(key.as_bytes(), vec![b'x'; 2_000])
                        .await
                        .expect("a write");
                }
            })
            .await;
        let plan = Plan {
            writers: 4,
            keys: 20,
            writes_per_s: 40,
            ..Plan::default()
        };
        let load = Load::start(client, plan);
        load.acknowledges(CHANGE, 40, "before anything moves", |_| true)
            .await;
        Self {
            cluster,
            timeline,
            load,
            kv,
        }
    }

    /// Joins the guest and waits until it has some copies, and not all. Gives the change's number.
    pub(crate) async fn half_copied(&self) -> u64 {
        let change = self.cluster.change("join", RING, GUEST).await;
        until(CHANGE, "some copies", || async {
            let show = self.cluster.show(RING).await;
            let number = |what: &str| show["transition"][what].as_u64().unwrap_or_default();
            let (copied, copies) = (number("copied"), number("copies"));
            assert!(copied == 0 || copied < copies, "too fast: {show}");
            if copied >= 2 {
                Ok(())
            } else {
                Err(show["transition"].to_string())
            }
        })
        .await;
        change
    }

    pub(crate) async fn waits_for(&self, words: &[&str]) {
        until(CHANGE, format!("status to say {words:?}"), || async {
            let show = self.cluster.show(RING).await;
            let waits = show["transition"]["waiting_for"].to_string();
            if words.iter().all(|word| waits.contains(word)) {
                Ok(())
            } else {
                Err(show["transition"].to_string())
            }
        })
        .await;
    }

    /// The guest serves nothing before the switch.
    pub(crate) fn guest_serves(&self) -> bool {
        serves(&self.timeline.snapshot(), GUEST)
    }

    pub(crate) async fn end(mut self) {
        let outcome = self.load.stop().await;
        println!("load: {}", outcome.figures());
        outcome.read_everything_back().await;
        for number in 0..FILLED {
            let key = format!("filled {number}");
            let found = self.kv.get(key.as_bytes()).await.expect("a read");
            assert_eq!(found.value.map(|value| value.len()), Some(2_000), "{key}");
        }
        self.timeline.rose();
        servers_agree(&self.cluster.endpoints, RING).await;
        self.cluster.nobody_panicked();
        self.cluster.kill_servers().await;
    }
}

fn serves(snapshot: &Snapshot, node: &str) -> bool {
    let Some(member) = snapshot.member(&NodeId::new(node).expect("a name")) else {
        return false;
    };
    let mut slots = snapshot.layout.slots.slots();
    slots.any(|slot| snapshot.sets(slot).read_set().contains(&member.handle))
}

/// Step 1: the owner of some of the ranges is gone for good. Another complete member becomes
/// owner, and so the source; the dead one leaves by the operator's word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c51_a_source_that_dies_for_good_is_replaced_and_the_join_ends() {
    let _alone = crate::heavy().await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n5", "z2")];
    let mut scene = Scene::start(&nodes, THROTTLE).await;
    let join = scene.half_copied().await;
    let owners = scene.timeline.snapshot();
    let dead = NodeId::new("n2").expect("a name");
    let handle = owners.member(&dead).expect("a member").handle;
    let transition = owners.transition.as_ref().expect("it copies");
    assert!(
        transition
            .target
            .iter()
            .any(|moved| owners.sets(moved.slot).owner() == Some(handle)),
        "n2 is the source of some copy"
    );
    let process = &mut scene.cluster.nodes.get_mut("n2").expect("added").process;
    process.kill().await;
    scene
        .timeline
        .until(CHANGE, "other owners, and the switch", |snapshot| {
            let owns = |slot| snapshot.sets(slot).owner() == Some(handle);
            serves(snapshot, GUEST) && !snapshot.layout.slots.slots().any(owns)
        })
        .await;
    let remove = [
        "node", "remove", RING, "n2", "--dead", "--detach", "-o", "json",
    ];
    let removed = scene.cluster.annulus(&remove).await.json();
    scene.cluster.change_is(RING, join, "done").await;
    let removed = wide(&removed["change_id"]);
    scene.cluster.change_is(RING, removed, "done").await;
    let after = scene.timeline.snapshot();
    for slot in after.layout.slots.slots() {
        let list = after.layout.slots.list(slot);
        assert!(list.len() == 3 && !list.contains(&handle), "slot {slot}");
    }
    scene.end().await;
}

/// Steps 2 and 4: the target comes back with its disk and goes on; and once more after the leader
/// died with it, so that what it reported last and what it was answered are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c51_a_target_that_restarts_goes_on_also_under_another_leader() {
    let _alone = crate::heavy().await;
    let mut scene = Scene::start(&[("n1", "z1"), ("n2", "z2"), ("n3", "z3")], THROTTLE).await;
    let join = scene.half_copied().await;
    let session = |snapshot: &Snapshot| snapshot.transition.as_ref().map(|running| running.id);
    let before = session(&scene.timeline.snapshot());
    let process = &mut scene.cluster.nodes.get_mut(GUEST).expect("added").process;
    process.kill().await;
    scene.waits_for(&[GUEST, "no link, last heard"]).await;
    assert!(!scene.guest_serves(), "active without a complete copy");
    let leader = scene.cluster.leader().await;
    scene.cluster.servers[leader].kill().await;
    let process = &mut scene.cluster.nodes.get_mut(GUEST).expect("added").process;
    process.start();
    scene.cluster.registered(RING, &[GUEST]).await;
    scene.cluster.servers[leader].start();
    let now = session(&scene.timeline.snapshot());
    assert_eq!(now, before, "the same transition goes on");
    scene.cluster.change_is(RING, join, "done").await;
    assert!(scene.guest_serves());
    scene.end().await;
}

/// Steps 2 and 3: the target's disk is lost. It is not taken for holding what it had copied; the
/// change stands still by name, is withdrawn, and the empty node joins in a life of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c51_a_target_that_lost_its_disk_is_not_believed_and_its_join_is_withdrawn() {
    let _alone = crate::heavy().await;
    let mut scene = Scene::start(&[("n1", "z1"), ("n2", "z2"), ("n3", "z3")], THROTTLE).await;
    let join = scene.half_copied().await;
    let before = scene.timeline.snapshot();
    let node = scene.cluster.nodes.get_mut(GUEST).expect("added");
    node.process.kill().await;
    std::fs::remove_dir_all(&node.data_dir).expect("its directory");
    node.process.start();
    scene.waits_for(&[GUEST, "no link, last heard"]).await;
    let process = &scene.cluster.nodes[GUEST].process;
    until(CHANGE, "the empty disk to be refused", || async {
        match process.log().contains("emptied disk") {
            true => Ok(()),
            false => Err(process.tail()),
        }
    })
    .await;
    assert!(!scene.guest_serves(), "active without a complete copy");
    scene
        .load
        .acknowledges(CHANGE, 40, "by everybody else", |_| true)
        .await;
    let id = join.to_string();
    let _ = scene
        .cluster
        .annulus(&["node", "abort", RING, &id])
        .await
        .done();
    scene.cluster.change_is(RING, join, "aborted").await;
    let after = scene
        .timeline
        .until(CHANGE, "nothing moves", |one| one.transition.is_none())
        .await;
    assert_eq!(after.layout.slots, before.layout.slots, "ABORT-CLEAN");

    let node = scene.cluster.nodes.get_mut(GUEST).expect("added");
    node.process.kill().await;
    node.process.start();
    scene.cluster.registered(RING, &[GUEST]).await;
    let again = scene.half_copied().await;
    scene.cluster.change_is(RING, again, "done").await;
    assert!(scene.guest_serves());
    scene.end().await;
}
