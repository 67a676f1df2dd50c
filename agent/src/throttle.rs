//! How fast ranges move through a node: token buckets on payload bytes, which ease off while the
//! node's own requests suffer.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use annulus_ring::Zone;
use tokio::time::Instant;
use tracing::info;

use crate::{config::CopyLimits, shared::Shared, strain::Strain};

/// Easing off ends here, or a change would never end beside a node that is always slow.
const SLOWEST: u64 = 1 << 20;
/// How often it is looked whether requests suffer.
const LOOK: Duration = Duration::from_secs(1);

/// A bucket that may be emptied ahead: whoever takes more than is in it waits until it is paid
/// back. So a record larger than a second's worth passes too, and the rate holds on average.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    limit: Option<NonZeroU64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free_at: Option<Instant>,
    eased: Option<Eased>,
    /// Since the last look.
    taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Eased {
    /// Bytes a second, for now.
    rate: u64,
    /// What went before: there easing is over.
    before: u64,
}

impl Throttle {
    pub(crate) fn new(limit: Option<NonZeroU64>) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything taken before is paid for, then takes `bytes`.
    pub(crate) async fn take(&self, bytes: usize) {
        if let Some(at) = self.book(bytes, Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Books `bytes` and says when they may pass; none = now.
    fn book(&self, bytes: usize, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        state.taken = state.taken.saturating_add(bytes as u64);
        let limit = self.limit.map(NonZeroU64::get);
        let eased = state.eased.map(|eased| eased.rate);
        let rate = limit.into_iter().chain(eased).min()?;
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let start = state.free_at.map_or(now, |at| at.max(now));
        state.free_at = start.checked_add(cost).or(Some(start));
        Some(start)
    }

    /// Whether bytes passed since the last look.
    fn moves(&self) -> bool {
        self.state().taken > 0
    }

    /// Called at every look: half as fast while requests suffer and bytes pass, a quarter faster
    /// again while they do not. The rate to go at, where easing begins or ends (none).
    fn ease(&self, strained: bool) -> Option<Option<u64>> {
        let mut state = self.state();
        let taken = std::mem::take(&mut state.taken);
        let was = state.eased;
        let half = |rate: u64| (rate / 2).max(SLOWEST);
        state.eased = match (was, strained) {
            (None, true) if taken > SLOWEST => Some(Eased {
                rate: half(taken),
                before: taken,
            }),
            (Some(eased), true) if taken > 0 => Some(Eased {
                rate: half(eased.rate),
                ..eased
            }),
            (Some(eased), false) => {
                let rate = eased.rate + eased.rate / 4;
                (rate < eased.before).then_some(Eased { rate, ..eased })
            }
            (as_it_was, _) => as_it_was,
        };
        let now = state.eased;
        (was.is_some() != now.is_some()).then(|| now.map(|eased| eased.rate))
    }
}

/// The throttles of one node.
#[derive(Debug)]
pub(crate) struct Throttles {
    limits: CopyLimits,
    incoming: Throttle,
    outgoing: Throttle,
    /// In from one other zone each.
    zones: Mutex<BTreeMap<Zone, Arc<Throttle>>>,
}

impl Throttles {
    pub(crate) fn new(limits: CopyLimits) -> Self {
        Self {
            limits,
            incoming: Throttle::new(limits.bytes_in),
            outgoing: Throttle::new(limits.bytes_out),
            zones: Mutex::default(),
        }
    }

    /// Waits until a copy may bring in so many bytes, from another zone if one is named.
    pub(crate) async fn take_in(&self, zone: Option<&Zone>, bytes: usize) {
        if let (Some(zone), Some(limit)) = (zone, self.limits.bytes_between_zones) {
            let throttle = {
                let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
                let fresh = || Arc::new(Throttle::new(Some(limit)));
                zones.entry(zone.clone()).or_insert_with(fresh).clone()
            };
            throttle.take(bytes).await;
        }
        self.incoming.take(bytes).await;
    }

    /// Waits until a copy may be sent so many bytes.
    pub(crate) async fn take_out(&self, bytes: usize) {
        self.outgoing.take(bytes).await;
    }
}

/// Has copies go slower while this node's own requests suffer from them, until the agent stops.
pub(crate) async fn ease_off(shared: Arc<Shared>) {
    let throttles = &shared.throttles;
    if !throttles.limits.eases {
        return;
    }
    let mut strain = Strain::default();
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let moves = throttles.incoming.moves() || throttles.outgoing.moves();
        let strained = strain.look(shared.guard.take_served(), moves);
        for (way, throttle) in [("in", &throttles.incoming), ("out", &throttles.outgoing)] {
            match throttle.ease(strained) {
                Some(Some(bytes_per_second)) => {
                    let usual = strain.usual();
                    info!(
                        way,
                        bytes_per_second,
                        ?usual,
                        "copies ease off: requests here take more than twice as long as before"
                    );
                }
                Some(None) => info!(way, "copies go as fast as before"),
                None => {}
            }
        }
        shared.metrics.eased.set(i64::from(strained));
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

    const MIB: usize = 1 << 20;

    #[test]
    fn a_strained_node_halves_down_to_the_slowest_and_comes_back() {
        let throttle = Throttle::new(None);
        let now = Instant::now();
        let rate = || throttle.state().eased.map(|eased| eased.rate / MIB as u64);
        assert_eq!(throttle.book(8 * MIB, now), None);
        assert_eq!(
            throttle.ease(true),
            Some(Some(4 * MIB as u64)),
            "half of what went"
        );
        assert_eq!(throttle.book(4 * MIB, now), Some(now));
        assert_eq!(throttle.book(MIB, now), Some(now + Duration::from_secs(1)));
        assert_eq!((throttle.ease(true), rate()), (None, Some(2)));
        assert_eq!(
            (throttle.ease(true), rate()),
            (None, Some(2)),
            "nothing passed"
        );
        for _ in 0..3 {
            throttle.book(MIB, now);
            assert_eq!(throttle.ease(true), None);
        }
        assert_eq!(rate(), Some(1), "no slower");
        let mut looks = 0;
        while throttle.ease(false).is_none() {
            looks += 1;
        }
        assert_eq!(
            (looks, rate()),
            (9, None),
            "1.25 to the tenth is more than 8"
        );
    }

    #[test]
    fn what_goes_slowly_by_itself_is_let_alone() {
        let throttle = Throttle::new(NonZeroU64::new(1_000));
        throttle.book(1_000, Instant::now());
        assert_eq!(throttle.ease(true), None);
        assert_eq!(throttle.state().eased, None);
    }

    #[tokio::test(start_paused = true)]
    async fn each_other_zone_has_a_limit_of_its_own() {
        let limits = CopyLimits {
            bytes_between_zones: NonZeroU64::new(1_000),
            ..CopyLimits::default()
        };
        let throttles = Throttles::new(limits);
        let zone = |name: &str| Zone::new(name).unwrap();
        let start = Instant::now();
        throttles.take_in(None, 1_000_000).await;
        throttles.take_in(Some(&zone("z2")), 2_000).await;
        throttles.take_in(Some(&zone("z3")), 2_000).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "each bucket was full");
        throttles.take_in(Some(&zone("z2")), 1).await;
        let waited = start.elapsed();
        assert!(waited >= Duration::from_secs(2), "{waited:?}");
        throttles.take_in(None, 1).await;
        assert_eq!(start.elapsed(), waited, "the own zone is free");
    }
}
