//! C12: two topology changes at once, in four rings of one control plane, whose leader is killed
//! in the middle of all of them.

use std::{collections::BTreeSet, time::Duration};

use annulus_ring::{Handle, MemberState, Snapshot, Zone};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    command::Ran,
    history::servers_agree,
    load::{Load, Plan},
    timeline::{Meaning, Timeline},
};
use serde_json::Value;

/// An answer needs no waiting.
const PROMPTLY: Duration = Duration::from_secs(10);
/// Slow enough that the kill finds copies under way.
const THROTTLE: u64 = 4_000;

const THREE: &[(&str, &str)] = &[("a", "z1"), ("b", "z2"), ("c", "z3")];
const FOUR: &[(&str, &str)] = &[("a", "z1"), ("b", "z2"), ("c", "z3"), ("d", "z1")];
const SIX: &[(&str, &str)] = &[
    ("a", "z1"),
    ("b", "z2"),
    ("c", "z3"),
    ("d", "z1"),
    ("e", "z2"),
    ("f", "z3"),
];

struct Scene {
    ring: &'static str,
    founders: &'static [(&'static str, &'static str)],
    joiners: &'static [(&'static str, &'static str)],
    changes: [(&'static str, &'static str); 2],
    /// How many of the two may be accepted.
    accepted: usize,
}

const SCENES: [Scene; 4] = [
    Scene {
        ring: "join-join",
        founders: THREE,
        joiners: &[("e", "z1"), ("f", "z2")],
        changes: [("join", "e"), ("join", "f")],
        accepted: 2,
    },
    Scene {
        ring: "drain-drain",
        founders: SIX,
        joiners: &[],
        changes: [("drain", "a"), ("drain", "b")],
        accepted: 2,
    },
    Scene {
        ring: "join-drain",
        founders: FOUR,
        joiners: &[("e", "z1")],
        changes: [("join", "e"), ("drain", "a")],
        accepted: 2,
    },
    // Each drain is legal alone; both together would leave two nodes for three replicas.
    Scene {
        ring: "one-of-two",
        founders: FOUR,
        joiners: &[],
        changes: [("drain", "a"), ("drain", "d")],
        accepted: 1,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_two_changes_at_once_are_both_answered_and_what_is_accepted_ends_though_the_leader_dies()
 {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start(crate::BINARY).await;
    let mut running = Vec::new();
    for scene in &SCENES {
        cluster.create_ring(RingPlan::small(scene.ring)).await;
        for (name, zone) in scene.founders.iter().chain(scene.joiners) {
            let throttle = Some(THROTTLE);
            add(
                &mut cluster,
                &NodePlan {
                    ring: scene.ring,
                    name,
                    zone,
                    throttle,
                    ..NodePlan::default()
                },
            );
        }
        let names: Vec<&str> = scene
            .founders
            .iter()
            .chain(scene.joiners)
            .map(|(name, _)| *name)
            .collect();
        cluster.registered(scene.ring, &names).await;
        let mut found = vec!["ring", "found", scene.ring];
        found.extend(&names[..scene.founders.len()]);
        let _ = cluster.annulus(&found).await.done();
        let timeline = Timeline::watch(&cluster, scene.ring, 1).await;
        let plan = Plan {
            writers: 4,
            keys: 100,
            writes_per_s: 150,
            ..Plan::default()
        };
        let load = Load::start(cluster.client(scene.ring).await, plan);
        running.push((timeline, load));
    }
    for (_, load) in &running {
        load.acknowledges(CHANGE, 200, "before anything moves", |_| true)
            .await;
    }

    let mut accepted = Vec::new();
    for scene in &SCENES {
        accepted.push(ask_for_both(&cluster, scene).await);
    }
    // At least one of them is on its way in some ring, whatever the machine is doing.
    for (timeline, _) in &running {
        timeline
            .until(CHANGE, "a transition", |snapshot| {
                snapshot.transition.is_some()
            })
            .await;
    }
    let leader = cluster.leader().await;
    cluster.servers[leader].kill().await;
    let moving = running
        .iter()
        .filter(|(timeline, _)| timeline.snapshot().transition.is_some());
    println!(
        "the leader was killed while {} of 4 rings moved",
        moving.count()
    );
    cluster.servers[leader].start();

    for ((scene, changes), (timeline, load)) in SCENES.iter().zip(accepted).zip(running) {
        for change in changes {
            cluster.change_is(scene.ring, change, "done").await;
        }
        let outcome = load.stop().await;
        outcome.read_everything_back().await;
        timeline.rose();
        servers_agree(&cluster.endpoints, scene.ring).await;
        let meaning = Meaning::read(&cluster.endpoints[0], scene.ring).await;
        meaning
            .snapshots()
            .for_each(|snapshot| keeps_its_rules(snapshot));
        println!("{}: {}", scene.ring, outcome.figures());
    }
    cluster.nobody_panicked();
}

/// Nodes of all rings share the cluster's map, so they are named by ring there.
fn add(cluster: &mut Cluster, plan: &NodePlan<'_>) {
    let mut node = cluster.plan(plan);
    node.process.start();
    cluster
        .nodes
        .insert(format!("{}/{}", plan.ring, plan.name), node);
}

/// Asks for both changes at the same time; gives the numbers of those accepted.
async fn ask_for_both(cluster: &Cluster, scene: &Scene) -> Vec<u64> {
    let ask = async |(kind, node): (&str, &str)| {
        cluster
            .annulus(&["node", kind, scene.ring, node, "--detach", "-o", "json"])
            .await
            .within(PROMPTLY)
    };
    let [first, second] = scene.changes;
    let (first, second) = tokio::join!(ask(first), ask(second));
    let answers = [first, second];
    let number =
        |ran: &Ran| (ran.code == 0).then(|| annulus_tests::cluster::wide(&ran.json()["change_id"]));
    let accepted: Vec<u64> = answers.iter().filter_map(number).collect();
    assert_eq!(
        accepted.len(),
        scene.accepted,
        "{}: {answers:#?}",
        scene.ring
    );
    for ran in answers.iter().filter(|ran| ran.code != 0) {
        assert_eq!(ran.code, 3, "neither accepted nor refused: {ran:#?}");
    }
    // Accepted and not begun is queued, and visible.
    let show = cluster.show(scene.ring).await;
    let listed = |change: &u64| {
        let id = Value::from(change.to_string());
        show["changes"]
            .as_array()
            .is_some_and(|all| all.iter().any(|known| known["id"] == id))
    };
    assert!(accepted.iter().all(listed), "{show}");
    accepted
}

/// Every epoch satisfies rf and zones, and plans nothing onto a node that leaves.
fn keeps_its_rules(snapshot: &Snapshot) {
    let zone = |handle: &Handle| -> Zone {
        snapshot
            .member_by_handle(*handle)
            .expect("a checked snapshot")
            .zone
            .clone()
    };
    let draining = |handle: &Handle| {
        let member = snapshot
            .member_by_handle(*handle)
            .expect("a checked snapshot");
        member.state == MemberState::Draining
    };
    let rf = usize::from(snapshot.layout.replication.rf);
    let founded = !snapshot.members.is_empty();
    for slot in snapshot.layout.slots.slots().filter(|_| founded) {
        let sets = snapshot.sets(slot);
        for list in [sets.old, sets.new] {
            let zones: BTreeSet<Zone> = list.iter().map(zone).collect();
            assert_eq!(
                list.len(),
                rf,
                "epoch {} slot {slot}: {list:?}",
                snapshot.epoch
            );
            assert_eq!(
                zones.len(),
                rf,
                "epoch {} slot {slot}: {list:?}",
                snapshot.epoch
            );
        }
        let planned = sets.gainers().find(|gainer| draining(gainer));
        assert_eq!(
            planned, None,
            "epoch {} slot {slot} gains a draining node",
            snapshot.epoch
        );
    }
}
