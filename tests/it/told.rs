//! What a person is told when something is down, wrong or half done: it names who, and it is true.

use std::{process::Stdio, time::Duration};

use annulus_tests::{
    cluster::{Cluster, NodePlan, RingPlan, SOON},
    ports,
    wait::until,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

const NODES: [(&str, &str); 3] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
/// What all that `dev` does may take on a machine that is busy with other things.
const STORY: Duration = Duration::from_secs(400);
/// What a refusal may take that waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The row of a server in `cluster status -o json`.
async fn row(cluster: &Cluster, id: usize) -> Value {
    let args = ["cluster", "status", "-o", "json", "--timeout", "5s"];
    let ran = cluster.annulus(&args).await;
    let status: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    let id = id.to_string();
    servers
        .into_iter()
        .find(|server| server["id"] == *id)
        .unwrap_or_default()
}

/// Waits until the leader says of server `id` that something is wrong with it, or that nothing is.
async fn is_in_trouble(cluster: &Cluster, id: usize, wanted: bool) -> String {
    until(
        SOON,
        format!("server {id} in trouble: {wanted}"),
        || async {
            let row = row(cluster, id).await;
            match row["trouble"].as_str() {
                Some(trouble) if wanted => Ok(trouble.to_owned()),
                None if !wanted && row["id"].is_string() => Ok(String::new()),
                _ => Err(row.to_string()),
            }
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_or_stands_still_is_named_by_both_screens() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    let down = (cluster.leader().await + 1) % 3;
    // A leader of this very moment has not heard it yet.
    until(SOON, "the leader to hear all", || async {
        let row = row(&cluster, down + 1).await;
        let is_well = row["heard_ms_ago"].is_string() && row["trouble"].is_null();
        if is_well {
            Ok(())
        } else {
            Err(row.to_string())
        }
    })
    .await;
    let name = format!("server {} at {}", down + 1, cluster.endpoints[down]);

    cluster.servers[down].pause();
    let trouble = is_in_trouble(&cluster, down + 1, true).await;
    assert!(trouble.contains("does not answer"), "{trouble}");
    cluster.servers[down].resume();
    is_in_trouble(&cluster, down + 1, false).await;

    cluster.servers[down].kill().await;
    let warning = format!("WARNING: {name} does not answer");
    for (args, words) in [
        (&["status"][..], vec![&*warning]),
        (&["cluster", "status"], vec![&*warning, "DOWN"]),
    ] {
        // There may be an election on the way.
        until(SOON, format!("{args:?} to warn of {name}"), || async {
            let ran = cluster.annulus(args).await;
            let warns = words.iter().all(|word| ran.stdout.contains(word));
            if ran.code == 0 && warns {
                Ok(())
            } else {
                Err(format!("{ran:?}"))
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founding_with_a_server_that_is_not_up_names_it_and_changes_nothing() {
    let mut cluster = Cluster::new(crate::BINARY, 2, None);
    cluster.start_servers();
    let nobody = ports::free_endpoint();
    let servers = [
        format!("1={}", cluster.endpoints[0]),
        format!("2={}", cluster.endpoints[1]),
        format!("3={nobody}"),
    ];
    let args: Vec<&str> = ["cluster", "init"]
        .into_iter()
        .chain(servers.iter().map(String::as_str))
        .collect();
    let told = format!("server 3 at {nobody} does not answer; nothing was changed");
    until(SOON, told.clone(), || async {
        let ran = cluster.annulus(&args).await;
        // The two others may still be starting.
        if ran.code == 4 && ran.stderr.contains(&format!("unavailable: {told}")) {
            Ok(())
        } else {
            Err(format!("{ran:?}"))
        }
    })
    .await;
    // A cluster that nobody founded is no reason to wait, and no outage either.
    for args in [
        &["ring", "create", "early"][..],
        &["ring", "list"],
        &["watch", "early", "--count", "1"],
        &["kv", "get", "early", "key"],
    ] {
        let ran = cluster.annulus(args).await.within(AT_ONCE);
        let _ = ran.refused(&["belongs to no cluster", "annulus cluster init"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_ring_is_refused_at_once_by_every_command() {
    let cluster = Cluster::start(crate::BINARY).await;
    for args in [
        &["watch", "nowhere"][..],
        &["lookup", "nowhere", "key"],
        &["kv", "get", "nowhere", "key"],
        &["kv", "put", "nowhere", "key", "value"],
        &["kv", "delete", "nowhere", "key"],
        &["kv", "load", "nowhere", "--count", "5"],
        &["node", "list", "nowhere"],
    ] {
        let ran = cluster.annulus(args).await.within(AT_ONCE);
        let _ = ran.refused(&["ring nowhere does not exist", "annulus ring list"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_misses_one_node_says_what_was_written_and_who_was_not_reached() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small("half"), &NODES).await;
    let load = ["kv", "load", "half", "--count", "60"];
    let args = [&load[..], &["--timeout", "3s", "-o", "json"]].concat();
    let whole = cluster.annulus(&args).await.json();
    assert_eq!(whole["keys"], "60", "{whole}");

    let missing = cluster.node_endpoint("n2");
    let node = cluster.nodes.get_mut("n2").expect("it was added");
    node.process.kill().await;
    let ran = cluster.annulus(&args).await.within(Duration::from_secs(20));
    let said = format!("of 60 keys written; n2 at {missing} is not reachable");
    let ran = ran.ended_with(1, &[&said, "stays written"]);
    assert!(!ran.stderr.contains("nothing was"), "{ran:#?}");
    assert!(!ran.stderr.contains("epoch 0"), "{ran:#?}");
    let part: Value = serde_json::from_str(&ran.stdout).expect("a partial result");
    let written: u64 = part["keys"]
        .as_str()
        .expect("a number")
        .parse()
        .expect("one");
    assert!((1..60).contains(&written), "{part}");

    for name in ["n1", "n3"] {
        let node = cluster.nodes.get_mut(name).expect("it was added");
        node.process.kill().await;
    }
    let ran = cluster.annulus(&args).await.within(Duration::from_secs(20));
    let _ = ran.ended_with(4, &["is not reachable"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_does_not_exist_is_told_apart_from_a_failure() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster
        .founded_ring(RingPlan::small("absent"), &NODES)
        .await;
    let ran = cluster
        .annulus(&["kv", "get", "absent", "key", "-o", "json"])
        .await
        .ended_with(6, &["not found", "does not exist"]);
    let got: Value = serde_json::from_str(&ran.stdout).expect("JSON on absence too");
    assert_eq!(got["found"], false, "{got}");
    let _ = cluster
        .annulus(&["kv", "put", "absent", "key", "value"])
        .await
        .done();
    let got = cluster
        .annulus(&["kv", "get", "absent", "key", "-o", "json"])
        .await
        .json();
    assert_eq!(got["found"], true, "{got}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_heard_is_named_by_founding_joining_and_a_waiting_change() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.create_ring(RingPlan::small("deaf")).await;
    cluster.add_nodes("deaf", &NODES).await;
    cluster.add_nodes("deaf", &[("n4", "z1")]).await;
    let stop = async |cluster: &mut Cluster, name: &str| {
        let node = cluster.nodes.get_mut(name).expect("it was added");
        node.process.kill().await;
        until(SOON, format!("{name} to be unlinked"), || async {
            let args = ["node", "show", "deaf", name, "-o", "json"];
            let show = cluster.annulus(&args).await;
            let shown: Value = serde_json::from_str(&show.stdout).unwrap_or_default();
            match shown["linked"] == false {
                true => Ok(()),
                false => Err(shown.to_string()),
            }
        })
        .await;
    };
    stop(&mut cluster, "n3").await;
    let ran = cluster
        .annulus(&["ring", "found", "deaf", "n1", "n2", "n3"])
        .await;
    let _ = ran.refused(&["node n3 is not linked", "last heard", "start its agent"]);
    let node = cluster.nodes.get_mut("n3").expect("it was added");
    node.process.start();
    cluster.registered("deaf", &["n3"]).await;
    let _ = cluster
        .annulus(&["ring", "found", "deaf", "n1", "n2", "n3"])
        .await
        .done();
    cluster.adopted("deaf").await;

    stop(&mut cluster, "n4").await;
    let ran = cluster
        .annulus(&["node", "join", "deaf", "n4", "--detach", "-o", "json"])
        .await;
    let answer = ran.json();
    assert!(
        answer["notes"].to_string().contains("n4 is not linked"),
        "{answer}"
    );
    // The number that was asked for, not "none".
    let change = answer["change_id"].as_str().expect("a number").to_owned();
    let aborted = cluster
        .annulus(&["node", "abort", "deaf", &change, "-o", "json"])
        .await
        .json();
    assert_eq!(aborted["change_id"], *change, "{aborted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_node_is_told_once_that_it_can_be_stopped() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small("leave"), &NODES).await;
    cluster.add_node(&NodePlan {
        ring: "leave",
        name: "n4",
        zone: "z1",
        ..NodePlan::default()
    });
    cluster.registered("leave", &["n4"]).await;
    cluster.change_to_its_end("join", "leave", "n4").await;
    cluster.change_to_its_end("drain", "leave", "n4").await;
    let node = cluster.nodes.get_mut("n4").expect("it was added");
    // Started again it is told so again, once: whoever restarts it sees why it does nothing.
    for times in 1..3 {
        let said = "drained and removed; this process can be stopped";
        until(SOON, format!("n4 to say it {times} times"), || async {
            match node.process.log().matches(said).count() {
                found if found == times => Ok(()),
                found => Err(format!("{found} times: {}", node.process.tail())),
            }
        })
        .await;
        node.process.stop().await;
        node.process.start();
    }
    let log = node.process.log();
    assert!(!log.contains("refused this node"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_that_serves_ends_well_when_it_is_told_to_end() {
    let _alone = crate::heavy().await;
    let home = tempfile::tempdir().expect("a directory");
    let mut dev = Command::new(crate::BINARY)
        .args(["dev", "--short", "--serve", "--key-count", "500"])
        .env("TMPDIR", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let stderr = dev.stderr.take().expect("it is a pipe");
    let mut lines = BufReader::new(stderr).lines();
    let mut said = String::new();
    let serving = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            said.push_str(&line);
            said.push('\n');
            if line.contains("stays up until Ctrl-C") {
                return;
            }
        }
    };
    let served = tokio::time::timeout(STORY, serving).await;
    assert!(served.is_ok(), "{said}");
    let pid = dev.id().expect("it runs");
    let interrupt = std::process::Command::new("sh")
        .args(["-c", &format!("kill -INT {pid}")])
        .status();
    assert!(interrupt.is_ok_and(|status| status.success()), "{said}");
    let ended = dev.wait().await.expect("a child");
    let mut rest = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        rest.push_str(&line);
    }
    assert_eq!(ended.code(), Some(0), "{said}{rest}");
    let left: Vec<_> = std::fs::read_dir(home.path())
        .expect("it is there")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
