//! Which data nodes did not answer lately.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annulus_ring::NodeId;
use tokio::time::Instant;

/// Nodes that did not answer lately, so that the next request does not pay for it again. It
/// changes only who of a list is asked first: never who is in it.
#[derive(Debug, Default)]
pub(super) struct FailedNodes {
    /// Whether anybody is remembered: the usual case takes no lock.
    any: AtomicBool,
    nodes: Mutex<BTreeMap<NodeId, (u32, Instant)>>,
}

impl FailedNodes {
    /// First and longest time that a failed node is asked last.
    const SHUNNED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
    /// More are not remembered; a ring in which so many fail has other troubles.
    const MOST: usize = 1_024;

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, (u32, Instant)>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, node: &NodeId) {
        let now = Instant::now();
        let mut nodes = self.nodes();
        if nodes.len() >= Self::MOST {
            nodes.retain(|_, (_, until)| *until > now);
        }
        if nodes.len() < Self::MOST || nodes.contains_key(node) {
            let (times, until) = nodes.entry(node.clone()).or_insert((0, now));
            let (first, longest) = Self::SHUNNED;
            *until = now + first.saturating_mul(1 << (*times).min(16)).min(longest);
            *times += 1;
            self.any.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn forgive(&self, node: &NodeId) {
        if self.any.load(Ordering::Relaxed) {
            let mut nodes = self.nodes();
            nodes.remove(node);
            self.any.store(!nodes.is_empty(), Ordering::Relaxed);
        }
    }

    pub(super) fn now(&self) -> Vec<NodeId> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let now = Instant::now();
        let nodes = self.nodes();
        nodes
            .iter()
            .filter(|(_, (_, until))| *until > now)
            .map(|(node, _)| node.clone())
            .collect()
    }
}
