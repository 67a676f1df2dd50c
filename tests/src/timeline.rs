//! Every epoch of a ring as clients saw it, and what each epoch meant for a range.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use annulus_client::{Client, EpochRef};
use annulus_ring::{Epoch, Slot, Snapshot, Step, TransitionId};
use tokio::task::JoinHandle;

use crate::{cluster::Cluster, history::Shelf, wait::until};

/// Several watchers of one ring, each a client of its own.
#[derive(Debug)]
pub struct Timeline {
    watchers: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    client: Client,
    seen: Arc<Mutex<Vec<EpochRef>>>,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Timeline {
    /// Watches from now on.
    pub async fn watch(cluster: &Cluster, ring: &str, watchers: usize) -> Self {
        let mut timeline = Self {
            watchers: Vec::new(),
        };
        for _ in 0..watchers {
            let client = cluster.client(ring).await;
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mut epochs = client.epochs();
            let list = Arc::clone(&seen);
            let task = tokio::spawn(async move {
                loop {
                    if let Some(held) = *epochs.borrow_and_update() {
                        list.lock()
                            .expect("nobody panics while holding it")
                            .push(held);
                    }
                    if epochs.changed().await.is_err() {
                        return;
                    }
                }
            });
            timeline.watchers.push(Watcher { client, seen, task });
        }
        timeline
    }

    /// One of the clients.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.watchers[0].client
    }

    /// The newest snapshot that the first watcher holds.
    ///
    /// # Panics
    /// If it holds none, which [`Timeline::watch`] waited for.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let lookup = self.client().current().expect("it was waited for");
        Arc::clone(lookup.snapshot())
    }

    /// Waits for a snapshot for which `wanted` holds.
    pub async fn until(
        &self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Snapshot) -> bool,
    ) -> Arc<Snapshot> {
        until(limit, what, || async {
            let snapshot = self.snapshot();
            if wanted(&snapshot) {
                Ok(snapshot)
            } else {
                Err(describe(&snapshot))
            }
        })
        .await
    }

    /// Waits until the running transition is at this step, and looks at once: a step may be short.
    ///
    /// # Panics
    /// If a later step is seen first, or none in time.
    pub async fn at_step(&self, limit: Duration, step: Step) -> Arc<Snapshot> {
        let mut epochs = self.client().epochs();
        let reached = async {
            loop {
                epochs.borrow_and_update();
                let snapshot = self.snapshot();
                match snapshot.transition.as_ref().map(|running| running.step) {
                    Some(at) if at == step => return snapshot,
                    Some(at) => assert!(at < step, "step {step} was over before it was seen"),
                    None => {}
                }
                epochs.changed().await.expect("the client is held");
            }
        };
        match tokio::time::timeout(limit, reached).await {
            Ok(snapshot) => snapshot,
            Err(_) => panic!(
                "no step {step} in {limit:?}; {}",
                describe(&self.snapshot())
            ),
        }
    }

    /// WATCH-MONOTONE at every watcher; gives how many epochs the watchers saw in sum.
    ///
    /// # Panics
    /// If an epoch fell or repeated, or two watchers saw one epoch under two checksums.
    pub fn rose(&self) -> usize {
        let mut checksums = BTreeMap::new();
        let mut total = 0;
        for watcher in &self.watchers {
            let seen = watcher.seen.lock().expect("nobody panics while holding it");
            total += seen.len();
            for pair in seen.windows(2) {
                assert!(
                    pair[0].order() < pair[1].order(),
                    "WATCH-MONOTONE: {} then {}",
                    pair[0],
                    pair[1]
                );
            }
            for at in seen.iter() {
                let known = *checksums.entry(at.order()).or_insert(at.checksum);
                assert_eq!(known, at.checksum, "EPOCH-UNIQUE at {}", at.epoch);
            }
            let status = watcher.client.status();
            assert_eq!(status.fork, None, "FORK");
        }
        total
    }
}

fn describe(snapshot: &Snapshot) -> String {
    let step = snapshot
        .transition
        .as_ref()
        .map(|it| it.step.as_str())
        .unwrap_or("no transition");
    format!("epoch {}, {step}", snapshot.epoch)
}

/// What each epoch meant, from the snapshots that a server keeps.
#[derive(Debug)]
pub struct Meaning {
    snapshots: BTreeMap<Epoch, Arc<Snapshot>>,
}

/// Where a moving range stood in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stage {
    /// In which transition.
    pub transition: TransitionId,
    /// 1 to 7; 8 = it has ended.
    pub step: u8,
}

impl Meaning {
    /// Reads all kept epochs of one server.
    pub async fn read(endpoint: &str, ring: &str) -> Self {
        let all = Shelf::at(endpoint, ring).all().await;
        Self {
            snapshots: all
                .into_iter()
                .map(|snapshot| (snapshot.epoch, snapshot))
                .collect(),
        }
    }

    /// All snapshots, oldest first.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.snapshots.values()
    }

    /// The snapshot of an epoch.
    ///
    /// # Panics
    /// If it is not kept.
    #[must_use]
    pub fn at(&self, epoch: Epoch) -> &Arc<Snapshot> {
        self.snapshots
            .get(&epoch)
            .unwrap_or_else(|| panic!("epoch {epoch} is not kept"))
    }

    /// Where `slot` stood at `epoch`: in the running transition if that moves it, else behind the
    /// last one that did.
    #[must_use]
    pub fn stage(&self, epoch: Epoch, slot: Slot) -> Option<Stage> {
        let running = |snapshot: &Snapshot| {
            let transition = snapshot.transition.as_ref()?;
            let moves = moves(snapshot, slot);
            moves.then_some(Stage {
                transition: transition.id,
                step: transition.step.number(),
            })
        };
        if let Some(stage) = running(self.at(epoch)) {
            return Some(stage);
        }
        let before = self.snapshots.range(..epoch).rev();
        let last = before
            .map(|(_, snapshot)| running(snapshot))
            .find_map(|stage| stage)?;
        (last.step == Step::Switched.number()).then_some(Stage { step: 8, ..last })
    }
}

/// Whether the running transition gives this slot to somebody new.
#[must_use]
pub fn moves(snapshot: &Snapshot, slot: Slot) -> bool {
    snapshot.sets(slot).gainers().next().is_some()
}
