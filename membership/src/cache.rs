//! Cache rings: the same steps with other evidence.
//!
//! | step | a durable ring waits for | a cache ring waits for |
//! |---|---|---|
//! | 1 prepared | owners that leave to hand over; staging | staging |
//! | 3 copying | every copy | the end of the warm-up: every copy, enough hits, or its time |
//! | 4 catching up | equal digests | nothing |
//! | 6 joint | J merged | the acks alone: invalidations reach O and N by then |
//! | 7 switched | the old owner where it stays | the first of N, whoever it is: a new reign, no seal |
//! | deleting | a permit on evidence | a permit after grace, without evidence |
//!
//! Who must ack an epoch is the same: a client that still obeys the old lists and one that obeys
//! the new ones must not both miss an invalidation.

use annulus_ring::{NodeId, RingKind, Step};
use serde::{Deserialize, Serialize};

use crate::{
    RingConfig, RingState, TransitionState,
    evidence::{self, Barrier, Proof},
    rejection::Rejection,
};

/// How long gainers of a cache ring are filled before they are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarmUp {
    /// Not at all: gainers begin cold, and the store behind the cache feels their misses.
    #[default]
    None,
    /// Entries are copied for so long at most, in ms of ring time.
    Time {
        /// At most.
        time_ms: u64,
    },
    /// Until each gainer reports this share of hits, or for so long at most.
    HitRatio {
        /// Hits of 1,000 lookups, 1 to 1,000.
        hit_ratio_permille: u16,
        /// At most, in ms of ring time.
        limit_ms: u64,
    },
}

impl WarmUp {
    /// For `skip_serializing_if`.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Longest time, in ms of ring time.
    #[must_use]
    pub fn limit_ms(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Time { time_ms } => time_ms,
            Self::HitRatio { limit_ms, .. } => limit_ms,
        }
    }

    /// The share of hits that ends it early, where one does.
    #[must_use]
    pub fn hit_ratio_permille(self) -> Option<u16> {
        match self {
            Self::None | Self::Time { .. } => None,
            Self::HitRatio {
                hit_ratio_permille, ..
            } => Some(hit_ratio_permille),
        }
    }
}

impl RingConfig {
    /// Whether the ring is a cache.
    #[must_use]
    pub fn is_cache(&self) -> bool {
        match self.kind {
            RingKind::Durable => false,
            RingKind::Cache => true,
        }
    }
}

/// That the settings for caches make sense, and are those of a cache.
pub(crate) fn check(config: &RingConfig) -> Result<(), Rejection> {
    if !config.is_cache() {
        let setting = match (config.warm_up.is_none(), config.serve_when_isolated) {
            (false, _) => "a warm-up",
            (true, false) => "not serving when isolated",
            (true, true) => return Ok(()),
        };
        return Err(Rejection::NotACache {
            setting: setting.to_owned(),
        });
    }
    match config.warm_up.hit_ratio_permille() {
        Some(found) if !(1..=1_000).contains(&found) => Err(Rejection::HitRatio { found }),
        Some(_) | None => Ok(()),
    }
}

/// Ring time until copies are no longer waited for.
pub(crate) fn warm_up_left_ms(ring: &RingState, transition: &TransitionState, now_ms: u64) -> u64 {
    if !ring.config.is_cache() || transition.step != Step::Copying {
        return 0;
    }
    (transition.step_since_ms + ring.config.warm_up.limit_ms()).saturating_sub(now_ms)
}

/// Whom the present step waits for, by the ring's kind. `now_ms` is ring time; `hits` tells a
/// gainer's hits of 1,000 lookups, where it reported them.
pub(crate) fn barrier(
    ring: &RingState,
    transition: &TransitionState,
    now_ms: u64,
    hits: impl Fn(&NodeId) -> Option<u16>,
) -> Barrier {
    let mut barrier = evidence::barrier(ring, transition);
    if !ring.config.is_cache() {
        return barrier;
    }
    let warm = || {
        let wanted = ring.config.warm_up.hit_ratio_permille();
        let enough = |node| wanted.is_some_and(|wanted| hits(node) >= Some(wanted));
        warm_up_left_ms(ring, transition, now_ms) == 0 || barrier.nodes.keys().all(enough)
    };
    let asks_pairs = match transition.step {
        Step::Prepared => true,
        Step::Copying => !warm(),
        // A cache has neither versions to compare nor positions to merge up to.
        Step::CatchingUp | Step::Joint => false,
        Step::Writing | Step::Verified | Step::Switched | Step::FlippingBack => true,
    };
    if !asks_pairs {
        barrier.proof = Proof::Nothing;
        barrier.pairs.clear();
    }
    barrier
}
