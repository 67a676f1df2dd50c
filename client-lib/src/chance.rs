//! The one source of chance: jitter, the order of endpoints, request ids.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// A generator seeded by the system, or by a test that wants the same run twice.
#[derive(Debug)]
pub(crate) struct Chance(Mutex<StdRng>);

impl Chance {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(Mutex::new(
            seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64),
        ))
    }

    fn with<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uniform in 0 to `ceiling`: "full jitter" (Marc Brooker, Exponential Backoff And Jitter,
    /// 2015), which spreads a crowd that failed together over the whole interval.
    pub(crate) fn up_to(&self, ceiling: Duration) -> Duration {
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.with(|rng| rng.random_range(0..=nanos)))
    }

    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        self.with(|rng| items.shuffle(rng));
    }

    /// 16 bytes that nobody else draws.
    pub(crate) fn id(&self) -> [u8; 16] {
        self.with(|rng| rng.random())
    }
}
