//! DURABLE-ACK: an acknowledged command survives the loss of power of every server.
//!
//! A workload runs on the real store while every write and sync is noted (`disk`); then the
//! power is cut at 100 points of it, and each time the store must open and hold exactly what
//! some prefix of the workload leaves that contains everything acknowledged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod disk;

use std::path::{Path, PathBuf};
use std::time::Duration;

use annulus_control_plane::raft::StartError;
use annulus_control_plane::raft::testing::{Held, Log};
use disk::Op;
use disk::image::Disk;

/// The notes are the process's: one workload at a time.
static SERIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// One operation of a workload.
#[derive(Clone, Debug)]
enum Step {
    Vote(u64),
    Append {
        term: u64,
        from: u64,
        tag: u64,
        sizes: Vec<usize>,
    },
    Truncate(u64),
    Purge(u64),
}

/// What a log holds after some steps.
fn after(held: &Held, step: &Step) -> Held {
    let mut held = held.clone();
    match step {
        Step::Vote(term) => held.vote = Some((*term, 1)),
        Step::Append {
            term,
            from,
            tag,
            sizes,
        } => {
            held.entries
                .extend((*from..).zip(sizes).map(|(index, _)| (index, *term, *tag)));
        }
        Step::Truncate(from) => held.entries.retain(|(index, ..)| index < from),
        Step::Purge(upto) => {
            held.purged = Some(*upto);
            held.entries.retain(|(index, ..)| index > upto);
        }
    }
    held
}

const EMPTY: Held = Held {
    vote: None,
    entries: Vec::new(),
    purged: None,
};

/// A workload that votes, appends in groups, truncates and purges, as raft would.
fn workload(random: &mut fastrand::Rng, steps: usize, large: bool) -> Vec<Step> {
    let mut made = vec![Step::Vote(1)];
    let mut held = after(&EMPTY, &made[0]);
    let mut term = 1;
    while made.len() < steps {
        let next = held.entries.last().map_or(0, |(index, ..)| index + 1);
        let next = next.max(held.purged.map_or(0, |purged| purged + 1));
        let kept = held.entries.len();
        let step = match random.u8(0..20) {
            0 => {
                term += 1;
                Step::Vote(term)
            }
            1 if kept > 4 => Step::Truncate(next - random.u64(1..4)),
            2 | 3 if kept > 40 => Step::Purge(held.entries[kept - 20].0),
            _ => {
                let sizes = (0..random.usize(1..6)).map(|_| match random.u8(0..10) {
                    0 if large => random.usize(20_000..300_000),
                    1 => random.usize(2_000..9_000),
                    _ => random.usize(0..400),
                });
                let sizes = sizes.collect();
                Step::Append {
                    term,
                    from: next,
                    tag: made.len() as u64,
                    sizes,
                }
            }
        };
        held = after(&held, &step);
        made.push(step);
    }
    made
}

/// When the test believes that a step was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Belief {
    /// When the store says so.
    Told,
    /// As soon as it was submitted: what a store that answers early would say.
    Submitted,
}

async fn open(root: &Path) -> Log {
    let data = root.join("data");
    tokio::task::spawn_blocking(move || Log::open(&data, 1))
        .await
        .unwrap()
        .unwrap()
}

/// Runs the steps and gives all that happened to the disk.
async fn record(root: &Path, steps: &[Step], belief: Belief) -> Vec<Op> {
    disk::watch(root);
    let mut log = open(root).await;
    let mut waiting = tokio::task::JoinSet::new();
    for (number, step) in steps.iter().enumerate() {
        // A restart halfway: what opening does to the store belongs to the workload.
        if number > 0 && number == steps.len() / 2 {
            while let Some(told) = waiting.join_next().await {
                told.unwrap();
            }
            log.close().await;
            log = open(root).await;
        }
        disk::note(Op::Begun(number));
        match step {
            Step::Vote(term) => log.vote(*term, 1).await.unwrap(),
            Step::Append {
                term,
                from,
                tag,
                sizes,
            } => {
                let pending = log.append(*term, *from, *tag, sizes).await.unwrap();
                if belief == Belief::Submitted {
                    disk::note(Op::Acknowledged(number));
                }
                // Some are waited for, some share a sync with their followers.
                let told = async move {
                    pending.acknowledged().await.unwrap();
                    disk::note(Op::Acknowledged(number));
                };
                if number % 3 == 0 {
                    told.await
                } else {
                    drop(waiting.spawn(told))
                }
                continue;
            }
            Step::Truncate(from) => log.truncate_from(*from).await.unwrap(),
            Step::Purge(upto) => {
                log.commit(1, *upto).await.unwrap();
                log.purge(*upto).await.unwrap();
                continue;
            }
        }
        disk::note(Op::Acknowledged(number));
    }
    while let Some(told) = waiting.join_next().await {
        told.unwrap();
    }
    log.close().await;
    disk::stop()
}

/// What came of cutting the power.
#[derive(Debug, Default)]
struct Findings {
    cuts: usize,
    lost: Vec<String>,
    unopened: Vec<String>,
}

/// Cuts at `cuts` points: half of them right after an acknowledgement, where a lie shows.
async fn cut(
    root: &Path,
    steps: &[Step],
    ops: &[Op],
    disk: Disk,
    random: &mut fastrand::Rng,
    cuts: usize,
) -> Findings {
    let answers: Vec<usize> = (0..ops.len())
        .filter(|at| matches!(ops[*at], Op::Acknowledged(_)))
        .collect();
    let mut points: Vec<usize> = (0..cuts)
        .map(|cut| match cut % 2 {
            0 => answers[random.usize(..answers.len())] + 1,
            _ => random.usize(..ops.len()),
        })
        .collect();
    points.sort_unstable();

    let mut findings = Findings::default();
    let mut disk = disk;
    let mut taken = 0;
    for point in points {
        ops[taken..point].iter().for_each(|op| disk.take(op));
        taken = point;
        let image = tempfile::tempdir().unwrap();
        disk.cut(random, root, image.path());
        let begun = ops[..point]
            .iter()
            .filter(|op| matches!(op, Op::Begun(_)))
            .count();
        let acknowledged = ops[..point].iter().filter_map(|op| match op {
            Op::Acknowledged(number) => Some(*number + 1),
            _ => None,
        });
        let acknowledged = acknowledged.max().unwrap_or(0);
        findings.cuts += 1;
        match hold(image.path()).await {
            Err(error) => findings.unopened.push(format!("cut at {point}: {error}")),
            Ok(held) => {
                let mut model = EMPTY;
                let mut states = vec![model.clone()];
                for step in &steps[..begun] {
                    model = after(&model, step);
                    states.push(model.clone());
                }
                if !states[acknowledged..].contains(&held) {
                    findings.lost.push(format!(
                        "cut at {point}: steps up to {acknowledged} were acknowledged, vote {:?}, \
                         last entry {:?}, expected at least {:?}",
                        held.vote,
                        held.entries.last(),
                        states[acknowledged].entries.last(),
                    ));
                }
            }
        }
    }
    findings
}

async fn hold(image: &Path) -> Result<Held, StartError> {
    let data: PathBuf = image.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let mut log = tokio::task::spawn_blocking(move || Log::open(&data, 1))
        .await
        .unwrap()?;
    let held = log.held().await.unwrap();
    log.close().await;
    Ok(held)
}

async fn torture(seed: u64, large: bool, belief: Belief, disk: Disk, cuts: usize) -> Findings {
    let _serial = SERIAL.lock().await;
    let mut random = fastrand::Rng::with_seed(seed);
    let steps = workload(&mut random, if large { 150 } else { 500 }, large);
    let root = tempfile::tempdir().unwrap();
    let ops = record(root.path(), &steps, belief).await;
    cut(root.path(), &steps, &ops, disk, &mut random, cuts).await
}

/// Those, and with `ANNULUS_POWER_CUT_ROUNDS` as many times more others.
fn seeds(of: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    let rounds = std::env::var("ANNULUS_POWER_CUT_ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|text| text.parse().ok()).unwrap_or(1);
    (0..rounds).flat_map(move |round| of.clone().map(move |seed| round * 100 + seed))
}

fn assert_nothing_lost(findings: &Findings) {
    println!("{} power cuts", findings.cuts);
    assert!(
        findings.lost.is_empty(),
        "acknowledged and lost: {:#?}",
        findings.lost
    );
    assert!(
        findings.unopened.is_empty(),
        "does not open: {:#?}",
        findings.unopened
    );
}

/// DURABLE-ACK, 100 cuts: 60 here, 40 below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_entries_survive_power_cuts() {
    for seed in seeds(1..4) {
        assert_nothing_lost(&torture(seed, false, Belief::Told, Disk::default(), 20).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_large_entries_survive_power_cuts() {
    for seed in seeds(4..6) {
        assert_nothing_lost(&torture(seed, true, Belief::Told, Disk::default(), 20).await);
    }
}

/// The layer itself: it must catch a store that answers before it synced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_answers_early_is_caught() {
    let findings = torture(6, false, Belief::Submitted, Disk::default(), 10).await;
    assert!(!findings.lost.is_empty(), "{findings:?}");
}

/// And sled as it is shipped: its log is never really synced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_log_is_not_synced_is_caught() {
    let findings = torture(7, false, Belief::Told, Disk::deaf_to("db"), 10).await;
    assert!(
        !findings.lost.is_empty() || !findings.unopened.is_empty(),
        "{findings:?}"
    );
}

/// A power cut at any point while the directory is made, or opened again, leaves one that opens
/// with what was in it. (sled refuses a half-written file that it makes at each opening.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_half_made_or_half_opened_opens() {
    let _serial = SERIAL.lock().await;
    let root = tempfile::tempdir().unwrap();
    let steps = workload(&mut fastrand::Rng::with_seed(8), 12, false);
    let full = steps.iter().fold(EMPTY, |held, step| after(&held, step));
    let mut ops = record(root.path(), &steps, Belief::Told).await;
    let made = ops
        .iter()
        .position(|op| matches!(op, Op::Begun(0)))
        .unwrap();
    let written = ops.len();
    ops.extend(record(root.path(), &[], Belief::Told).await);
    let mut random = fastrand::Rng::with_seed(9);
    let mut disk = Disk::default();
    for (at, op) in ops.iter().enumerate() {
        disk.take(op);
        let expected = if at < made { &EMPTY } else { &full };
        if (made..written).contains(&at) {
            continue;
        }
        for _ in 0..2 {
            let image = tempfile::tempdir().unwrap();
            disk.cut(&mut random, root.path(), image.path());
            let held = hold(image.path()).await;
            assert_eq!(
                held.as_ref().map_err(ToString::to_string),
                Ok(expected),
                "{at}: {op:?}"
            );
        }
    }
}

/// A failed sync ends it: it is not tried again, and nothing is acknowledged after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_sync_nothing_is_acknowledged() {
    let _serial = SERIAL.lock().await;
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let mut log = tokio::task::spawn_blocking(move || Log::open(&data, 1))
        .await
        .unwrap()
        .unwrap();
    log.vote(1, 1).await.unwrap();
    disk::watch(root.path());
    disk::fail_sync(1);
    let pending = log.append(1, 0, 1, &[10]).await.unwrap();
    pending.acknowledged().await.unwrap_err();
    let rung = tokio::time::timeout(Duration::from_secs(5), log.fatal())
        .await
        .unwrap();
    assert!(rung.contains("could not be written"), "{rung}");
    let later = match log.append(1, 1, 2, &[10]).await {
        Ok(pending) => pending.acknowledged().await,
        Err(error) => Err(error),
    };
    later.unwrap_err();
    disk::stop();
}

/// Without strace: between an append and its answer lies a sync of the store's log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_comes_after_a_real_sync() {
    let _serial = SERIAL.lock().await;
    let root = tempfile::tempdir().unwrap();
    let steps = [
        Step::Vote(1),
        Step::Append {
            term: 1,
            from: 0,
            tag: 1,
            sizes: vec![10],
        },
        Step::Vote(2),
    ];
    let ops = record(root.path(), &steps, Belief::Told).await;
    let place = |wanted: fn(&Op) -> bool| ops.iter().position(wanted).unwrap();
    for (begun, told) in [
        (
            place(|op| matches!(op, Op::Begun(0))),
            place(|op| matches!(op, Op::Acknowledged(0))),
        ),
        (
            place(|op| matches!(op, Op::Begun(1))),
            place(|op| matches!(op, Op::Acknowledged(1))),
        ),
        (
            place(|op| matches!(op, Op::Begun(2))),
            place(|op| matches!(op, Op::Acknowledged(2))),
        ),
    ] {
        let synced = ops[begun..told]
            .iter()
            .any(|op| matches!(op, Op::Sync { path } if path.ends_with("store/db")));
        assert!(synced, "{:?}", &ops[begun..told]);
    }
}
