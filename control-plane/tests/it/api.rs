//! Three servers on loopback: what operators, watchers and data nodes see of them.

use std::collections::BTreeMap;

use crate::support::*;
use annulus_proto::v1::{
    self, bye::Reason, link_client::LinkClient, watch_client::WatchClient, watch_event::Event,
};
use bytes::Bytes;
use tonic::{Code, Status};

const LINEARIZABLE: i32 = v1::ReadMode::Linearizable as i32;
const LOCAL: i32 = v1::ReadMode::Local as i32;

fn get(ring: &str, mode: i32) -> v1::GetRingRequest {
    v1::GetRingRequest {
        mode,
        ring: ring.to_owned(),
    }
}

async fn epochs(cluster: &Cluster, at: usize) -> Vec<v1::EpochRef> {
    let request = v1::ListEpochsRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
    };
    let answer = within("epochs", cluster.admin(at).list_epochs(request)).await;
    answer.expect("epochs are listed").into_inner().epochs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_is_created_collected_founded_and_watched_from_every_server() {
    let cluster = Cluster::start(3, |_| {}).await;
    let cluster_id = cluster.init().await;
    assert_eq!(cluster_id.len(), 16);
    assert_eq!(
        cluster.init().await,
        cluster_id,
        "a repeated init gets the same answer"
    );

    let follower = cluster.follower().await;
    assert_eq!(cluster.create(follower).await.epoch, 1);
    let mut streams = Vec::new();
    for id in 1..=3 {
        let mut stream = cluster
            .watch(id, None)
            .await
            .expect("the ring is known everywhere");
        let first = next_full(&mut stream).await;
        assert_eq!((first.0.epoch, first.0.member_count), (1, 0));
        assert_eq!(first.0.previous_checksum, Bytes::from(vec![0; 32]));
        streams.push((stream, first));
    }

    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        let agent = Agent::start(&cluster, hello(name)).await;
        assert_eq!(agent.welcomed().await.incarnation, 1);
        let joined = within("join", cluster.admin(follower).join_node(join(name))).await;
        assert_eq!(joined.expect("the join is collected").into_inner().epoch, 1);
        agents.push(agent);
    }
    let founded = within("found", cluster.admin(follower).found_ring(found(&[]))).await;
    assert_eq!(
        founded
            .expect("a follower passes founding on")
            .into_inner()
            .epoch,
        2
    );

    let mut checksums = Vec::new();
    for (stream, first) in &mut streams {
        let second = next_full(stream).await;
        assert_eq!((second.0.epoch, second.0.member_count), (2, 3));
        assert_eq!(second.0.previous_checksum, first.1, "EPOCH-CHAIN");
        assert_eq!(second.0.cluster_id, cluster_id);
        checksums.push((first.1.clone(), second.1));
    }
    checksums.dedup();
    assert_eq!(
        checksums.len(),
        1,
        "EPOCH-UNIQUE: the same bytes at every server"
    );

    for agent in &agents {
        let heard = agent.sees(2).await;
        let (_, view) = heard.views.last().expect("a view");
        assert_eq!((view.reigns.len(), view.last_changes.len()), (16, 16));
        assert!(
            view.reigns.iter().all(|reign| *reign == 2),
            "founding began every reign"
        );
        assert_eq!(
            view.snapshot.as_ref().expect("a snapshot").checksum,
            checksums[0].1
        );
        agent
            .wait("a directive about epoch 2", |heard| {
                heard
                    .directives
                    .last()
                    .is_some_and(|last| last.everyone_adopted_epoch >= 2)
            })
            .await;
        agent.wait("an ack", |heard| heard.acks > 0).await;
    }
    show_list_and_status_on_a_follower(&cluster, follower, &cluster_id, &checksums[0].1).await;
}

async fn show_list_and_status_on_a_follower(
    cluster: &Cluster,
    follower: usize,
    cluster_id: &Bytes,
    checksum: &Bytes,
) {
    let leader = cluster.leader().await;
    let mut admin = cluster.admin(follower);
    let shown = within("show", admin.get_ring(get("r", LINEARIZABLE))).await;
    let shown = shown.expect("shown").into_inner();
    assert_eq!(
        (shown.epoch, shown.founded, &shown.checksum),
        (2, true, checksum)
    );
    let freshness = shown.freshness.expect("who answered");
    assert_eq!(
        (freshness.server_id, freshness.linearizable),
        (leader as u64, true)
    );
    let nodes: Vec<_> = shown
        .nodes
        .iter()
        .map(|node| {
            (
                node.node_id.as_str(),
                node.replica_ranges,
                node.linked,
                node.adopted_epoch,
            )
        })
        .collect();
    let linked = |name| (name, 16, Some(true), Some(2));
    assert_eq!(nodes, [linked("a"), linked("b"), linked("c")]);
    assert_eq!(
        shown
            .nodes
            .iter()
            .map(|node| node.owned_ranges)
            .sum::<u32>(),
        16
    );
    assert_eq!(shown.nodes_at, [v1::EpochCount { epoch: 2, count: 3 }]);

    // Its own state, with what only the leader knows left out.
    let local = within("show", admin.get_ring(get("r", LOCAL)))
        .await
        .expect("shown")
        .into_inner();
    let freshness = local.freshness.expect("who answered");
    assert_eq!(
        (freshness.server_id, freshness.linearizable),
        (follower as u64, false)
    );
    assert_eq!((local.epoch, local.nodes[0].linked), (2, None));
    assert_eq!(local.watchers_at.iter().map(|at| at.count).sum::<u32>(), 1);

    let list = v1::ListRingsRequest { mode: LINEARIZABLE };
    let rings = within("list", admin.list_rings(list))
        .await
        .expect("listed")
        .into_inner()
        .rings;
    assert_eq!(
        rings
            .iter()
            .map(|ring| ring.ring.as_str())
            .collect::<Vec<_>>(),
        ["r"]
    );
    let status = v1::ClusterStatusRequest { mode: LINEARIZABLE };
    let status = within("status", admin.get_cluster_status(status)).await;
    let status = status.expect("status").into_inner();
    assert_eq!(
        (&status.cluster_id, status.leader_id),
        (cluster_id, leader as u64)
    );
    assert_eq!(status.servers.len(), 3);
    assert!(
        status
            .servers
            .iter()
            .all(|server| server.voter && server.matched_index.is_some())
    );

    let metrics = cluster.server(leader).metrics();
    for line in [
        "annulus_leads 1",
        "annulus_epoch{ring=\"r\"} 2",
        "annulus_nodes_at_epoch{ring=\"r\",epoch=\"2\"} 3",
        "annulus_under_replicated_ranges{ring=\"r\"} 0",
        "annulus_forks_total 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} is missing in\n{metrics}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_refused_by_name_and_changes_nothing() {
    let cluster = Cluster::start(3, |_| {}).await;
    let error = within("create", cluster.admin(2).create_ring(create("r")))
        .await
        .unwrap_err();
    assert_eq!(
        cause(&error),
        ("NotInitialised".to_owned(), Code::Unavailable)
    );
    refuse_bad_clusters(&cluster).await;
    cluster.init().await;
    let agents = cluster.founded().await;
    let before = epochs(&cluster, 1).await;
    for at in 1..=3 {
        for (what, status, name, code) in bad_calls(&mut cluster.admin(at)).await {
            assert_eq!(
                cause(&status),
                (name.to_owned(), code),
                "server {at}, {what}: {status}"
            );
        }
    }
    assert_eq!(epochs(&cluster, 2).await, before, "nothing changed");
    for bend in [
        (|hello: &mut v1::Hello| hello.node_id = "x".repeat(64)) as fn(&mut v1::Hello),
        |hello| hello.zone.clear(),
        |hello| hello.endpoint = "nowhere".to_owned(),
        |hello| hello.birth = Bytes::from_static(b"short"),
        |hello| hello.weight = u32::MAX,
        |hello| hello.ring = "r\u{0}".to_owned(),
    ] {
        let mut bad = hello("x");
        bend(&mut bad);
        let refused = Agent::start(&cluster, bad).await.refused().await;
        assert!(refused.r#final && !refused.name.is_empty(), "{refused:?}");
    }
    drop(agents);
}

async fn refuse_bad_clusters(cluster: &Cluster) {
    let mut admin = cluster.admin(1);
    let mut ask = async |bend: &dyn Fn(&mut Vec<v1::init_cluster_request::Server>)| {
        let mut servers = cluster.named();
        bend(&mut servers);
        let request = v1::InitClusterRequest { servers };
        within("init", admin.init_cluster(request))
            .await
            .expect_err("such a cluster is refused")
    };
    let named = |name: &str, code| (name.to_owned(), code);
    let error = ask(&|servers| servers.clear()).await;
    assert_eq!(cause(&error), named("BadServers", Code::InvalidArgument));
    let error = ask(&|servers| servers[1].id = 1).await;
    assert_eq!(cause(&error), named("BadField", Code::InvalidArgument));
    let error = ask(&|servers| servers[1].endpoint = "nowhere".to_owned()).await;
    assert_eq!(cause(&error), named("BadEndpoint", Code::InvalidArgument));
    let error = ask(&|servers| servers[2].endpoint = servers[1].endpoint.clone()).await;
    assert_eq!(
        cause(&error),
        named("ServerDiffers", Code::FailedPrecondition)
    );
    let error = ask(&|servers| servers[2].endpoint = "127.0.0.1:1".to_owned()).await;
    assert_eq!(cause(&error), named("ServerSilent", Code::Unavailable));
}

type BadCall = (&'static str, Status, &'static str, Code);

async fn bad_calls(admin: &mut Admin) -> Vec<BadCall> {
    use Code::{Aborted, AlreadyExists, InvalidArgument, NotFound};
    let mut calls: Vec<BadCall> = Vec::new();
    macro_rules! bad {
        ($what:literal, $call:expr, $name:literal, $code:ident) => {
            let error = within($what, $call).await.expect_err($what);
            calls.push(($what, error, $name, $code));
        };
    }
    let long = "x".repeat(64);
    bad!(
        "no name",
        admin.create_ring(create("")),
        "EmptyName",
        InvalidArgument
    );
    bad!(
        "long name",
        admin.create_ring(create(&long)),
        "NameTooLong",
        InvalidArgument
    );
    bad!(
        "control",
        admin.create_ring(create("a\u{7}")),
        "BadCharacter",
        InvalidArgument
    );
    bad!(
        "exists",
        admin.create_ring(create("r")),
        "RingExists",
        AlreadyExists
    );
    let with = |bend: fn(&mut v1::CreateRingRequest)| {
        let mut request = create("s");
        bend(&mut request);
        request
    };
    let request = with(|request| request.slot_bits = 21);
    bad!(
        "slot bits",
        admin.create_ring(request),
        "SlotBits",
        InvalidArgument
    );
    let request = with(|request| request.slot_bits = 1_000);
    bad!(
        "huge slot bits",
        admin.create_ring(request),
        "BadField",
        InvalidArgument
    );
    let request = with(|request| request.w = 9);
    bad!(
        "w above rf",
        admin.create_ring(request),
        "Replication",
        InvalidArgument
    );
    let request = with(|request| request.hash = "md5".to_owned());
    bad!(
        "hash",
        admin.create_ring(request),
        "UnknownHash",
        InvalidArgument
    );
    let request = with(|request| request.request_id = Bytes::from_static(b"short"));
    bad!(
        "request id",
        admin.create_ring(request),
        "BadField",
        InvalidArgument
    );

    bad!(
        "no node",
        admin.join_node(join("")),
        "EmptyName",
        InvalidArgument
    );
    bad!(
        "long node",
        admin.join_node(join(&long)),
        "NameTooLong",
        InvalidArgument
    );
    bad!(
        "unknown node",
        admin.join_node(join("nobody")),
        "NotRegistered",
        NotFound
    );
    bad!(
        "member",
        admin.join_node(join("a")),
        "AlreadyMember",
        AlreadyExists
    );
    let with = |bend: fn(&mut v1::JoinNodeRequest)| {
        let mut request = join("a");
        bend(&mut request);
        request
    };
    let request = with(|request| request.ring = "nowhere".to_owned());
    bad!(
        "unknown ring",
        admin.join_node(request),
        "UnknownRing",
        NotFound
    );
    let request = with(|request| request.weight = Some(u32::MAX));
    bad!(
        "weight",
        admin.join_node(request),
        "BadField",
        InvalidArgument
    );
    let request = with(|request| request.zone = "a b".to_owned());
    bad!(
        "zone",
        admin.join_node(request),
        "BadCharacter",
        InvalidArgument
    );
    let request = with(|request| request.expected_layout_epoch = Some(77));
    bad!(
        "other layout",
        admin.join_node(request),
        "StaleLayout",
        Aborted
    );

    bad!(
        "founded",
        admin.found_ring(found(&[])),
        "AlreadyFounded",
        AlreadyExists
    );
    bad!(
        "founder",
        admin.found_ring(found(&["a\n"])),
        "BadCharacter",
        InvalidArgument
    );
    bad!(
        "no mode",
        admin.get_ring(get("r", 0)),
        "BadField",
        InvalidArgument
    );
    bad!(
        "show",
        admin.get_ring(get("nowhere", LINEARIZABLE)),
        "UnknownRing",
        NotFound
    );
    let request = v1::GetSnapshotRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        epoch: 9_999,
    };
    bad!(
        "epoch",
        admin.get_snapshot(request),
        "UnknownEpoch",
        NotFound
    );
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_id_gets_the_same_answer_at_every_server() {
    let cluster = Cluster::three().await;
    let request = create("r");
    let first = within("create", cluster.admin(1).create_ring(request.clone())).await;
    let first = first.expect("created").into_inner();
    for id in 1..=3 {
        let again = within("create", cluster.admin(id).create_ring(request.clone())).await;
        assert_eq!(again.expect("the same answer").into_inner(), first);
    }
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        agents.push(Agent::start(&cluster, hello(name)).await);
    }
    for agent in &agents {
        agent.welcomed().await;
    }
    let request = found(&["a", "b", "c"]);
    let first = within("found", cluster.admin(2).found_ring(request.clone())).await;
    let first = first.expect("founded").into_inner();
    for id in 1..=3 {
        let again = within("found", cluster.admin(id).found_ring(request.clone())).await;
        assert_eq!(again.expect("the same answer").into_inner(), first);
    }
    assert_eq!(epochs(&cluster, 3).await.len(), 2, "EXACTLY-ONCE");
}

/// C36: resuming from the present epoch, older ones, 0, the next and the largest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c36_a_watch_resumes_from_where_the_reader_is() {
    let cluster = Cluster::three().await;
    let _agents = cluster.founded().await;
    let kept = epochs(&cluster, 1).await;
    let newest = kept.last().expect("epochs").clone();
    for id in 1..=3 {
        until("the server has applied it", || async {
            let local = cluster
                .admin(id)
                .get_ring(get("r", LOCAL))
                .await
                .ok()?
                .into_inner();
            (local.epoch == newest.epoch).then_some(())
        })
        .await;
        for older in &kept[..kept.len() - 1] {
            let mut stream = cluster
                .watch(id, Some(older.clone()))
                .await
                .expect("a stream");
            assert_eq!(next_full(&mut stream).await.0.epoch, newest.epoch);
        }
        let zero = v1::EpochRef {
            epoch: 0,
            ..newest.clone()
        };
        let mut stream = cluster.watch(id, Some(zero)).await.expect("a stream");
        assert_eq!(next_full(&mut stream).await.0.epoch, newest.epoch);

        let mut stream = cluster
            .watch(id, Some(newest.clone()))
            .await
            .expect("a stream");
        let Some(Event::Progress(progress)) = next(&mut stream).await else {
            panic!("the present epoch is not sent again");
        };
        assert_eq!(progress.epoch, newest.epoch);

        for ahead in [newest.epoch + 1, u64::MAX] {
            let ahead = v1::EpochRef {
                epoch: ahead,
                ..newest.clone()
            };
            let mut stream = cluster.watch(id, Some(ahead)).await.expect("a stream");
            assert_eq!(until_bye(&mut stream).await, Reason::Ahead);
        }
    }
    let error = {
        let mut client = WatchClient::new(channel(&cluster.endpoint(1)));
        let request = v1::WatchRequest {
            ring: "nowhere".to_owned(),
            ..Default::default()
        };
        within("watch", client.watch(request)).await.unwrap_err()
    };
    assert_eq!(cause(&error), ("UnknownRing".to_owned(), Code::NotFound));
    report_applied_counts_and_knows_a_fork(&cluster, &newest).await;
}

/// Events until the stream ends: never a snapshot, and a Bye at its end.
async fn until_bye(stream: &mut tonic::Streaming<v1::WatchEvent>) -> Reason {
    loop {
        match next(stream).await {
            Some(Event::Progress(_)) => {}
            Some(Event::Bye(bye)) => {
                assert_eq!(bye.try_endpoints.len(), 2, "the other servers are named");
                assert!(next(stream).await.is_none(), "a Bye is the last word");
                return bye.reason();
            }
            other => panic!("expected a Bye, got {other:?}"),
        }
    }
}

async fn report_applied_counts_and_knows_a_fork(cluster: &Cluster, newest: &v1::EpochRef) {
    let mut client = WatchClient::new(channel(&cluster.endpoint(2)));
    let watch = v1::WatchRequest {
        ring: "r".to_owned(),
        have: None,
        watcher: "reporting".to_owned(),
    };
    let mut stream = within("watch", client.watch(watch))
        .await
        .expect("a stream")
        .into_inner();
    next_full(&mut stream).await;
    let mut report = async |applied: v1::EpochRef| {
        let request = v1::ReportAppliedRequest {
            ring: "r".to_owned(),
            watcher: "reporting".to_owned(),
            applied: Some(applied),
        };
        let answer = within("report", client.report_applied(request)).await;
        answer.expect("an answer").into_inner().fork
    };
    assert!(!report(newest.clone()).await);
    let local = within("show", cluster.admin(2).get_ring(get("r", LOCAL))).await;
    let watchers: BTreeMap<u64, u32> = local
        .expect("shown")
        .into_inner()
        .watchers_at
        .into_iter()
        .map(|at| (at.epoch, at.count))
        .collect();
    assert_eq!(watchers.get(&newest.epoch), Some(&1), "{watchers:?}");
    let forked = v1::EpochRef {
        checksum: Bytes::from(vec![7; 32]),
        ..newest.clone()
    };
    assert!(report(forked).await, "FORK is seen");
    assert!(
        cluster
            .server(2)
            .metrics()
            .contains("annulus_forks_total 1")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_processes_and_emptied_directories_are_refused_and_moves_are_epochs() {
    let cluster = Cluster::three().await;
    cluster.create(1).await;
    let first = hello("a");
    let mut agents = vec![Agent::start(&cluster, first.clone()).await];
    for name in ["b", "c"] {
        agents.push(Agent::start(&cluster, hello(name)).await);
    }
    for agent in &agents {
        agent.welcomed().await;
    }
    within(
        "found",
        cluster.admin(1).found_ring(found(&["a", "b", "c"])),
    )
    .await
    .expect("founded");
    agents[0].sees(2).await;

    // The same directory in a second process, while the first speaks.
    let second = v1::Hello {
        boot: fresh_id(),
        endpoint: "second.example:7000".to_owned(),
        ..first.clone()
    };
    let refused = Agent::start(&cluster, second.clone()).await.refused().await;
    assert_eq!(
        (refused.name.as_str(), refused.r#final),
        ("SecondProcess", false)
    );
    for endpoint in [&first.endpoint, &second.endpoint] {
        assert!(
            refused.message.contains(endpoint.as_str()),
            "{}",
            refused.message
        );
    }

    // A new directory under a member's id, once the first has gone.
    let mut agents = agents.into_iter();
    drop(agents.next());
    let emptied = v1::Hello {
        birth: fresh_id(),
        boot: fresh_id(),
        ..first.clone()
    };
    let refused = until("a final refusal", || async {
        let refused = Agent::start(&cluster, emptied.clone())
            .await
            .refused()
            .await;
        refused.r#final.then_some(refused)
    })
    .await;
    assert_eq!(refused.name, "EmptiedDirectory");
    assert!(
        refused.message.contains(&first.endpoint),
        "{}",
        refused.message
    );

    // The old directory, started elsewhere: an ordinary epoch.
    let moved = v1::Hello {
        incarnation: 1,
        empty: false,
        adopted_epoch: 2,
        ..second
    };
    let moved = Agent::start(&cluster, moved).await;
    assert_eq!(moved.welcomed().await.incarnation, 1);
    moved.sees(3).await;
    let mut stream = cluster.watch(3, None).await.expect("a stream");
    until("every watcher has the move", || {
        let shown = cluster.admin(3);
        async move {
            let mut shown = shown;
            let local = shown.get_ring(get("r", LOCAL)).await.ok()?.into_inner();
            let endpoint = &local.nodes.first()?.endpoint;
            (local.epoch == 3 && endpoint == "second.example:7000").then_some(())
        }
    })
    .await;
    assert!(next_full(&mut stream).await.0.epoch >= 2);

    // Nothing may be deleted that no permit covers.
    let leader = cluster.leader().await;
    let mut link = LinkClient::new(channel(&cluster.endpoint(leader)));
    let copies = v1::SlotSet {
        session: 1,
        slots: vec![0, 1],
    };
    let request = v1::ConfirmPermitRequest {
        ring: "r".to_owned(),
        node_id: "a".to_owned(),
        incarnation: 1,
        converted_epoch: 0,
        copies: Some(copies),
    };
    let permits = within("permit", link.confirm_permit(request))
        .await
        .expect("an answer");
    assert!(permits.into_inner().slots.is_empty(), "LAST-COPY");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_is_told_where_the_leader_is_when_leadership_moves() {
    let cluster = Cluster::three().await;
    let agents = cluster.founded().await;
    let old = cluster.leader().await;
    let new = cluster.follower().await;
    let heard = agents[0].sees(2).await;
    let told = heard.leaders.len();
    let moved = cluster.server(old).node().transfer_leader(new as u64);
    within("transfer", moved)
        .await
        .expect("the leader hands over");
    until("another leader", || async {
        (cluster.leader().await != old).then_some(())
    })
    .await;
    let now = cluster.leader().await;
    agents[0]
        .wait("LeaderAt", |heard| heard.leaders.len() > told)
        .await;
    // All are linked to the new leader, which needs nothing of the old one's memory.
    let shown = until("links at the new leader", || async {
        let shown = cluster
            .admin(old)
            .get_ring(get("r", LINEARIZABLE))
            .await
            .ok()?
            .into_inner();
        let linked = shown
            .nodes
            .iter()
            .all(|node| node.linked == Some(true) && node.adopted_epoch == Some(2));
        linked.then_some(shown)
    })
    .await;
    assert_eq!(shown.freshness.expect("who answered").server_id, now as u64);
}

/// C55: calls against a cluster without quorum end in time and say who does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c55_without_a_quorum_calls_end_and_name_the_silent() {
    let mut cluster = Cluster::start(3, |config| {
        config.watch.behind_ms = std::num::NonZeroU32::new(1_500).expect("not 0");
    })
    .await;
    cluster.init().await;
    let _agents = cluster.founded().await;
    let silent = [cluster.endpoint(2), cluster.endpoint(3)];
    // One down: everything goes on.
    cluster.stop(3).await;
    until("a leader among two", || async {
        let created = cluster.admin(1).create_ring(create("with-two")).await;
        match created {
            Ok(_) => Some(()),
            Err(status) if cause(&status).0 == "RingExists" => Some(()),
            Err(_) => None,
        }
    })
    .await;
    let mut stream = until("a stream of a server that is not behind", || async {
        let mut stream = cluster.watch(1, None).await.ok()?;
        next_full(&mut stream).await;
        matches!(next(&mut stream).await, Some(Event::Progress(_))).then_some(stream)
    })
    .await;
    cluster.stop(2).await;

    let mut admin = cluster.admin(1);
    let shown = within("show", admin.get_ring(get("r", LINEARIZABLE)))
        .await
        .unwrap_err();
    let joined = within("join", admin.join_node(join("x")))
        .await
        .unwrap_err();
    let status = v1::ClusterStatusRequest { mode: LINEARIZABLE };
    let status = within("status", admin.get_cluster_status(status))
        .await
        .unwrap_err();
    for error in [&shown, &status] {
        assert_eq!(
            cause(error),
            ("NoQuorum".to_owned(), Code::Unavailable),
            "{error}"
        );
        assert!(error.message().contains("1 of 3 reachable"), "{error}");
        for endpoint in &silent {
            assert!(error.message().contains(endpoint.as_str()), "{error}");
        }
    }
    // A write that reached a leader which then lost its followers may yet be committed.
    let name = cause(&joined).0;
    assert!(
        ["NoQuorum", "UnknownOutcome"].contains(&name.as_str()),
        "{joined}"
    );

    // What is known here is still shown, with its age.
    let local = within("show", admin.get_ring(get("r", LOCAL)))
        .await
        .expect("shown")
        .into_inner();
    assert_eq!((local.epoch, local.founded), (2, true));
    assert!(!local.freshness.expect("who answered").linearizable);
    assert_eq!(until_bye(&mut stream).await, Reason::Behind);
    // A new reader gets what is known, then is sent elsewhere.
    let mut stream = cluster.watch(1, None).await.expect("a stream");
    assert_eq!(next_full(&mut stream).await.0.epoch, 2);
    assert_eq!(until_bye(&mut stream).await, Reason::Behind);
}

/// C55: a leader that takes a passed-on call and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c55_a_leader_that_never_answers_does_not_keep_the_caller() {
    let cluster = Cluster::start(3, |config| {
        config.limits.call_ms = std::num::NonZeroU32::new(700).expect("not 0");
    })
    .await;
    // Founding may take longer than calls are given here.
    until("a founded cluster", || async {
        let request = v1::InitClusterRequest {
            servers: cluster.named(),
        };
        cluster.admin(1).init_cluster(request).await.ok()
    })
    .await;
    let follower = cluster.follower().await;
    until("a ring", || async {
        let created = cluster.admin(follower).create_ring(create("r")).await;
        created.map_or_else(
            |status| (cause(&status).0 == "RingExists").then_some(()),
            |_| Some(()),
        )
    })
    .await;
    cluster
        .mute
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let mut admin = cluster.admin(follower);
    let shown = within("show", admin.get_ring(get("r", LINEARIZABLE))).await;
    let error = shown.expect_err("the leader is mute");
    assert_eq!(
        cause(&error),
        ("LeaderSilent".to_owned(), Code::Unavailable),
        "{error}"
    );
    let founded = within("found", admin.found_ring(found(&["a"]))).await;
    let error = founded.expect_err("the leader is mute");
    assert_eq!(
        cause(&error),
        ("UnknownOutcome".to_owned(), Code::DeadlineExceeded),
        "{error}"
    );
    // What needs no leader's memory goes its own way.
    let epochs = epochs(&cluster, follower).await;
    assert_eq!(epochs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_says_so_to_its_readers() {
    let mut cluster = Cluster::three().await;
    cluster.create(1).await;
    let mut stream = cluster.watch(3, None).await.expect("a stream");
    next_full(&mut stream).await;
    let ended = cluster.server(3).ended();
    let (_, reason) = tokio::join!(cluster.stop(3), until_bye(&mut stream));
    assert_eq!(reason, Reason::Shutdown);
    let ended = within("the end", ended).await;
    assert_eq!(ended, annulus_control_plane::Ended::Stopped);
}

/// The driver alone: with nodes that report what is wanted, a join and a drain walk all steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_and_a_drain_are_driven_to_their_end_across_a_change_of_leader() {
    let cluster = Cluster::start(3, |config| {
        config.limits.epoch_interval_ms = std::num::NonZeroU32::new(40).expect("not 0");
    })
    .await;
    cluster.init().await;
    let mut agents = cluster.founded().await;
    let mut stream = cluster.watch(2, None).await.expect("a stream");
    let (mut last, mut checksum) = {
        let (header, checksum) = next_full(&mut stream).await;
        (header.epoch, checksum)
    };
    // In the zone of one that leaves, or the drain would narrow the spread.
    let newcomer = v1::Hello {
        zone: "zone-a".to_owned(),
        ..hello("d")
    };
    agents.push(Agent::start(&cluster, newcomer).await);
    agents[3].welcomed().await;
    let joined = within("join", cluster.admin(3).join_node(join("d"))).await;
    let change = joined.expect("the join is accepted").into_inner().change_id;
    assert!(change > 0);

    let old = cluster.leader().await;
    let new = cluster.follower().await;
    let moved = cluster.server(old).node().transfer_leader(new as u64);
    within("transfer", moved)
        .await
        .expect("the leader hands over");
    ended(&cluster, change, v1::ChangeState::Done).await;

    let drain = v1::DrainNodeRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: "a".to_owned(),
        ..v1::DrainNodeRequest::default()
    };
    let drained = within("drain", cluster.admin(1).drain_node(drain)).await;
    let change = drained
        .expect("the drain is accepted")
        .into_inner()
        .change_id;
    ended(&cluster, change, v1::ChangeState::Done).await;

    // Copies are let go under permits, and the drained node is gone for good then.
    let shown = until("no copies are left behind", || async {
        let shown = cluster
            .admin(1)
            .get_ring(get("r", LINEARIZABLE))
            .await
            .ok()?
            .into_inner();
        let gone = shown
            .nodes
            .iter()
            .all(|node| node.node_id != "a" || !node.member);
        (shown.retained_copies == 0 && gone).then_some(shown)
    })
    .await;
    let members = shown.nodes.iter().filter(|node| node.member);
    let members: Vec<_> = members
        .map(|node| (node.node_id.as_str(), node.replica_ranges))
        .collect();
    assert_eq!(members, [("b", 16), ("c", 16), ("d", 16)]);
    assert_eq!((shown.short_ranges, shown.transition), (0, None));

    // A watcher saw epochs rise, each naming the one before it where none was skipped.
    while last < shown.epoch {
        let (header, found) = next_full(&mut stream).await;
        assert!(header.epoch > last, "WATCH-MONOTONE");
        if header.epoch == last + 1 {
            assert_eq!(header.previous_checksum, checksum, "EPOCH-CHAIN");
        }
        (last, checksum) = (header.epoch, found);
    }
    // Owners may still be evened out, so a later answer may know more; what two know is equal.
    let mut kept = BTreeMap::new();
    for id in 1..=3 {
        let listed = epochs(&cluster, id).await;
        assert!(
            listed.len() as u64 >= shown.epoch,
            "server {id} keeps every epoch so far"
        );
        for epoch in listed {
            let place = (epoch.generation, epoch.epoch);
            let first = kept.entry(place).or_insert_with(|| epoch.checksum.clone());
            assert_eq!(
                *first, epoch.checksum,
                "EPOCH-UNIQUE: {place:?} at server {id}"
            );
        }
    }
}

/// Waits for a change's end and checks how it ended.
async fn ended(cluster: &Cluster, change: u64, expected: v1::ChangeState) {
    let waited = tokio::time::timeout(DEADLINE, async {
        loop {
            let shown = cluster.admin(2).get_ring(get("r", LINEARIZABLE)).await;
            if let Ok(shown) = shown {
                let shown = shown.into_inner();
                let found = shown.changes.iter().find(|known| known.id == change);
                let state = found.map(v1::ChangeStatus::state);
                if state == Some(expected) {
                    return;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    if waited.await.is_err() {
        let shown = cluster.admin(2).get_ring(get("r", LINEARIZABLE)).await;
        panic!("change {change} is not {expected:?}: {shown:#?}");
    }
}
