//! One writer: one operation after another on its own keys.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Acknowledged, OnAcknowledged,
    counters::Counters,
    history::{History, Values},
};
use crate::client::{Error, KvClient, WriteOptions};

/// How much longer than its deadline a write whose outcome is unknown may take to reach its owner.
const MARGIN: Duration = Duration::from_secs(1);
/// Pause when all keys rest.
const IDLE: Duration = Duration::from_millis(20);

pub(super) struct Writer {
    pub client: KvClient,
    pub values: Values,
    pub histories: Vec<History>,
    pub counters: Arc<Counters>,
    pub on_acknowledged: Option<OnAcknowledged>,
    pub read_percent: u8,
    pub delete_percent: u8,
    /// Between two operations; none = at once.
    pub pace: Option<Duration>,
    pub random: fastrand::Rng,
}

impl Writer {
    /// Works until stopped; what is under way then is finished.
    pub async fn run(mut self, stop: CancellationToken) -> Vec<History> {
        // Writers that all began at once would begin with a burst of one operation each.
        let mut pace = self.pace.map(|pace| {
            let first = pace.mul_f64(self.random.f64());
            interval_at(Instant::now() + first, pace)
        });
        if let Some(pace) = &mut pace {
            // A writer that was held up goes on at its pace; it does not catch up in a burst.
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        while !stop.is_cancelled() && !self.histories.is_empty() {
            if let Some(pace) = &mut pace {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    _ = pace.tick() => {}
                }
            }
            match self.choose() {
                Some(at) => self.operate(at).await,
                None => sleep(IDLE).await,
            }
        }
        self.histories
    }

    /// A key that does not rest, at random; none if a few tries met only resting ones.
    fn choose(&mut self) -> Option<usize> {
        let now = Instant::now();
        for _ in 0..8 {
            let at = self.random.usize(..self.histories.len());
            let history = &mut self.histories[at];
            if history.rests_until.is_none_or(|until| until <= now) {
                history.rests_until = None;
                return Some(at);
            }
        }
        None
    }

    async fn operate(&mut self, at: usize) {
        if self.random.u8(..100) < self.read_percent {
            self.read(at).await;
        } else {
            let delete = self.random.u8(..100) < self.delete_percent;
            self.write(at, delete).await;
        }
    }

    async fn read(&mut self, at: usize) {
        let history = &mut self.histories[at];
        let begun = Instant::now();
        match self.client.get(&history.key).await {
            Ok(found) => {
                self.counters.read_took(begun.elapsed());
                self.counters.read(&history.judge(&self.values, &found));
            }
            Err(error) => {
                self.counters.refused.fetch_add(1, Relaxed);
                self.refused(at, &error).await;
            }
        }
    }

    async fn write(&mut self, at: usize, delete: bool) {
        let history = &mut self.histories[at];
        let write = (!delete).then(|| history.begin_put());
        let value: Option<Bytes> = write.map(|write| self.values.make(history.index, write));
        let begun = Instant::now();
        let written = self
            .client
            .write(&history.key, value, WriteOptions::default())
            .await;
        match written {
            Ok(written) => {
                self.counters.write_took(begun.elapsed());
                let count = if delete {
                    &self.counters.deletes
                } else {
                    &self.counters.puts
                };
                count.fetch_add(1, Relaxed);
                self.counters
                    .judged(&history.acknowledged(write, written.version));
                if let Some(tell) = &self.on_acknowledged
                    && let Ok(route) = self.client.ring().lookup(&history.key)
                {
                    let (version, epoch) = (written.version, written.epoch);
                    tell(Acknowledged {
                        slot: route.slot,
                        version,
                        epoch,
                    });
                }
            }
            Err(error) if error.is_unknown() => {
                self.counters.unknown.fetch_add(1, Relaxed);
                history.unknown(write, begun + self.client.deadline() + MARGIN);
            }
            Err(error) => {
                self.counters.refused.fetch_add(1, Relaxed);
                self.refused(at, &error).await;
            }
        }
    }

    /// Nothing was done. A short pause, so that a ring that refuses everything is not hammered.
    async fn refused(&self, at: usize, error: &Error) {
        let key = self.histories[at].key.escape_ascii();
        tracing::debug!(%key, %error, "an operation was refused");
        sleep(IDLE).await;
    }
}
