//! How fast a node copies: a token bucket on payload bytes.

use std::{
    num::NonZeroU64,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A bucket that may be emptied ahead: whoever takes more than is in it waits until it is paid
/// back. So a record larger than a second's worth passes too, and the rate holds on average.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: Option<NonZeroU64>,
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(crate) fn new(bytes_per_second: Option<NonZeroU64>) -> Self {
        Self {
            bytes_per_second,
            free_at: Mutex::new(None),
        }
    }

    /// Waits until everything taken before is paid for, then takes `bytes`.
    pub(crate) async fn take(&self, bytes: usize) {
        if let Some(at) = self.book(bytes, Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Books `bytes` and says when they may pass; none = now.
    fn book(&self, bytes: usize, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_second?.get();
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let start = free_at.map_or(now, |at| at.max(now));
        *free_at = start.checked_add(cost).or(Some(start));
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_many_takers() {
        let throttle = Throttle::new(NonZeroU64::new(1_000));
        let now = Instant::now();
        let last = (0..11)
            .filter_map(|_| throttle.book(100, now))
            .last()
            .unwrap();
        assert_eq!(last - now, Duration::from_secs(1));
        // Idle time is not saved up.
        let later = now + Duration::from_secs(60);
        assert_eq!(throttle.book(100, later), Some(later));
    }

    #[test]
    fn without_a_rate_nobody_waits() {
        assert_eq!(Throttle::new(None).book(usize::MAX, Instant::now()), None);
    }
}
