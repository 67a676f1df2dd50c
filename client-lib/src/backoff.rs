//! Growing pauses with full jitter between tries.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::chance::Chance;

/// Pauses drawn uniformly below a ceiling that doubles from `base` to `cap`.
#[derive(Debug)]
pub(crate) struct Backoff {
    shape: ExponentialBuilder,
    ceilings: ExponentialBackoff,
    cap: Duration,
}

impl Backoff {
    pub(crate) fn new(base: Duration, cap: Duration) -> Self {
        // backon's own jitter only ever adds to the delay, so a crowd would still come together;
        // it gives the ceilings, and `next` draws below them.
        let shape = ExponentialBuilder::new()
            .with_factor(2.0)
            .with_min_delay(base)
            .with_max_delay(cap)
            .without_max_times();
        Self {
            shape,
            ceilings: shape.build(),
            cap,
        }
    }

    /// Back to the base.
    pub(crate) fn reset(&mut self) {
        self.ceilings = self.shape.build();
    }

    pub(crate) fn next(&mut self, chance: &Chance) -> Duration {
        chance.up_to(self.ceilings.next().unwrap_or(self.cap).min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_never_beyond() {
        let (base, cap) = (Duration::from_millis(100), Duration::from_secs(5));
        let chance = Chance::new(Some(7));
        let mut backoff = Backoff::new(base, cap);
        let pauses: Vec<_> = (0..200).map(|_| backoff.next(&chance)).collect();
        assert!(pauses[0] <= base && pauses[1] <= base * 2);
        assert!(pauses.iter().all(|pause| *pause <= cap));
        assert!(pauses.iter().any(|pause| *pause > cap / 2));
        backoff.reset();
        assert!(backoff.next(&chance) <= base);
    }

    #[test]
    fn a_crowd_that_fails_together_does_not_return_together() {
        let draw = |seed| {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
            let chance = Chance::new(Some(seed));
            (0..5).map(|_| backoff.next(&chance)).last()
        };
        // The fifth pause has a ceiling of 1.6 s; 100 clients spread over all of it.
        let mut fifth: Vec<_> = (0..100).filter_map(draw).collect();
        fifth.sort();
        assert!(fifth[10] < Duration::from_millis(400), "{:?}", fifth[10]);
        assert!(fifth[90] > Duration::from_millis(1_200), "{:?}", fifth[90]);
    }
}
