//! Who watches here, and which epoch each says it acts by.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use annulus_ring::{Epoch, RingName};

/// Open streams. One entry each, so bounded by their limit.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    open: BTreeMap<u64, Watcher>,
}

#[derive(Debug)]
struct Watcher {
    ring: RingName,
    /// As it calls itself; not unique.
    text: String,
    remote: Option<SocketAddr>,
    /// 0 until it reports.
    applied: Epoch,
}

/// An open stream's entry; gone when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    watchers: Arc<Watchers>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.watchers.lock().open.remove(&self.id);
    }
}

impl Watchers {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a stream, unless `limit` are open.
    pub(crate) fn enter(
        self: &Arc<Self>,
        limit: u32,
        ring: RingName,
        text: String,
        remote: Option<SocketAddr>,
    ) -> Option<Registered> {
        let mut inner = self.lock();
        if inner.open.len() >= limit as usize {
            return None;
        }
        inner.next += 1;
        let id = inner.next;
        inner.open.insert(
            id,
            Watcher {
                ring,
                text,
                remote,
                applied: Epoch(0),
            },
        );
        Some(Registered {
            watchers: Arc::clone(self),
            id,
        })
    }

    /// Notes what a watcher acts by. It is the one on the same connection; without one there,
    /// those of the same text on the same host.
    pub(crate) fn applied(
        &self,
        ring: &RingName,
        text: &str,
        remote: Option<SocketAddr>,
        epoch: Epoch,
    ) {
        let mut inner = self.lock();
        let mut here = |same: &dyn Fn(&Watcher) -> bool| {
            let mut found = false;
            let named = |watcher: &&mut Watcher| watcher.ring == *ring && watcher.text == text;
            for watcher in inner
                .open
                .values_mut()
                .filter(named)
                .filter(|watcher| same(watcher))
            {
                watcher.applied = watcher.applied.max(epoch);
                found = true;
            }
            found
        };
        if !here(&|watcher| watcher.remote == remote) {
            let ip = |remote: Option<SocketAddr>| remote.map(|remote| remote.ip());
            here(&|watcher| ip(watcher.remote) == ip(remote));
        }
    }

    /// Streams open.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lock().open.len()).unwrap_or(u32::MAX)
    }

    /// Watchers of a ring by the epoch they act by, sorted; 0: not said.
    pub(crate) fn by_epoch(&self, ring: &RingName) -> BTreeMap<Epoch, u32> {
        let mut counts = BTreeMap::new();
        for watcher in self
            .lock()
            .open
            .values()
            .filter(|watcher| watcher.ring == *ring)
        {
            *counts.entry(watcher.applied).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_for_the_stream_of_its_connection() {
        let watchers = Arc::new(Watchers::default());
        let ring = RingName::new("r").unwrap();
        let at = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let enter = |port| watchers.enter(2, ring.clone(), "w".to_owned(), at(port));
        let first = enter(1).unwrap();
        let _second = enter(2).unwrap();
        assert!(enter(3).is_none(), "the limit is 2");
        watchers.applied(&ring, "w", at(1), Epoch(7));
        assert_eq!(
            watchers.by_epoch(&ring),
            BTreeMap::from([(Epoch(0), 1), (Epoch(7), 1)])
        );
        watchers.applied(&ring, "w", at(9), Epoch(8));
        assert_eq!(watchers.by_epoch(&ring), BTreeMap::from([(Epoch(8), 2)]));
        drop(first);
        assert_eq!(watchers.count(), 1);
    }
}
