//! A steady load through the client library, every answer of which is judged.
//!
//! Writers own their keys, so each knows what a read must answer. Most writes go to keys that are
//! written again and again, one in ten of these is a delete; the others go to fresh keys, which
//! nothing ever covers up. While a transition runs most writes are aimed at ranges that move.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use annulus_client::Client;
use annulus_kv::{KvClient, KvClientConfig};
use annulus_ring::Slot;
use futures::{StreamExt, stream};
use tokio::task::JoinHandle;

use crate::{
    ledger::{Ack, Key, Verdict},
    timeline::moves,
    wait::until,
};

/// How a load is shaped.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Writers, each with keys of its own.
    pub writers: usize,
    /// Keys per writer that are written again and again.
    pub keys: usize,
    /// Writes a second to aim at, over all writers.
    pub writes_per_s: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            writers: 64,
            keys: 60,
            writes_per_s: 2_000,
            value_bytes: 100,
        }
    }
}

/// One write in so many is a delete (of keys that are written again and again).
const DELETE_ONE_IN: u32 = 9;
/// One write in so many goes to a fresh key.
const FRESH_ONE_IN: u32 = 8;
/// One write in so many is followed by an exact read of one of the writer's keys.
const READ_ONE_IN: u32 = 8;
/// How often a writer looks for a key on a moving range before it takes any.
const AIM: usize = 4;
/// How long one operation may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Exact reads under way at once when everything is read at the end.
const READS_AT_ONCE: usize = 64;

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<Vec<Key>>>,
    start: Instant,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    kv: KvClient,
    plan: Plan,
    stop: AtomicBool,
    acks: Mutex<Vec<Ack>>,
    wrong: Mutex<Vec<String>>,
    reads: AtomicU64,
    deletes: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    last_trouble: Mutex<String>,
}

/// What a load came to.
#[derive(Debug)]
pub struct Outcome {
    /// Every key, with what it must answer.
    pub keys: Vec<Key>,
    /// Every acknowledgement, in the order in which they came.
    pub acks: Vec<Ack>,
    /// Deletes among them.
    pub deletes: u64,
    /// Exact reads while the load ran.
    pub reads: u64,
    /// Operations that were certainly not done.
    pub refused: u64,
    /// Writes that may or may not have been done.
    pub unknown: u64,
    /// Acknowledged writes a second.
    pub acks_per_s: f64,
    /// How many were aimed at.
    pub aimed_at: u32,
    client: Client,
    kv: KvClient,
}

impl Load {
    /// Starts the writers.
    #[must_use]
    pub fn start(client: Client, plan: Plan) -> Self {
        let config = KvClientConfig {
            deadline: PATIENCE,
            ..KvClientConfig::default()
        };
        let kv = KvClient::with_config(client.clone(), config);
        let shared = Arc::new(Shared {
            client,
            kv,
            plan,
            stop: AtomicBool::new(false),
            acks: Mutex::default(),
            wrong: Mutex::default(),
            reads: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            last_trouble: Mutex::default(),
        });
        let writers = (0..plan.writers)
            .map(|at| tokio::spawn(Writer::new(at, &shared).run()))
            .collect();
        Self {
            shared,
            writers,
            start: Instant::now(),
        }
    }

    /// How many writes were acknowledged so far.
    #[must_use]
    pub fn ack_count(&self) -> usize {
        self.shared.acks().len()
    }

    /// All acknowledgements after the first `from`.
    #[must_use]
    pub fn acks_from(&self, from: usize) -> Vec<Ack> {
        self.shared.acks().get(from..).unwrap_or_default().to_vec()
    }

    /// Waits until `count` more writes for which `wanted` holds are acknowledged.
    pub async fn acknowledges(
        &self,
        limit: Duration,
        count: usize,
        what: &str,
        wanted: impl Fn(&Ack) -> bool,
    ) {
        let mut from = self.ack_count();
        let mut found = 0;
        until(limit, format!("{count} acknowledged writes {what}"), || {
            let new = self.acks_from(from);
            from += new.len();
            found += new.iter().filter(|ack| wanted(ack)).count();
            let trouble = self
                .shared
                .last_trouble
                .lock()
                .expect("nobody panics holding it")
                .clone();
            let held = if found >= count {
                Ok(())
            } else {
                Err(format!("{found}; {trouble}"))
            };
            async move { held }
        })
        .await;
    }

    /// Wrong answers so far.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        self.shared
            .wrong
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }

    /// Ends the load when every operation under way has ended.
    ///
    /// # Panics
    /// If an answer was wrong.
    pub async fn stop(self) -> Outcome {
        self.shared.stop.store(true, Ordering::Release);
        let seconds = self.start.elapsed().as_secs_f64();
        let mut keys = Vec::new();
        for writer in self.writers {
            keys.extend(writer.await.expect("a writer does not panic"));
        }
        let shared = &self.shared;
        let wrong = shared.wrong.lock().expect("nobody panics while holding it");
        assert!(
            wrong.is_empty(),
            "{} wrong answers: {:#?}",
            wrong.len(),
            wrong.first()
        );
        let acks = shared.acks().clone();
        Outcome {
            keys,
            deletes: shared.deletes.load(Ordering::Relaxed),
            reads: shared.reads.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            unknown: shared.unknown.load(Ordering::Relaxed),
            acks_per_s: acks.len() as f64 / seconds,
            aimed_at: shared.plan.writes_per_s,
            acks,
            client: shared.client.clone(),
            kv: shared.kv.clone(),
        }
    }
}

impl Outcome {
    /// Reads every key exactly and judges each answer. Gives how many were read.
    ///
    /// # Panics
    /// If one is wrong: NO-LOST-WRITE, NO-RESURRECTION.
    pub async fn read_everything_back(&self) -> usize {
        let wrong: Vec<String> = stream::iter(&self.keys)
            .map(|key| async move {
                let what = format!("an exact read of {}", show(&key.bytes));
                // A refusal is no answer: whoever must answer may be starting.
                let answer = until(PATIENCE * 2, what, || async {
                    let found = self.kv.get(&key.bytes).await;
                    found.map_err(|error| error.to_string())
                })
                .await;
                explain(&self.client, key, answer.value.as_deref())
            })
            .buffer_unordered(READS_AT_ONCE)
            .filter_map(|wrong| async move { wrong })
            .collect()
            .await;
        assert!(
            wrong.is_empty(),
            "{} of {} keys wrong: {:#?}",
            wrong.len(),
            self.keys.len(),
            &wrong[..wrong.len().min(10)]
        );
        self.keys.len()
    }

    /// The newest acknowledgement of each key.
    #[must_use]
    pub fn newest(&self) -> Vec<Ack> {
        newest(&self.acks)
    }

    /// One line of figures.
    #[must_use]
    pub fn figures(&self) -> String {
        let deleted = self.keys.iter().filter(|key| key.is_deleted()).count();
        format!(
            "{} acknowledged writes ({:.0}/s of {}/s aimed at, {} of them deletes), {} exact reads, {} not done, \
             {} unknown, {} keys of which {deleted} deleted",
            self.acks.len(),
            self.acks_per_s,
            self.aimed_at,
            self.deletes,
            self.reads,
            self.refused,
            self.unknown,
            self.keys.len(),
        )
    }
}

/// The newest acknowledgement of each key, in the order in which they came.
#[must_use]
pub fn newest(acks: &[Ack]) -> Vec<Ack> {
    let mut newest: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (at, ack) in acks.iter().enumerate() {
        newest.insert(&ack.key, at);
    }
    let mut places: Vec<usize> = newest.into_values().collect();
    places.sort_unstable();
    places.into_iter().map(|at| acks[at].clone()).collect()
}

impl Shared {
    fn acks(&self) -> std::sync::MutexGuard<'_, Vec<Ack>> {
        self.acks.lock().expect("nobody panics while holding it")
    }
}

struct Writer {
    shared: Arc<Shared>,
    at: usize,
    keys: Vec<Key>,
    /// Fresh keys follow these.
    again: usize,
    fresh: usize,
}

impl Writer {
    fn new(at: usize, shared: &Arc<Shared>) -> Self {
        let mut writer = Self {
            shared: Arc::clone(shared),
            at,
            keys: Vec::new(),
            again: 0,
            fresh: 0,
        };
        for number in 0..shared.plan.keys {
            let key = writer.key("again", number);
            writer.keys.push(key);
        }
        writer.again = writer.keys.len();
        writer
    }

    fn key(&self, kind: &str, number: usize) -> Key {
        let bytes = format!("{kind} {} {number}", self.at).into_bytes();
        let slot = self.slot(&bytes);
        Key::new(bytes, slot)
    }

    fn slot(&self, key: &[u8]) -> Slot {
        self.shared
            .client
            .current()
            .expect("a snapshot was waited for")
            .slot(key)
    }

    async fn run(mut self) -> Vec<Key> {
        let plan = self.shared.plan;
        let pace =
            Duration::from_secs(1) * u32::try_from(plan.writers).unwrap_or(1) / plan.writes_per_s;
        let mut pace = tokio::time::interval(pace);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.shared.stop.load(Ordering::Acquire) {
            pace.tick().await;
            if fastrand::u32(..FRESH_ONE_IN) == 0 {
                let at = self.fresh_key();
                self.write(at, false).await;
            } else if let Some(at) = self.any_key() {
                self.write(at, fastrand::u32(..DELETE_ONE_IN) == 0).await;
            }
            if fastrand::u32(..READ_ONE_IN) == 0 {
                let at = fastrand::usize(..self.keys.len());
                self.read(at).await;
            }
        }
        self.keys
    }

    /// Whether a write of this slot counts: a transition runs, and the slot moves in it.
    fn aims_at(&self, slot: Slot) -> bool {
        let lookup = self
            .shared
            .client
            .current()
            .expect("a snapshot was waited for");
        let snapshot = lookup.snapshot();
        snapshot.transition.is_none() || moves(snapshot, slot)
    }

    fn fresh_key(&mut self) -> usize {
        for _ in 1..AIM {
            self.fresh += 1;
            let key = self.key("fresh", self.fresh);
            if self.aims_at(key.slot) {
                self.keys.push(key);
                return self.keys.len() - 1;
            }
        }
        self.fresh += 1;
        self.keys.push(self.key("fresh", self.fresh));
        self.keys.len() - 1
    }

    fn any_key(&self) -> Option<usize> {
        let mut any = None;
        for _ in 0..AIM {
            let at = fastrand::usize(..self.again);
            if self.keys[at].is_retired() {
                continue;
            }
            any = Some(at);
            if self.aims_at(self.keys[at].slot) {
                break;
            }
        }
        any
    }

    async fn write(&mut self, at: usize, delete: bool) {
        let shared = Arc::clone(&self.shared);
        let key = &mut self.keys[at];
        let (content, value) = key.begin(delete, shared.plan.value_bytes);
        let written = match value {
            Some(value) => shared.kv.put(&key.bytes, value).await,
            None => shared.kv.delete(&key.bytes).await,
        };
        match written {
            Ok(written) => {
                key.acknowledged(content);
                shared
                    .deletes
                    .fetch_add(u64::from(delete), Ordering::Relaxed);
                shared.acks().push(Ack {
                    key: key.bytes.clone(),
                    slot: key.slot,
                    delete,
                    version: written.version,
                    epoch: written.epoch,
                });
            }
            Err(error) => {
                if error.is_unknown() {
                    key.unknown(content);
                    shared.unknown.fetch_add(1, Ordering::Relaxed);
                } else {
                    shared.refused.fetch_add(1, Ordering::Relaxed);
                }
                *shared
                    .last_trouble
                    .lock()
                    .expect("nobody panics holding it") = error.to_string();
            }
        }
    }

    async fn read(&self, at: usize) {
        let key = &self.keys[at];
        match self.shared.kv.get(&key.bytes).await {
            Ok(answer) => {
                self.shared.reads.fetch_add(1, Ordering::Relaxed);
                if let Some(wrong) = explain(&self.shared.client, key, answer.value.as_deref()) {
                    self.shared
                        .wrong
                        .lock()
                        .expect("nobody panics holding it")
                        .push(wrong);
                }
            }
            Err(_) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What is wrong with an answer, if anything.
fn explain(client: &Client, key: &Key, answer: Option<&[u8]>) -> Option<String> {
    let verdict = key.judge(answer);
    (verdict != Verdict::Right).then(|| {
        let epoch = client.held().map_or(0, |held| held.epoch.0);
        let found = answer.map(|value| {
            format!(
                "a value that begins with {:02x?}",
                &value[..value.len().min(8)]
            )
        });
        format!(
            "{verdict:?}: {} at epoch {epoch} answered {found:?}, {key:?}",
            show(&key.bytes)
        )
    })
}

fn show(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
