//! C55: the command line against a sick cluster: every command ends in bounded time, works through
//! whatever lives while there is a majority, and otherwise says who does not answer.

use std::time::Duration;

use annulus_tests::{
    cluster::{Cluster, RingPlan, SOON},
    command::Ran,
    stand_in::{self, StandIn},
    wait::until,
};

/// `--timeout` of the commands, and what they may take in all.
const TIMEOUT: &str = "5s";
const BOUNDED: Duration = Duration::from_secs(24);

const READS: [&[&str]; 6] = [
    &["status"],
    &["cluster", "status"],
    &["ring", "list"],
    &["ring", "dump", "sick"],
    &["node", "list", "sick"],
    &["lookup", "sick", "a key"],
];

async fn cluster() -> Cluster {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    cluster.founded_ring(RingPlan::small("sick"), &nodes).await;
    cluster.add_nodes("sick", &[("n4", "z1")]).await;
    cluster
}

async fn ask(cluster: &Cluster, endpoints: &[String], args: &[&str]) -> Ran {
    let mut all = args.to_vec();
    all.extend(["--timeout", TIMEOUT]);
    cluster.annulus_at(endpoints, &all).await.within(BOUNDED)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c55_with_a_majority_every_command_works_through_whatever_lives() {
    let cluster = cluster().await;
    let good = &cluster.endpoints;
    let sick: Vec<StandIn> = vec![
        stand_in::black_hole().await,
        stand_in::web_server().await,
        stand_in::tls_server().await,
    ];
    for stand_in in &sick {
        let first = [
            stand_in.endpoint.clone(),
            good[0].clone(),
            good[1].clone(),
            good[2].clone(),
        ];
        for args in READS {
            let _ = ask(&cluster, &first, args).await.done();
        }
        let only = [stand_in.endpoint.clone()];
        ask(&cluster, &only, &["status"])
            .await
            .ended_with(4, &[&stand_in.endpoint]);
    }
    // A follower alone takes reads and writes: it passes them on.
    let leader = cluster.leader().await;
    let follower = [good[(leader + 1) % 3].clone()];
    for args in READS {
        let _ = ask(&cluster, &follower, args).await.done();
    }
    let _ = ask(
        &cluster,
        &follower,
        &["node", "join", "sick", "n4", "--detach"],
    )
    .await
    .done();
    cluster.change_is("sick", 1, "done").await;
    let _ = ask(
        &cluster,
        &follower,
        &["node", "drain", "sick", "n4", "--detach"],
    )
    .await
    .done();
    cluster.nobody_panicked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c55_a_leader_that_stands_still_makes_no_command_hang() {
    let cluster = cluster().await;
    let leader = cluster.leader().await;
    let follower = [cluster.endpoints[(leader + 1) % 3].clone()];
    // It holds every connection and answers nothing: what is passed on to it hangs there.
    cluster.servers[leader].pause();
    let ran = ask(
        &cluster,
        &follower,
        &["ring", "create", "meanwhile", "--slot-bits", "2"],
    )
    .await;
    assert!(matches!(ran.code, 0 | 4 | 5), "{ran:#?}");
    until(SOON, "the others to go on", || async {
        let ran = ask(&cluster, &follower, &["status"]).await;
        if ran.code == 0 {
            Ok(())
        } else {
            Err(format!("{ran:?}"))
        }
    })
    .await;
    cluster.servers[leader].resume();
    cluster.leader().await;
    cluster.nobody_panicked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c55_without_a_majority_every_command_ends_and_names_who_does_not_answer() {
    let mut cluster = cluster().await;
    cluster.servers[1].kill().await;
    cluster.servers[2].kill().await;
    let all = cluster.endpoints.clone();
    let silent = [all[1].as_str(), all[2].as_str()];

    let status = ask(&cluster, &all, &["status"]).await;
    let status = status.ended_with(4, &["no quorum: 1 of 3", silent[0], silent[1], "next:"]);
    assert!(
        status.stdout.contains("STALE") && status.stdout.contains("sick"),
        "{status:#?}"
    );
    for args in READS {
        let ran = ask(&cluster, &all, args).await;
        // A lookup needs no leader: it shows the newest snapshot that anybody has.
        if args[0] == "lookup" {
            assert!(matches!(ran.code, 0 | 4), "{ran:#?}");
        } else {
            let _ = ran.ended_with(4, &["next:"]);
        }
    }
    let local: [&[&str]; 3] = [
        &["status", "--local"],
        &["ring", "dump", "sick", "--local"],
        &["node", "list", "sick", "--local"],
    ];
    for args in local {
        let _ = ask(&cluster, &all, args).await.done();
    }
    for (kind, node) in [("join", "n4"), ("drain", "n1")] {
        let ran = ask(&cluster, &all, &["node", kind, "sick", node, "--detach"]).await;
        // Nobody leads since a while, so nothing was proposed: that is known.
        let _ = ran.ended_with(4, &["no quorum: 1 of 3", "next:"]);
    }
    let create = ["ring", "create", "late", "--slot-bits", "2"];
    let ran = ask(&cluster, &all, &create).await;
    let _ = ran.ended_with(4, &["no quorum: 1 of 3", silent[0], "next:"]);
    // Nobody at all.
    cluster.servers[0].kill().await;
    ask(&cluster, &all, &["status"])
        .await
        .ended_with(4, &["next:"]);
    cluster.nobody_panicked();
}
