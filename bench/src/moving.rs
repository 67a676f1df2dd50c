//! What clients feel: the pause in writes at a hand-over, and requests that needed a second try
//! during a join. Three servers and five nodes, as processes on loopback; this program is all of
//! them.
//!
//! The pause of one hand-over is the time that the one write took which spans it: begun before
//! the old owner sealed the range or while it was sealed, acknowledged by the new owner. One writer a
//! range, a write every few ms. Beside it stands what a write takes otherwise, in the same run.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use annulus_kv::KvClient;
use annulus_ring::{Epoch, Slot};
use annulus_tests::{
    cluster::{CHANGE, Cluster, NodePlan, RingPlan},
    timeline::Timeline,
};

use crate::report::{Goal, Report};

const RING: &str = "bench";
const NODES: [(&str, &str); 4] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3"), ("n4", "z1")];
/// Ranges of the ring; each has a writer. With [`PACE`] that asks for 2,000 writes a second, which two
/// cores that are everything at once bear; at twice as many, it is the queue for them that is measured.
const SLOT_BITS: u8 = 4;
const PACE: Duration = Duration::from_millis(8);

/// The name under which this program is a server, a node or a command of the cluster it measures.
pub const ANNULUS: &str = "annulus";

/// Runs this program as `annulus`; its exit code.
pub fn as_annulus() -> i32 {
    let code = annulus_cli::run();
    i32::from(code != ExitCode::SUCCESS)
}

pub fn measure(report: &mut Report, quick: bool) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let names = tempfile::tempdir().expect("a directory");
        let binary = names.path().join(ANNULUS);
        let this = std::env::current_exe().expect("this program");
        std::os::unix::fs::symlink(this, &binary).expect("another name for it");
        let mut cluster = Cluster::start(binary.to_str().expect("a path of text")).await;
        let plan = RingPlan {
            slot_bits: SLOT_BITS,
            ..RingPlan::small(RING)
        };
        cluster.founded_ring(plan, &NODES).await;
        let timeline = Timeline::watch(&cluster, RING, 1).await;
        let client = KvClient::new(cluster.client(RING).await);
        hand_overs(report, &cluster, &client, if quick { 20 } else { 100 }).await;
        join(report, &mut cluster, &timeline).await;
        cluster.kill_servers().await;
    });
}

/// One write of one range.
#[derive(Clone, Copy)]
struct Write {
    took: Duration,
    reign: Epoch,
}

/// A writer for every range; what each wrote, in order.
struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<Vec<Write>>>,
    hand_overs: Arc<Mutex<usize>>,
}

impl Writers {
    fn start(client: &KvClient) -> Self {
        let (stop, hand_overs) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let tasks = keys(client)
            .into_values()
            .map(|key| {
                tokio::spawn(write(
                    client.clone(),
                    key,
                    stop.clone(),
                    Arc::clone(&hand_overs),
                ))
            })
            .collect();
        Self {
            stop,
            tasks,
            hand_overs,
        }
    }

    fn hand_overs(&self) -> usize {
        *self.hand_overs.lock().expect("nobody panics holding it")
    }

    async fn stop(self) -> Vec<Vec<Write>> {
        self.stop.store(true, Ordering::Release);
        let mut all = Vec::new();
        for task in self.tasks {
            all.push(task.await.expect("a writer does not panic"));
        }
        all
    }
}

async fn write(
    client: KvClient,
    key: Vec<u8>,
    stop: Arc<AtomicBool>,
    hand_overs: Arc<Mutex<usize>>,
) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !stop.load(Ordering::Acquire) {
        pace.tick().await;
        let begun = Instant::now();
        let written = client.put(&key, &b"v"[..]).await.expect("a write");
        let reign = written.version.reign;
        if writes.last().is_some_and(|last| last.reign != reign) {
            *hand_overs.lock().expect("nobody panics holding it") += 1;
        }
        let took = begun.elapsed();
        writes.push(Write { took, reign });
    }
    writes
}

/// A key of each range.
fn keys(client: &KvClient) -> BTreeMap<Slot, Vec<u8>> {
    let lookup = client.ring().current();
    let lookup = lookup.as_ref().expect("the client has a ring");
    let mut keys = BTreeMap::new();
    for n in 0.. {
        let key = format!("key {n}").into_bytes();
        keys.entry(lookup.slot(&key)).or_insert(key);
        if keys.len() == 1 << SLOT_BITS {
            break;
        }
    }
    keys
}

async fn hand_overs(report: &mut Report, cluster: &Cluster, client: &KvClient, wanted: usize) {
    let writers = Writers::start(client);
    let mut at = 0;
    // Maintenance takes everything that a node owns from it; its end brings some of it back.
    while writers.hand_overs() < wanted {
        let (node, _) = NODES[at % NODES.len()];
        for how in [&["--for", "10m"][..], &["--end"]] {
            let args = [&["node", "maintain", RING, node][..], how].concat();
            let _ = cluster.annulus(&args).await.done();
            settled(cluster).await;
        }
        at += 1;
    }
    let (mut spans, mut others) = (Vec::new(), Vec::new());
    for writes in writers.stop().await {
        for pair in writes.windows(2) {
            let takes = if pair[0].reign == pair[1].reign {
                &mut others
            } else {
                &mut spans
            };
            takes.push(pair[1].took.as_secs_f64() * 1e3);
        }
    }
    let count = spans.len();
    let note = format!("{count} hand-overs under one write per range and {PACE:?}");
    let usual = median(&mut others);
    row(
        report,
        "pause median",
        median(&mut spans),
        "ms",
        Goal::AtMost(20.0),
        &note,
    );
    row(
        report,
        "pause worst",
        spans[count - 1],
        "ms",
        Goal::None,
        &note,
    );
    let note = format!("{} writes that span none", others.len());
    row(
        report,
        "other writes median",
        usual,
        "ms",
        Goal::None,
        &note,
    );
}

/// Until no wave runs and none is due: owners stay as they are for a second.
async fn settled(cluster: &Cluster) {
    let mut last = (0, Instant::now());
    while last.1.elapsed() < Duration::from_secs(1) {
        let epoch = cluster.epoch(RING).await;
        if epoch != last.0 {
            last = (epoch, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn join(report: &mut Report, cluster: &mut Cluster, timeline: &Timeline) {
    cluster.add_node(&NodePlan {
        ring: RING,
        name: "n5",
        zone: "z2",
        ..NodePlan::default()
    });
    cluster.registered(RING, &["n5"]).await;
    let client = KvClient::new(cluster.client(RING).await);
    let writers = Writers::start(&client);
    cluster.change_to_its_end("join", RING, "n5").await;
    timeline
        .until(CHANGE, "the end of the join", |snapshot| {
            snapshot.transition.is_none()
        })
        .await;
    let _ = writers.stop().await;
    let stats = client.stats();
    let share = stats.retried as f64 / stats.requests.max(1) as f64 * 100.0;
    let note = format!("{} of {} writes", stats.retried, stats.requests);
    row(
        report,
        "second tries in a join",
        share,
        "%",
        Goal::AtMost(0.1),
        &note,
    );
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(report: &mut Report, name: &str, measured: f64, unit: &'static str, goal: Goal, note: &str) {
    report.row(
        format!("moving: {name}"),
        measured,
        unit,
        goal,
        note.to_owned(),
    );
}
