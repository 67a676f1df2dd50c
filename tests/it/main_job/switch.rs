//! A switch whose gainer and whose other member are slow: what only the old list had acknowledged
//! must be with the gainer before the new list is read (rules "wait for J" and "joint before the
//! switch"). The baits `switch-not-waiting-for-joint` and `joint-after-switch` show here.
//!
//! ```text
//!   O = [n3, n2 slow, n1]     a write is acknowledged by n3 and n1
//!   N = [n3, n2 slow, n4 slow]     so at the switch n3 alone would hold it
//! ```

use std::time::Duration;

use annulus_ring::{NodeId, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    load::{Load, Plan, newest},
    probe::{self, Probe},
    timeline::{Timeline, moves},
};

const RING: &str = "switch";
/// How much later a slow node takes in what is replicated to it. Longer than the steps around the
/// switch take, so that nothing is there only because time passed.
const SLOW_MS: u64 = 3_000;
/// How long a step lasts at least. Well below the slowness: what the bait leaves behind is still
/// missing when it is looked for.
const EPOCH_INTERVAL: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_waits_for_what_only_the_old_list_had_acknowledged() {
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start_paced(crate::BINARY, EPOCH_INTERVAL).await;
    cluster
        .create_ring(RingPlan {
            name: RING,
            slot_bits: 6,
            soak: "1s",
            grace: "1s",
        })
        .await;
    for (name, zone, slow) in [
        ("n1", "z1", false),
        ("n2", "z2", true),
        ("n3", "z3", false),
        ("n4", "z1", true),
    ] {
        let replicate_delay_ms = slow.then_some(SLOW_MS);
        cluster.add_node(&NodePlan {
            ring: RING,
            name,
            zone,
            replicate_delay_ms,
            ..NodePlan::default()
        });
    }
    cluster.registered(RING, &["n1", "n2", "n3", "n4"]).await;
    let _ = cluster
        .annulus(&["ring", "found", RING, "n1", "n2", "n3"])
        .await
        .done();
    cluster.adopted(RING).await;

    let timeline = Timeline::watch(&cluster, RING, 1).await;
    let plan = Plan {
        writers: 32,
        keys: 20,
        writes_per_s: 600,
        ..Plan::default()
    };
    let load = Load::start(cluster.client(RING).await, plan);
    load.acknowledges(CHANGE, 1_000, "before anything moves", |_| true)
        .await;

    let change = cluster.change("join", RING, "n4").await;
    let joint = timeline.at_step(CHANGE, Step::Joint).await;
    let mut in_joint = load.ack_count();
    let switched = timeline.at_step(CHANGE, Step::Switched).await;
    in_joint = load.ack_count() - in_joint;

    let n3 = switched
        .member(&NodeId::new("n3").expect("a name"))
        .expect("a member")
        .handle;
    let mut acks = load.acks_from(0);
    acks.retain(|ack| moves(&switched, ack.slot) && switched.sets(ack.slot).owner() == Some(n3));
    let mut acks = newest(&acks);
    acks.reverse();
    let young = acks.iter().filter(|ack| ack.epoch >= joint.epoch).count();
    let probed = acks.len();
    assert!(probed > 0, "n3 owns moving ranges");
    let short = Probe::of(&switched).short_of_quorum(&switched, acks).await;
    assert!(
        short.is_empty(),
        "NO-LOST-WRITE: after the switch an exact read by r of N could miss a write; of {probed}, {}",
        probe::show(&short)
    );
    println!(
        "{probed} acknowledged writes held by w of N; {in_joint} acknowledged in step 6, {young} of them probed"
    );

    cluster.change_is(RING, change, "done").await;
    let outcome = load.stop().await;
    println!("load: {}", outcome.figures());
    outcome.read_everything_back().await;
    cluster.nobody_panicked();
}
