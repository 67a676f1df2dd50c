//! What a load counts, readable while it runs.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::{VIOLATIONS_KEPT, history::Verdict};

/// Counts of a load, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Exact reads answered.
    pub reads: u64,
    /// Puts acknowledged.
    pub puts: u64,
    /// Deletes acknowledged.
    pub deletes: u64,
    /// Writes whose outcome is unknown.
    pub unknown: u64,
    /// Operations refused until their deadline; nothing was done.
    pub refused: u64,
    /// Acknowledged writes that a later exact read missed; deleted keys that came back count.
    pub lost: u64,
    /// Of these, deleted keys that came back.
    pub resurrected: u64,
    /// Reads that found what nobody wrote there, or what an observed write had replaced, and
    /// writes whose version is not above the one before.
    pub wrong_reads: u64,
    /// How long the load has run.
    pub elapsed: Duration,
    /// Of answered reads.
    pub read_latency: Latency,
    /// Of acknowledged writes.
    pub write_latency: Latency,
}

impl Snapshot {
    /// Puts and deletes acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.puts + self.deletes
    }

    /// Reads and acknowledged writes a second, over the whole run.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        per_second(self.reads + self.acknowledged(), self.elapsed)
    }

    /// Acknowledged writes a second, over the whole run.
    #[must_use]
    pub fn writes_per_second(&self) -> f64 {
        per_second(self.acknowledged(), self.elapsed)
    }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    // A count of a run fits a float's 53 bits.
    if elapsed.is_zero() {
        0.0
    } else {
        count as f64 / elapsed.as_secs_f64()
    }
}

/// How long operations took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half of them.
    pub p50_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// All of them.
    pub max_us: u64,
}

#[derive(Debug)]
pub(super) struct Counters {
    pub puts: AtomicU64,
    pub deletes: AtomicU64,
    pub unknown: AtomicU64,
    pub refused: AtomicU64,
    reads: AtomicU64,
    lost: AtomicU64,
    resurrected: AtomicU64,
    wrong_reads: AtomicU64,
    time: Mutex<Time>,
    read_latency: Mutex<Histogram<u64>>,
    write_latency: Mutex<Histogram<u64>>,
    pub violations: Mutex<Vec<String>>,
}

/// The time of former runs, and since when the present one runs.
#[derive(Debug, Default)]
struct Time {
    before: Duration,
    since: Option<Instant>,
}

impl Default for Counters {
    fn default() -> Self {
        // 1 us to 10 min, two digits: the bounds make sense, so this cannot fail.
        let histogram = || {
            let made = Histogram::new_with_bounds(1, 600_000_000, 2).expect("bounds make sense");
            Mutex::new(made)
        };
        Self {
            puts: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            resurrected: AtomicU64::new(0),
            wrong_reads: AtomicU64::new(0),
            time: Mutex::default(),
            read_latency: histogram(),
            write_latency: histogram(),
            violations: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counters {
    pub fn begin(&self) {
        lock(&self.time).since = Some(Instant::now());
    }

    pub fn end(&self) {
        let mut time = lock(&self.time);
        if let Some(since) = time.since.take() {
            time.before += since.elapsed();
        }
    }

    /// A read was answered.
    pub fn read(&self, verdict: &Verdict) {
        self.reads.fetch_add(1, Relaxed);
        self.judged(verdict);
    }

    /// A judgement, of a read or of a write's version.
    pub fn judged(&self, verdict: &Verdict) {
        let text = match verdict {
            Verdict::Right => return,
            Verdict::Lost(text) => {
                self.lost.fetch_add(1, Relaxed);
                text
            }
            Verdict::Resurrected(text) => {
                self.lost.fetch_add(1, Relaxed);
                self.resurrected.fetch_add(1, Relaxed);
                text
            }
            Verdict::Wrong(text) => {
                self.wrong_reads.fetch_add(1, Relaxed);
                text
            }
        };
        tracing::error!(violation = %text, "the load found a violation");
        let mut violations = lock(&self.violations);
        if violations.len() < VIOLATIONS_KEPT {
            violations.push(text.clone());
        }
    }

    pub fn read_took(&self, took: Duration) {
        record(&self.read_latency, took);
    }

    pub fn write_took(&self, took: Duration) {
        record(&self.write_latency, took);
    }

    pub fn snapshot(&self) -> Snapshot {
        let elapsed = {
            let time = lock(&self.time);
            time.before + time.since.map_or(Duration::ZERO, |since| since.elapsed())
        };
        let latency = |histogram: &Mutex<Histogram<u64>>| {
            let histogram = lock(histogram);
            Latency {
                p50_us: histogram.value_at_quantile(0.5),
                p99_us: histogram.value_at_quantile(0.99),
                max_us: histogram.max(),
            }
        };
        Snapshot {
            reads: self.reads.load(Relaxed),
            puts: self.puts.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            unknown: self.unknown.load(Relaxed),
            refused: self.refused.load(Relaxed),
            lost: self.lost.load(Relaxed),
            resurrected: self.resurrected.load(Relaxed),
            wrong_reads: self.wrong_reads.load(Relaxed),
            elapsed,
            read_latency: latency(&self.read_latency),
            write_latency: latency(&self.write_latency),
        }
    }
}

fn record(histogram: &Mutex<Histogram<u64>>, took: Duration) {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    lock(histogram).saturating_record(us);
}
