//! C20: no short cut to active, and no traffic before it. NO-EARLY-READ at a gainer's own door is
//! also asked all along the main job.

use std::time::Duration;

use annulus_proto::v1;
use annulus_ring::{Lookup, MemberState, Snapshot, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, RingPlan, SOON},
    liar::{Claim, Liar},
    ports,
    timeline::{Meaning, Timeline},
    wait::until,
};

const NODES: [(&str, &str); 3] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c20_no_lookup_names_a_joining_node_before_it_is_active() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(RingPlan::small("lookups"), &NODES)
        .await;
    cluster.add_nodes("lookups", &[("n4", "z1")]).await;
    cluster.change_to_its_end("join", "lookups", "n4").await;

    let keys: Vec<Vec<u8>> = (0..10_000)
        .map(|n| format!("key {n}").into_bytes())
        .collect();
    let meaning = Meaning::read(&cluster.endpoints[0], "lookups").await;
    let mut seen = Vec::new();
    for snapshot in meaning.snapshots() {
        let node = snapshot
            .members
            .iter()
            .find(|member| member.node_id.as_str() == "n4");
        let active = node.is_some_and(|node| node.state == MemberState::Active);
        let lookup = Lookup::compile((**snapshot).clone().into()).expect("a published snapshot");
        let named = keys
            .iter()
            .filter_map(|key| lookup.route(key).ok())
            .any(|route| {
                route
                    .handles()
                    .iter()
                    .any(|handle| node.is_some_and(|node| node.handle == *handle))
            });
        assert!(
            !named || active,
            "epoch {} routes to n4, which is {:?}",
            snapshot.epoch,
            node
        );
        seen.push((
            snapshot.transition.as_ref().map(|it| it.step.number()),
            named,
        ));
    }
    let steps: Vec<u8> = seen.iter().filter_map(|(step, _)| *step).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6, 7], "a step was left out");
    assert!(
        seen.last().is_some_and(|(_, named)| *named),
        "in the end it serves"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c20_a_node_that_only_claims_to_have_copied_never_becomes_active() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small("lies"), &NODES).await;
    let claim = Claim {
        ring: "lies".to_owned(),
        node: "liar".to_owned(),
        zone: "z1".to_owned(),
        endpoint: ports::free_endpoint(),
        weight: 100,
    };
    let mut liar = Liar::welcomed(&cluster.endpoints, &claim)
        .await
        .expect("an empty new node");
    let timeline = Timeline::watch(&cluster, "lies", 1).await;
    let change = cluster.change("join", "lies", "liar").await;
    let prepared = timeline.at_step(CHANGE, Step::Prepared).await;
    let transition = prepared.transition.as_ref().expect("at step 1").clone();
    let gained: Vec<u32> = transition.target.iter().map(|moved| moved.slot.0).collect();
    let foreign = (0..32)
        .find(|slot| !gained.contains(slot))
        .expect("not everything moves");
    let session = transition.id.0;
    let position = |seq| {
        Some(v1::Position {
            reign: prepared.epoch.0,
            seq,
        })
    };
    let slot = |slot| v1::SlotReport {
        slot,
        session,
        attempt: 1,
        ..v1::SlotReport::default()
    };
    let digest = v1::SlotDigest {
        cut: position(9),
        digest: vec![7; 32].into(),
        peer: "n2".to_owned(),
        records: 1,
    };
    let report = |at: &Snapshot, slots: Vec<v1::SlotReport>| v1::Report {
        adopted_epoch: at.epoch.0,
        slots,
        ..v1::Report::default()
    };
    let all = |at: &Snapshot, change: &dyn Fn(&mut v1::SlotReport)| {
        let each = gained.iter().map(|number| {
            let mut report = slot(*number);
            change(&mut report);
            report
        });
        report(at, each.collect())
    };

    // Verified before copied, copied before staged, more than was ever written, a range that it
    // does not get, another session: none of it moves the transition.
    liar.says(all(&prepared, &|it| it.digest = Some(digest.clone())))
        .await;
    liar.says(all(&prepared, &|it| it.copied = position(9)))
        .await;
    liar.says(all(&prepared, &|it| it.watermark = position(u64::MAX)))
        .await;
    liar.says(report(
        &prepared,
        vec![v1::SlotReport {
            staged: true,
            ..slot(foreign)
        }],
    ))
    .await;
    liar.says(all(&prepared, &|it| {
        (it.session, it.staged) = (session + 1, true)
    }))
    .await;
    still_waits(&cluster, 1, prepared.epoch.0).await;

    // It stages, copies and adopts in words only: no digest of its own equals the source's.
    liar.says(all(&prepared, &|it| it.staged = true)).await;
    let copying = timeline.at_step(CHANGE, Step::Copying).await;
    liar.says(all(&copying, &|it| {
        (it.staged, it.copied) = (true, position(9))
    }))
    .await;
    let catching_up = timeline.at_step(CHANGE, Step::CatchingUp).await;
    liar.says(all(&catching_up, &|it| it.digest = Some(digest.clone())))
        .await;
    liar.says(all(&catching_up, &|it| it.watermark = position(1)))
        .await;
    liar.says(all(&catching_up, &|it| it.watermark = position(0)))
        .await;
    still_waits(&cluster, 4, catching_up.epoch.0).await;

    // And it can be given up: the lists are as before (ABORT-CLEAN).
    let _ = cluster
        .annulus(&["node", "abort", "lies", &change.to_string()])
        .await
        .done();
    cluster.change_is("lies", change, "aborted").await;
    let after = timeline
        .until(SOON, "the abort", |snapshot| snapshot.transition.is_none())
        .await;
    assert_eq!(after.layout.slots, prepared.layout.slots, "ABORT-CLEAN");
    assert!(
        after
            .members
            .iter()
            .all(|member| member.node_id.as_str() != "liar")
    );
}

/// Status names the liar as what the change waits for, and no step was entered.
async fn still_waits(cluster: &Cluster, step: u64, epoch: u64) {
    until(SOON, "status to name the liar", || async {
        let show = cluster.show("lies").await;
        let transition = &show["transition"];
        assert_eq!(transition["step"], step, "{show}");
        assert_eq!(show["epoch"], epoch.to_string(), "{show}");
        let waits = transition["waiting_for"].to_string();
        if waits.contains("liar") {
            Ok(())
        } else {
            Err(waits)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c20_illegal_moves_are_refused_and_change_nothing() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small("moves"), &NODES).await;
    cluster.add_nodes("moves", &[("n4", "z1")]).await;
    let epoch = cluster.epoch("moves").await;
    let refused = async |args: &[&str], words: &[&str]| {
        cluster
            .annulus(args)
            .await
            .refused(words)
            .within(Duration::from_secs(5));
        assert_eq!(cluster.epoch("moves").await, epoch, "{args:?}");
    };
    // Registered is not a member: it cannot leave; a member cannot join; nothing runs, so nothing
    // can be settled or withdrawn; founding happens once.
    refused(&["node", "drain", "moves", "n4"], &["n4", "not a member"]).await;
    refused(
        &["node", "drain", "moves", "nobody"],
        &["nobody", "not a member"],
    )
    .await;
    refused(&["node", "join", "moves", "n1"], &["n1", "is a member"]).await;
    refused(&["node", "settle", "moves"], &["settle"]).await;
    refused(&["node", "abort", "moves", "77"], &["change 77 is unknown"]).await;
    refused(&["ring", "found", "moves", "n4"], &["founded already"]).await;
    refused(&["ring", "create", "moves"], &["exists"]).await;

    cluster.change_to_its_end("join", "moves", "n4").await;
    cluster.change_to_its_end("drain", "moves", "n1").await;
    cluster
        .annulus(&["node", "drain", "moves", "n1"])
        .await
        .refused(&["n1"]);
    cluster
        .annulus(&["node", "abort", "moves", "1"])
        .await
        .refused(&["change 1 has ended"]);
}
