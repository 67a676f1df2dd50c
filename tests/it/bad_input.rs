//! What bad input gets: a named error before anything is proposed, nothing changed, nothing lost.

use std::time::Duration;

use annulus_proto::v1::{self, admin_client::AdminClient};
use annulus_tests::{
    cluster::{Cluster, RingPlan, SOON},
    command,
    files::copy_dir,
    wait::until,
};

const NODES: [(&str, &str); 4] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_empty_too_long_or_not_printable_are_refused_by_both_ends() {
    let cluster = Cluster::start(crate::BINARY).await;
    let long = "x".repeat(64);
    for bad in [
        "",
        &long,
        "bell\u{7}",
        "two words",
        "-dash",
        "../up",
        "nul\u{0}".trim_end_matches('\0'),
        "ümlaut",
    ]
    .into_iter()
    .filter(|bad| *bad != "nul")
    {
        for args in [
            vec!["ring", "create", "--", bad],
            vec!["ring", "show", "--", bad],
            vec!["node", "join", "--", "ring", bad],
            vec!["node", "drain", "--", "ring", bad],
        ] {
            let ran = cluster.annulus(&args).await;
            assert!(matches!(ran.code, 2 | 3), "{bad:?}: {ran:#?}");
            assert!(!ran.stderr.is_empty(), "{bad:?}: {ran:#?}");
        }
        // The server does not rely on the command line.
        let at = format!("http://{}", cluster.endpoints[0]);
        let mut admin = AdminClient::connect(at).await.expect("a server listens");
        let request = v1::CreateRingRequest {
            request_id: fastrand::u128(..).to_be_bytes().to_vec().into(),
            ring: bad.to_owned(),
            ..v1::CreateRingRequest::default()
        };
        let refused = admin.create_ring(request).await.expect_err("no such name");
        assert_eq!(
            refused.code(),
            tonic::Code::InvalidArgument,
            "{bad:?}: {refused:?}"
        );
    }
    let list = cluster
        .annulus(&["ring", "list", "-o", "json"])
        .await
        .json();
    assert_eq!(list["rings"].as_array().map(Vec::len), Some(0), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_beyond_their_limits_are_refused_by_name() {
    let cluster = Cluster::start(crate::BINARY).await;
    let refused: [(&[&str], &str); 10] = [
        (&["--slot-bits", "21"], "--slot-bits"),
        (&["--slot-bits", "0"], "1..="),
        (&["--rf", "8"], "--rf"),
        (&["--rf", "0"], "1..=7"),
        (&["--w", "0"], "--w"),
        (&["--r", "0"], "--r"),
        (&["--rf", "3", "--w", "4"], "w"),
        (&["--rf", "3", "--w", "1", "--r", "1"], "--accept"),
        (&["--hash", "crc-of-mine"], "crc-of-mine"),
        (&["--soak", "10"], "soak"),
    ];
    for (options, word) in refused {
        let args = [&["ring", "create", "limits"], options].concat();
        let ran = cluster.annulus(&args).await;
        assert!(
            matches!(ran.code, 2 | 3) && ran.stderr.contains(word),
            "{ran:#?}"
        );
        // Advice only where it helps.
        let accepts = ran.stderr.contains("--accept takes");
        assert_eq!(accepts, word == "--accept", "{ran:#?}");
    }
    for args in [
        &["ring", "dump", "limits", "--epoch", "0"][..],
        &["watch", "limits", "--count", "0"],
    ] {
        let ran = cluster.annulus(args).await;
        let _ = ran.ended_with(2, &[args[3], "0"]);
    }
    let list = cluster
        .annulus(&["ring", "list", "-o", "json"])
        .await
        .json();
    assert_eq!(list["rings"].as_array().map(Vec::len), Some(0), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_rings_nodes_and_epochs_are_named() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(RingPlan::small("known"), &NODES[..3])
        .await;
    cluster
        .annulus(&["ring", "show", "nowhere"])
        .await
        .refused(&["nowhere", "ring list"]);
    cluster
        .annulus(&["node", "join", "nowhere", "n1"])
        .await
        .refused(&["nowhere"]);
    cluster
        .annulus(&["ring", "found", "nowhere", "n1"])
        .await
        .refused(&["nowhere"]);
    let unstarted = cluster.annulus(&["node", "join", "known", "n9"]).await;
    unstarted.refused(&["n9", "not registered", "start its agent"]);
    cluster
        .annulus(&["node", "show", "known", "n9"])
        .await
        .refused(&["n9"]);
    let epoch = cluster
        .annulus(&["ring", "dump", "known", "--epoch", "999"])
        .await;
    assert!(
        matches!(epoch.code, 1 | 3) && epoch.stderr.contains("999"),
        "{epoch:#?}"
    );
    let stale = ["node", "drain", "known", "n1", "--expect-layout", "1"];
    cluster.annulus(&stale).await.refused(&["layout"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_and_keys_beyond_their_limits_are_refused_and_bytes_come_back_as_they_were() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(RingPlan::small("bytes"), &NODES[..3])
        .await;
    let long = "k".repeat(1_025);
    let ran = cluster
        .annulus(&["kv", "put", "bytes", &long, "value"])
        .await;
    ran.ended_with(2, &["the key has 1025 bytes", "1024"]);
    let ran = cluster.annulus(&["kv", "put", "bytes", "", "value"]).await;
    ran.ended_with(2, &["key"]);
    let big = vec![b'v'; (1 << 20) + 1];
    let put = ["kv", "put", "bytes", "big"];
    let ran = command::run_with_input(cluster.binary(), &cluster.endpoints, &put, &big).await;
    ran.ended_with(2, &["the value has 1048577 bytes", "1048576"]);

    let value = b"not text: \xff\x00, and a newline\n";
    let put = ["kv", "put", "bytes", "0aff00", "--hex"];
    let ran = command::run_with_input(cluster.binary(), &cluster.endpoints, &put, value).await;
    let _ = ran.done();
    let got = cluster
        .annulus(&["kv", "get", "bytes", "0aff00", "--hex", "-o", "json"])
        .await
        .json();
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(got["value_hex"], hex);
    let _ = cluster
        .annulus(&["kv", "delete", "bytes", "0aff00", "--hex"])
        .await
        .done();
    let gone = cluster
        .annulus(&["kv", "get", "bytes", "0aff00", "--hex"])
        .await;
    gone.ended_with(6, &["does not exist"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_directory_under_a_present_id_is_refused_and_the_old_one_is_welcome() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(RingPlan::small("emptied"), &NODES)
        .await;
    let before = cluster.epoch("emptied").await;
    let node = cluster.nodes.get_mut("n4").expect("it was added");
    node.process.stop().await;
    let kept = node.data_dir.with_extension("kept");
    std::fs::rename(&node.data_dir, &kept).expect("a directory of the test");
    node.process.start();
    says(&cluster, "n4", &["n4", "is a member", "emptied disk"]).await;
    assert_eq!(cluster.epoch("emptied").await, before, "nothing changed");

    let node = cluster.nodes.get_mut("n4").expect("it was added");
    node.process.kill().await;
    std::fs::remove_dir_all(&node.data_dir).expect("a directory of the test");
    std::fs::rename(&kept, &node.data_dir).expect("a directory of the test");
    node.process.start();
    cluster.registered("emptied", &["n4"]).await;
    cluster.adopted("emptied").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_under_a_live_id_is_refused_and_the_first_goes_on() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(RingPlan::small("second"), &NODES)
        .await;
    // The same data elsewhere: a copied disk, or a virtual machine started twice. It is copied from
    // a node that is down, then both are started.
    let first = cluster.nodes.get_mut("n4").expect("it was added");
    first.process.stop().await;
    let plan = annulus_tests::cluster::NodePlan {
        ring: "second",
        name: "n4",
        zone: "z1",
        ..Default::default()
    };
    let copy = first.data_dir.with_extension("copy");
    copy_dir(&first.data_dir, &copy);
    first.process.start();
    cluster.registered("second", &["n4"]).await;
    cluster.adopted("second").await;

    let mut second = cluster.plan(&plan);
    second.process.name.push_str(" again");
    second
        .process
        .set_option("--data-dir", &copy.display().to_string());
    second.process.start();
    cluster.nodes.insert("n4 again".to_owned(), second);
    says(&cluster, "n4 again", &["n4", "second process"]).await;
    let show = cluster
        .annulus(&["node", "show", "second", "n4", "-o", "json"])
        .await
        .json();
    assert_eq!(show["linked"], true, "the first goes on: {show}");
    assert_eq!(show["endpoint"], cluster.node_endpoint("n4"), "{show}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_change_is_queued_behind_the_first_visible_and_carried_out() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(
            RingPlan {
                soak: "3s",
                ..RingPlan::small("queue")
            },
            &NODES[..3],
        )
        .await;
    cluster
        .add_nodes("queue", &[("n4", "z1"), ("n5", "z2")])
        .await;
    let first = cluster.change("join", "queue", "n4").await;
    cluster.change_is("queue", first, "running").await;
    let ran = cluster
        .annulus(&["node", "join", "queue", "n5", "--detach", "-o", "json"])
        .await;
    let ran = ran.within(Duration::from_secs(5));
    let answer = ran.json();
    assert!(
        answer["notes"].to_string().contains("queued behind"),
        "{answer}"
    );
    let second = annulus_tests::cluster::wide(&answer["change_id"]);
    let status = cluster.annulus(&["status"]).await.done().stdout;
    assert!(
        status.contains("queued") && status.contains("n5"),
        "{status}"
    );
    cluster.change_is("queue", second, "queued").await;
    // Not twice.
    cluster
        .annulus(&["node", "join", "queue", "n5"])
        .await
        .refused(&["n5"]);
    let _ = cluster.annulus(&["node", "settle", "queue"]).await;
    cluster.change_is("queue", first, "done").await;
    cluster.change_is("queue", second, "done").await;
}

/// Waits until a node's log has a line with all of `words`.
async fn says(cluster: &Cluster, node: &str, words: &[&str]) {
    let process = &cluster.nodes[node].process;
    until(SOON, format!("{node} to say {words:?}"), || async {
        let log = process.log().to_lowercase();
        let said = log
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)));
        if said { Ok(()) } else { Err(process.tail()) }
    })
    .await;
}
