//! The server's monotonic clock: budgets, silence and ticks are counted on it, never on a wall's.

use std::time::Duration;

use tokio::time::Instant;

/// Counts ms since the server was started. On tokio's timer, so that a simulation drives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts at 0.
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Since the start, in ms.
    pub(crate) fn now_ms(&self) -> u64 {
        whole_ms(self.elapsed())
    }
}

/// A duration in whole ms.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
