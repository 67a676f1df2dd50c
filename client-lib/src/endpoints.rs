//! The control plane's endpoints: in which order they are tried, and which failed lately.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use annulus_ring::Endpoint;
use tokio::time::Instant;

use crate::chance::Chance;

/// First and longest time that a failed endpoint is tried after the others.
const SHUNNED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A list of endpoints with a memory of failures.
///
/// A failure only moves an endpoint to the end of the order and is forgotten after a while: an
/// endpoint is never left out, or a restarted server would be shunned for ever.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    list: Arc<[Endpoint]>,
    failures: Arc<Mutex<BTreeMap<Endpoint, Failures>>>,
    chance: Arc<Chance>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    in_a_row: u32,
    last_until: Instant,
}

impl Endpoints {
    pub(crate) fn new(list: Vec<Endpoint>, chance: Arc<Chance>) -> Self {
        Self {
            list: list.into(),
            failures: Arc::default(),
            chance,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<Endpoint, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every endpoint once, at random, those that failed lately after the others.
    pub(crate) fn order(&self) -> Vec<Endpoint> {
        self.order_at(Instant::now())
    }

    fn order_at(&self, now: Instant) -> Vec<Endpoint> {
        let mut order = self.list.to_vec();
        self.chance.shuffle(&mut order);
        let failures = self.failures();
        order.sort_by_key(|endpoint| {
            failures
                .get(endpoint)
                .is_some_and(|failed| failed.last_until > now)
        });
        order
    }

    pub(crate) fn note_good(&self, endpoint: &Endpoint) {
        self.failures().remove(endpoint);
    }

    pub(crate) fn note_bad(&self, endpoint: &Endpoint) {
        // Endpoints that a server merely hinted at are not remembered: bounded by the list.
        if !self.list.contains(endpoint) {
            return;
        }
        let now = Instant::now();
        let mut failures = self.failures();
        let failed = failures.entry(endpoint.clone()).or_insert(Failures {
            in_a_row: 0,
            last_until: now,
        });
        let (first, longest) = SHUNNED;
        let shunned = first
            .saturating_mul(1 << failed.in_a_row.min(16))
            .min(longest);
        *failed = Failures {
            in_a_row: failed.in_a_row + 1,
            last_until: now + shunned,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(seed: u64) -> Endpoints {
        let list = ["a:1", "b:1", "c:1"].map(|text| Endpoint::new(text).unwrap());
        Endpoints::new(list.to_vec(), Arc::new(Chance::new(Some(seed))))
    }

    #[test]
    fn clients_spread_over_all_endpoints() {
        let mut first = BTreeMap::new();
        for seed in 0..300 {
            *first
                .entry(endpoints(seed).order()[0].to_string())
                .or_insert(0) += 1;
        }
        assert_eq!(first.len(), 3);
        assert!(first.values().all(|count| *count > 60), "{first:?}");
    }

    #[test]
    fn a_failed_endpoint_is_tried_last_and_forgiven() {
        let endpoints = endpoints(1);
        let bad = Endpoint::new("a:1").unwrap();
        endpoints.note_bad(&bad);
        assert!((0..50).all(|_| endpoints.order()[2] == bad));
        // Again and again: still in the order, and forgiven within the longest time.
        (0..40).for_each(|_| endpoints.note_bad(&bad));
        assert_eq!(endpoints.order().len(), 3);
        let later = Instant::now() + SHUNNED.1;
        assert!((0..50).any(|_| endpoints.order_at(later)[0] == bad));
        endpoints.note_bad(&bad);
        endpoints.note_good(&bad);
        assert!((0..50).any(|_| endpoints.order()[0] == bad));
    }

    #[test]
    fn a_hinted_endpoint_is_not_remembered() {
        let endpoints = endpoints(1);
        (0..100).for_each(|port| {
            endpoints.note_bad(&Endpoint::new(format!("stranger:{}", port + 1)).unwrap());
        });
        assert!(endpoints.failures().is_empty());
    }
}
