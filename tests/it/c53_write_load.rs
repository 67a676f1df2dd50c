//! C53: catch-up under a write load that does not let up. Writes reach a gainer as they are made,
//! past the throttle, so what a fast writer can outrun is the copy alone: the join then stays where
//! it is, and says for what it waits. A range that always fails (step 2) is in
//! `agent/tests/moving/c52_missing_data.rs`.

use annulus_ring::Step;
use annulus_tests::{cluster::CHANGE, timeline::Meaning};

use crate::c51_dead_in_mid_copy::{GUEST, RING, Scene};

/// Bytes a second from each source: much less than is written meanwhile.
const TRICKLE: u64 = 500;
const EASED: u64 = 1_000_000;

/// Steps 1, 3 and 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c53_a_copy_that_is_outrun_waits_by_name_and_ends_by_itself_when_it_is_eased() {
    let _alone = crate::heavy().await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    let mut scene = Scene::start(&nodes, TRICKLE).await;
    let join = scene.cluster.change("join", RING, GUEST).await;
    let copying = scene.timeline.at_step(CHANGE, Step::Copying).await;
    for _ in 0..3 {
        scene
            .load
            .acknowledges(CHANGE, 100, "while it copies", |_| true)
            .await;
        scene.waits_for(&[GUEST, "to copy", "range(s)"]).await;
        let now = scene.timeline.snapshot();
        let step = now.transition.as_ref().map(|running| running.step);
        assert_eq!(step, Some(Step::Copying), "neither forth nor back");
        assert!(!scene.guest_serves(), "active without a complete copy");
    }

    // The throttle is lifted; nobody asks for anything again.
    let process = &mut scene.cluster.nodes.get_mut(GUEST).expect("added").process;
    process.kill().await;
    process.set_option("--throttle", &EASED.to_string());
    process.start();
    scene.cluster.change_is(RING, join, "done").await;
    assert!(scene.guest_serves());
    let meaning = Meaning::read(&scene.cluster.endpoints[0], RING).await;
    let steps: Vec<u8> = meaning
        .snapshots()
        .filter(|one| one.epoch >= copying.epoch)
        .filter_map(|one| one.transition.as_ref())
        .map(|running| running.step.number())
        .collect();
    assert!(steps.is_sorted(), "flip-flop: {steps:?}");
    scene.end().await;
}
