//! A load that knows what it must find: writers, readers and a judge.
//!
//! Every key belongs to one writer, so each key's history is a simple sequence. What a key may hold
//! is a list: the last acknowledged write, then writes whose outcome is unknown, in the order in
//! which they were made. A read must find one of them. What it finds strikes what came before it;
//! an acknowledged write strikes everything.
//!
//! ```text
//!   put 7 acknowledged      may hold  7
//!   put 8 unknown           may hold  7 8
//!   read finds 8            may hold    8        (7 from now on is a lost write)
//!   delete acknowledged     may hold  nothing    (8 from now on is a deleted key come back)
//! ```

mod counters;
mod history;
mod writer;

use std::{
    num::NonZeroU32,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use annulus_ring::{Epoch, Position, Slot};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

pub use self::counters::{Latency, Snapshot};
use self::{
    counters::Counters,
    history::{History, Values},
    writer::Writer,
};
use crate::client::{BatchItem, Error, KvClient, WriteOptions};

/// Violations kept in words; all are counted.
const VIOLATIONS_KEPT: usize = 20;
/// Fewest bytes of a value: it names the run, the key and the write.
pub const MIN_VALUE_BYTES: usize = 48;
/// Most keys of one load.
pub const MAX_KEYS: usize = 10_000_000;

/// What a load does.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The keys; each once.
    pub keys: Vec<Bytes>,
    /// Writers at once; each has its own keys. Default 64.
    pub writers: usize,
    /// Of all operations, how many per cent are exact reads. Default 50.
    pub read_percent: u8,
    /// Of all writes, how many per cent are deletes. Default 10.
    pub delete_percent: u8,
    /// Bytes of a value, at least [`MIN_VALUE_BYTES`]. Default 100.
    pub value_bytes: usize,
    /// Operations a second of all writers together; none = as fast as it goes.
    pub ops_per_second: Option<NonZeroU32>,
    /// Which operations on which keys: the same seed chooses alike. Default 1.
    pub seed: u64,
}

impl LoadConfig {
    /// The defaults over these keys.
    #[must_use]
    pub fn new(keys: Vec<Bytes>) -> Self {
        Self {
            keys,
            writers: 64,
            read_percent: 50,
            delete_percent: 10,
            value_bytes: 100,
            ops_per_second: None,
            seed: 1,
        }
    }

    /// `count` synthetic keys, `key-0000000` and on.
    #[must_use]
    pub fn synthetic_keys(count: usize) -> Vec<Bytes> {
        (0..count)
            .map(|index| Bytes::from(format!("key-{index:07}")))
            .collect()
    }
}

/// Why a load cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Nothing to work on.
    #[error("no keys were given")]
    NoKeys,
    /// More than [`MAX_KEYS`].
    #[error("{found} keys, at most {MAX_KEYS} are allowed")]
    TooManyKeys {
        /// Keys given.
        found: usize,
    },
    /// A key twice: two writers would judge it.
    #[error("key {key:?} is listed twice")]
    Twice {
        /// The key, with what is not printable escaped.
        key: String,
    },
    /// A key or the value's size breaks a limit of the store.
    #[error("key {key:?}: {error}")]
    Limit {
        /// The key, with what is not printable escaped.
        key: String,
        /// Which limit.
        error: crate::limits::LimitError,
    },
    /// No writer.
    #[error("0 writers; give at least 1")]
    NoWriters,
    /// More than 100 per cent.
    #[error("{setting} is {found}, at most 100 is allowed")]
    Percent {
        /// Which setting.
        setting: &'static str,
        /// As given.
        found: u8,
    },
    /// Too short to say which write it is of.
    #[error("values of {found} bytes, at least {MIN_VALUE_BYTES} are needed to tell writes apart")]
    ShortValue {
        /// As given.
        found: usize,
    },
}

/// An acknowledged write, as it is told to whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The key's slot.
    pub slot: Slot,
    /// Its place in the slot's order.
    pub version: Position,
    /// The epoch by which the node acknowledged it.
    pub epoch: Epoch,
}

type OnAcknowledged = Arc<dyn Fn(Acknowledged) + Send + Sync>;

/// A load that is not running: before, or after.
pub struct Load {
    client: KvClient,
    config: LoadConfig,
    values: Values,
    histories: Vec<Vec<History>>,
    counters: Arc<Counters>,
    on_acknowledged: Option<OnAcknowledged>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load")
            .field("counters", &self.counters.snapshot())
            .finish_non_exhaustive()
    }
}

/// How filling went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Keys written and acknowledged.
    pub keys: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// Filling that left keys unwritten, or of unknown outcome.
#[derive(Debug, thiserror::Error)]
#[error("{written} of {keys} keys written{}; {first}", unknown_part(*.unknown))]
pub struct FillError {
    /// How many keys there are.
    pub keys: usize,
    /// Written and acknowledged.
    pub written: usize,
    /// These may have been written.
    pub unknown: usize,
    /// What the first of the others met.
    pub first: Error,
    /// How long it took.
    pub elapsed: Duration,
}

fn unknown_part(unknown: usize) -> String {
    match unknown {
        0 => String::new(),
        unknown => format!(", {unknown} of unknown outcome"),
    }
}

/// How long filling or reading may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub deadline: Duration,
    /// Without any key done.
    pub patience: Duration,
}

impl From<Duration> for Limits {
    fn from(deadline: Duration) -> Self {
        Self {
            deadline,
            patience: deadline,
        }
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counts.
    pub counts: Snapshot,
    /// Keys that could not be read in the final check.
    pub unread: u64,
    /// The first violations, in words.
    pub violations: Vec<String>,
}

impl Report {
    /// No acknowledged write lost, no wrong read, every key read.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.lost == 0 && self.counts.wrong_reads == 0 && self.unread == 0
    }
}

impl Load {
    /// Checks the settings. Until they are filled or read, keys may hold anything.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(client: KvClient, config: LoadConfig) -> Result<Self, LoadError> {
        check(&config)?;
        let values = Values::new(config.value_bytes);
        let mut histories: Vec<Vec<History>> = (0..config.writers).map(|_| Vec::new()).collect();
        for (index, key) in config.keys.iter().enumerate() {
            histories[index % config.writers].push(History::new(key.clone(), index));
        }
        Ok(Self {
            client,
            config,
            values,
            histories,
            counters: Arc::default(),
            on_acknowledged: None,
        })
    }

    /// Calls `tell` at every acknowledged write of the running load, on the writer's task.
    #[must_use]
    pub fn on_acknowledged(mut self, tell: impl Fn(Acknowledged) + Send + Sync + 'static) -> Self {
        self.on_acknowledged = Some(Arc::new(tell));
        self
    }

    /// Writes every key once, in large batches.
    ///
    /// # Errors
    /// [`FillError`]: keys were left at the deadline.
    pub async fn fill(&mut self, limits: impl Into<Limits>) -> Result<Filled, FillError> {
        self.fill_counting(limits, &AtomicUsize::new(0)).await
    }

    /// [`Self::fill`], counting in `written` as it goes.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub async fn fill_counting(
        &mut self,
        limits: impl Into<Limits>,
        written: &AtomicUsize,
    ) -> Result<Filled, FillError> {
        // Several owners' messages are under way at once within one call, and several calls keep
        // every owner busy while others answer.
        const CHUNK: usize = 12_000;
        const AT_ONCE: usize = 3;
        // Once patience was spent on an owner, the rest is not held up by it as long again.
        const SPENT: Duration = Duration::from_secs(1);
        let Limits { deadline, patience } = limits.into();
        let begun = Instant::now();
        let (client, values) = (&self.client, &self.values);
        let mut all: Vec<&mut History> = self.histories.iter_mut().flatten().collect();
        let keys = all.len();
        let gave_up = AtomicBool::new(false);
        let gave_up = &gave_up;
        let chunks = all.chunks_mut(CHUNK).map(|chunk| async move {
            let mut items = Vec::with_capacity(chunk.len());
            let mut writes = Vec::with_capacity(chunk.len());
            for history in chunk.iter_mut() {
                let write = history.begin_put();
                writes.push(write);
                let value = Some(values.make(history.index, write));
                items.push(BatchItem {
                    key: history.key.clone(),
                    value,
                });
            }
            // Nobody else writes these keys now, so writing the same value twice is harmless.
            let options = WriteOptions {
                deadline: Some(deadline.saturating_sub(begun.elapsed())),
                idempotent: true,
            };
            let patience = if gave_up.load(Relaxed) {
                patience.min(SPENT)
            } else {
                patience
            };
            let tell = |count| {
                written.fetch_add(count, Relaxed);
            };
            let results = client.batch_while(&items, options, Some(patience), &tell);
            let results = results.await;
            let (mut unknown, mut first) = (0, None);
            for ((history, write), result) in chunk.iter_mut().zip(writes).zip(results) {
                match result {
                    Ok(written) => drop(history.acknowledged(Some(write), written.version)),
                    Err(error) => {
                        history.unknown(Some(write), Instant::now());
                        unknown += usize::from(error.is_unknown());
                        first.get_or_insert(error);
                    }
                }
            }
            gave_up.fetch_or(first.is_some(), Relaxed);
            (unknown, first)
        });
        let mut chunks = stream::iter(chunks).buffer_unordered(AT_ONCE);
        let (mut unknown, mut first) = (0, None);
        while let Some((of_unknown, error)) = chunks.next().await {
            unknown += of_unknown;
            first = first.or(error);
        }
        let elapsed = begun.elapsed();
        match first {
            None => Ok(Filled { keys, elapsed }),
            Some(first) => Err(FillError {
                keys,
                written: written.load(Relaxed),
                unknown,
                first,
                elapsed,
            }),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Snapshot {
        self.counters.snapshot()
    }

    /// Starts the writers on the present runtime.
    #[must_use]
    pub fn start(mut self) -> Running {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        self.counters.begin();
        let pace = self.config.ops_per_second.map(|ops| {
            Duration::from_secs(1).mul_f64(self.config.writers as f64 / f64::from(ops.get()))
        });
        for (number, histories) in std::mem::take(&mut self.histories).into_iter().enumerate() {
            let writer = Writer {
                client: self.client.clone(),
                values: self.values.clone(),
                histories,
                counters: self.counters.clone(),
                on_acknowledged: self.on_acknowledged.clone(),
                read_percent: self.config.read_percent,
                delete_percent: self.config.delete_percent,
                pace,
                random: fastrand::Rng::with_seed(
                    self.config.seed.wrapping_add((number as u64) << 32),
                ),
            };
            let stop = stop.clone();
            tasks.spawn(async move { (number, writer.run(stop).await) });
        }
        Running {
            load: self,
            stop,
            tasks,
        }
    }

    /// Reads every key and judges what is found. Tries again what is refused, until the deadline.
    pub async fn check(&mut self, limits: impl Into<Limits>) -> Report {
        self.check_counting(limits, &AtomicUsize::new(0)).await
    }

    /// [`Self::check`], counting in `read` as it goes.
    pub async fn check_counting(
        &mut self,
        limits: impl Into<Limits>,
        read: &AtomicUsize,
    ) -> Report {
        // Many at once: members confirm reigns in batches, so that a read costs less among others.
        const AT_ONCE: usize = 512;
        let Limits { deadline, patience } = limits.into();
        let begun = Instant::now();
        // In ms from the beginning: when a key was read last.
        let progress = AtomicU64::new(0);
        let progress = &progress;
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let is_over = move || {
            let now = begun.elapsed();
            let idle = ms(now).saturating_sub(progress.load(Relaxed));
            now >= deadline || idle >= ms(patience)
        };
        // The final reading is no part of what the load did in its time.
        let counts = self.counters.snapshot();
        let (client, values, counters) = (&self.client, &self.values, &self.counters);
        let all = self.histories.iter_mut().flatten();
        let unread = stream::iter(all)
            .map(|history| async move {
                loop {
                    match client.get(&history.key).await {
                        Ok(found) => {
                            counters.judged(&history.judge(values, &found));
                            progress.fetch_max(ms(begun.elapsed()), Relaxed);
                            read.fetch_add(1, Relaxed);
                            return 0;
                        }
                        Err(error) if is_over() => {
                            let key = history.key.escape_ascii().to_string();
                            tracing::warn!(%key, %error, "a key was not read in the final check");
                            return 1;
                        }
                        Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                }
            })
            .buffer_unordered(AT_ONCE)
            .fold(0, |sum, unread| async move { sum + unread })
            .await;
        let judged = self.counters.snapshot();
        Report {
            counts: Snapshot {
                lost: judged.lost,
                resurrected: judged.resurrected,
                wrong_reads: judged.wrong_reads,
                ..counts
            },
            unread,
            violations: self
                .counters
                .violations
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

/// A running load. Dropped, its writers end in the middle of what they do.
#[derive(Debug)]
pub struct Running {
    load: Load,
    stop: CancellationToken,
    tasks: JoinSet<(usize, Vec<History>)>,
}

impl Running {
    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Snapshot {
        self.load.counters.snapshot()
    }

    /// Lets the writers finish what they do; the load can be checked, or started again.
    pub async fn stop(mut self) -> Load {
        self.stop.cancel();
        self.load.histories = (0..self.load.config.writers).map(|_| Vec::new()).collect();
        while let Some(writer) = self.tasks.join_next().await {
            // A writer that panicked is a bug of this module: it must not look like a clean run.
            let (number, histories) = writer.expect("a writer does not panic");
            self.load.histories[number] = histories;
        }
        self.load.counters.end();
        self.load
    }
}

fn check(config: &LoadConfig) -> Result<(), LoadError> {
    let LoadConfig {
        keys,
        writers,
        read_percent,
        delete_percent,
        value_bytes,
        ..
    } = config;
    let found = keys.len();
    if found == 0 {
        return Err(LoadError::NoKeys);
    }
    if found > MAX_KEYS {
        return Err(LoadError::TooManyKeys { found });
    }
    if *writers == 0 {
        return Err(LoadError::NoWriters);
    }
    for (setting, found) in [
        ("read_percent", *read_percent),
        ("delete_percent", *delete_percent),
    ] {
        if found > 100 {
            return Err(LoadError::Percent { setting, found });
        }
    }
    if *value_bytes < MIN_VALUE_BYTES {
        return Err(LoadError::ShortValue {
            found: *value_bytes,
        });
    }
    let value = vec![0; *value_bytes];
    let mut seen = std::collections::HashSet::with_capacity(found);
    for key in keys {
        let shown = || key.escape_ascii().to_string();
        crate::limits::check_write(key, Some(&value)).map_err(|error| LoadError::Limit {
            key: shown(),
            error,
        })?;
        if !seen.insert(key) {
            return Err(LoadError::Twice { key: shown() });
        }
    }
    Ok(())
}
