//! Until when a caller wants to wait: from a duration or an instant.

use std::time::Duration;

use tokio::time::Instant;

/// The moment after which an answer is of no use to the caller.
///
/// Made from a [`Duration`] (counted from the conversion) or from an instant of the clock of
/// tokio or of std.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// The moment itself.
    #[must_use]
    pub fn at(self) -> Instant {
        self.0
    }

    /// What is left of it; zero when it is over.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The earlier of this and `limit` from now.
    #[must_use]
    pub(crate) fn within(self, limit: Duration) -> Instant {
        self.0.min(Self::from(limit).0)
    }
}

impl From<Duration> for Deadline {
    fn from(from_now: Duration) -> Self {
        // A century is as good as for ever, and cannot overflow the clock.
        const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
        Self(Instant::now() + from_now.min(FOR_EVER))
    }
}

impl From<Instant> for Deadline {
    fn from(at: Instant) -> Self {
        Self(at)
    }
}

impl From<std::time::Instant> for Deadline {
    fn from(at: std::time::Instant) -> Self {
        Self(Instant::from_std(at))
    }
}
