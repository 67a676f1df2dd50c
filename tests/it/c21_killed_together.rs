//! C21: what was acknowledged is on disk. All three servers get SIGKILL at a moment of chance, again
//! and again, while changes are made. (SIGKILL spares what the system has in memory: the power
//! cuts are simulated in the control plane's own tests.)

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annulus_tests::{
    cluster::{Cluster, RingPlan, SOON, wide},
    command,
    history::servers_agree,
    wait::{by_night, until},
};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c21_no_acknowledged_change_is_lost_when_all_servers_are_killed_at_any_moment() {
    let rounds = by_night(10, 200);
    let _alone = crate::heavy().await;
    let mut cluster = Cluster::start(crate::BINARY).await;
    let nodes = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];
    cluster.founded_ring(RingPlan::small("base"), &nodes).await;
    cluster.add_nodes("base", &[("n4", "z1")]).await;
    let acked = Arc::new(Acked::default());
    let mut leaders = BTreeMap::new();
    let mut epoch = cluster.epoch("base").await;
    for round in 0..rounds {
        let operator = Operator::start(&cluster, &acked, round);
        // A moment of chance: after so many acknowledgements of this round.
        let wanted = acked.count() + fastrand::usize(1..6);
        until(SOON, "the operator to be answered", || async {
            let count = acked.count();
            if count >= wanted {
                Ok(())
            } else {
                Err(format!("{count} answers, want {wanted}"))
            }
        })
        .await;
        cluster.kill_servers().await;
        operator.stop().await;
        cluster.start_servers();
        let leader = cluster.leader().await;
        note_leaders(&cluster, &mut leaders).await;

        let show = cluster.show("base").await;
        assert!(
            wide(&show["epoch"]) >= epoch,
            "round {round}: epoch fell from {epoch}: {show}"
        );
        epoch = wide(&show["epoch"]);
        let list = cluster
            .annulus(&["ring", "list", "-o", "json"])
            .await
            .json();
        for ring in acked.rings() {
            let there = list["rings"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["ring"] == *ring));
            assert!(
                there,
                "round {round}: ring {ring} was acknowledged and is gone"
            );
        }
        for (id, kind) in acked.changes() {
            let known = show["changes"]
                .as_array()
                .and_then(|all| all.iter().find(|it| it["id"] == *id.to_string()));
            let Some(known) = known else {
                panic!("round {round}: {kind} {id} is gone: {show}")
            };
            if kind == "abort" {
                assert_eq!(known["state"], "aborted", "round {round}: {known}");
            }
        }
        println!(
            "round {round}: {} acknowledged, leader s{}, epoch {epoch}",
            acked.count(),
            leader + 1
        );
    }
    servers_agree(&cluster.endpoints, "base").await;
    cluster.nobody_panicked();
}

/// Never two leaders in one term, as far as any server says.
async fn note_leaders(cluster: &Cluster, leaders: &mut BTreeMap<u64, u64>) {
    for endpoint in &cluster.endpoints {
        let at = std::slice::from_ref(endpoint);
        let ran = cluster
            .annulus_at(at, &["cluster", "status", "--local", "-o", "json"])
            .await;
        let Ok(status) = serde_json::from_str::<Value>(&ran.stdout) else {
            continue;
        };
        if let (Some(leader), term) = (status["leader_id"].as_str(), wide(&status["term"])) {
            let leader = leader.parse().expect("a server's number");
            let known = *leaders.entry(term).or_insert(leader);
            assert_eq!(known, leader, "two leaders in term {term}");
        }
    }
}

/// What the control plane has said yes to.
#[derive(Default)]
struct Acked {
    rings: Mutex<Vec<String>>,
    /// By number: "join", or "abort" once that was acknowledged.
    changes: Mutex<BTreeMap<u64, &'static str>>,
    count: std::sync::atomic::AtomicUsize,
}

impl Acked {
    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
    fn rings(&self) -> Vec<String> {
        self.rings
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }
    fn changes(&self) -> BTreeMap<u64, &'static str> {
        self.changes
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }
}

/// Makes one change after the other until it is stopped; an answer that does not come is no
/// acknowledgement.
struct Operator {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Operator {
    fn start(cluster: &Cluster, acked: &Arc<Acked>, round: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, acked) = (Arc::clone(&stop), Arc::clone(acked));
        let (binary, endpoints) = (cluster.binary().to_owned(), cluster.endpoints.clone());
        let task = tokio::spawn(async move {
            let mut open: Option<u64> = None;
            for number in 0.. {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let run = async |args: &[&str]| {
                    let mut all = args.to_vec();
                    all.extend(["--timeout", "2s", "-o", "json"]);
                    command::run(&binary, &endpoints, &all).await
                };
                if number % 3 == 0 {
                    let ring = format!("r{round}-{number}");
                    if run(&["ring", "create", &ring, "--slot-bits", "2"])
                        .await
                        .code
                        == 0
                    {
                        acked
                            .rings
                            .lock()
                            .expect("nobody panics holding it")
                            .push(ring);
                        acked.count.fetch_add(1, Ordering::AcqRel);
                    }
                } else if let Some(change) = open.take() {
                    let ran = run(&["node", "abort", "base", &change.to_string()]).await;
                    if ran.code == 0 {
                        acked
                            .changes
                            .lock()
                            .expect("nobody panics holding it")
                            .insert(change, "abort");
                        acked.count.fetch_add(1, Ordering::AcqRel);
                    }
                } else {
                    let ran = run(&["node", "join", "base", "n4", "--detach"]).await;
                    if ran.code == 0 {
                        let change = wide(&ran.json()["change_id"]);
                        acked
                            .changes
                            .lock()
                            .expect("nobody panics holding it")
                            .insert(change, "join");
                        acked.count.fetch_add(1, Ordering::AcqRel);
                        open = Some(change);
                    }
                }
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Release);
        let ended = tokio::time::timeout(Duration::from_secs(60), self.task).await;
        ended
            .expect("a command ends")
            .expect("the operator does not panic");
    }
}
