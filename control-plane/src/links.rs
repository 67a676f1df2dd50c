//! The leader's soft state: who is linked, and what each linked node said.
//!
//! Nothing here is ever needed again: a new leader starts with nothing, and every agent opens
//! its link with a whole report. All of it belongs to one term of leadership and goes with it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use annulus_membership::{Boot, Report, Reports};
use annulus_ring::{Endpoint, Epoch, Incarnation, NodeId, RingName};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// One server's links. Empty unless it leads.
#[derive(Debug)]
pub(crate) struct Links {
    inner: Mutex<Inner>,
    /// Somebody said something: the driver looks whether a step is due.
    pub(crate) heard: Notify,
    /// The driver has looked: links look whether their node is to do something else.
    looked: watch::Sender<u64>,
    /// A link heard within this time is fresh, in ms.
    fresh_ms: u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The term led by this server; none: another leads, or nobody.
    term: Option<u64>,
    next: u64,
    rings: BTreeMap<RingName, RingLinks>,
}

#[derive(Debug)]
struct RingLinks {
    reports: Reports,
    links: BTreeMap<NodeId, Entry>,
}

impl Default for RingLinks {
    fn default() -> Self {
        #[cfg_attr(
            not(feature = "bait"),
            allow(unused_mut, reason = "only the bait bends it")
        )]
        let mut reports = Reports::default();
        #[cfg(feature = "bait")]
        if std::env::var("ANNULUS_BAIT").as_deref() == Ok("switch-not-waiting-for-joint") {
            reports.bait_skip_joint();
        }
        Self {
            reports,
            links: BTreeMap::new(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    boot: Boot,
    endpoint: Endpoint,
    heard_ms: u64,
    cut: CancellationToken,
}

/// Why a link was not entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    /// Not the leader of this term any more.
    #[error("this server does not lead")]
    NotLeading,
    /// Another process speaks under the id.
    #[error(
        "node {node} is linked from {first}, heard {heard_ms_ago} ms ago, and a second process \
         speaks for it from {second}: one of them must stop"
    )]
    SecondProcess {
        /// Who.
        node: NodeId,
        /// Where the first listens.
        first: Endpoint,
        /// Where the second listens.
        second: Endpoint,
        /// When the first was last heard.
        heard_ms_ago: u64,
    },
}

/// An entered link; left when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    links: Arc<Links>,
    ring: RingName,
    node: NodeId,
    serial: u64,
    /// The link is to end: leadership was lost, or the same process opened a newer one.
    pub(crate) cut: CancellationToken,
}

impl Links {
    pub(crate) fn new(fresh_ms: u64) -> Self {
        Self {
            inner: Mutex::default(),
            heard: Notify::new(),
            looked: watch::Sender::default(),
            fresh_ms,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This server leads `term`, or does not lead (`None`). What belongs to another term is
    /// forgotten, and its links are cut. Says whether anything changed.
    pub(crate) fn lead(&self, term: Option<u64>) -> bool {
        let mut inner = self.lock();
        if inner.term == term {
            return false;
        }
        inner.term = term;
        for links in std::mem::take(&mut inner.rings).into_values() {
            links.links.values().for_each(|entry| entry.cut.cancel());
        }
        true
    }

    /// The driver has looked.
    pub(crate) fn looked(&self) {
        self.looked.send_modify(|count| *count += 1);
    }

    /// Wakes after the driver has looked.
    pub(crate) fn looks(&self) -> watch::Receiver<u64> {
        self.looked.subscribe()
    }

    /// Enters a link in a term. A second process under a fresh link's id is refused; the same
    /// process, or one after a silence, takes over.
    pub(crate) fn enter(
        self: &Arc<Self>,
        term: u64,
        ring: &RingName,
        node: &NodeId,
        boot: Boot,
        endpoint: &Endpoint,
        now_ms: u64,
    ) -> Result<Link, LinkError> {
        let mut inner = self.lock();
        if inner.term != Some(term) {
            return Err(LinkError::NotLeading);
        }
        inner.next += 1;
        let serial = inner.next;
        let links = &mut inner.rings.entry(ring.clone()).or_default().links;
        if let Some(first) = links.get(node) {
            let heard_ms_ago = now_ms.saturating_sub(first.heard_ms);
            if first.boot != boot && heard_ms_ago <= self.fresh_ms {
                return Err(LinkError::SecondProcess {
                    node: node.clone(),
                    first: first.endpoint.clone(),
                    second: endpoint.clone(),
                    heard_ms_ago,
                });
            }
            first.cut.cancel();
        }
        let cut = CancellationToken::new();
        let entry = Entry {
            serial,
            boot,
            endpoint: endpoint.clone(),
            heard_ms: now_ms,
            cut: cut.clone(),
        };
        links.insert(node.clone(), entry);
        let links = Arc::clone(self);
        Ok(Link {
            links,
            ring: ring.clone(),
            node: node.clone(),
            serial,
            cut,
        })
    }

    /// Works with what a ring's nodes said; empty unless this server leads. The state's lock is
    /// taken before this one wherever both are held.
    pub(crate) fn with_reports<T>(
        &self,
        ring: &RingName,
        work: impl FnOnce(&mut Reports) -> T,
    ) -> T {
        let mut inner = self.lock();
        if inner.term.is_none() {
            return work(&mut Reports::default());
        }
        work(&mut inner.rings.entry(ring.clone()).or_default().reports)
    }

    /// Looks at what a ring's nodes said; `None` unless this server leads.
    pub(crate) fn while_leading<T>(
        &self,
        ring: &RingName,
        look: impl FnOnce(Option<&Reports>) -> T,
    ) -> T {
        let inner = self.lock();
        let silent = Reports::default();
        let leading = inner.term.is_some();
        let reports = inner
            .rings
            .get(ring)
            .map_or(&silent, |links| &links.reports);
        look(leading.then_some(reports))
    }

    /// Links open, over all rings.
    pub(crate) fn count(&self) -> usize {
        self.lock()
            .rings
            .values()
            .map(|links| links.links.len())
            .sum()
    }
}

impl Link {
    /// Works with the reports if this is still the node's link.
    fn work(&self, now_ms: u64, work: impl FnOnce(&mut Reports)) -> bool {
        let mut inner = self.links.lock();
        let Some(ring) = inner.rings.get_mut(&self.ring) else {
            return false;
        };
        match ring.links.get_mut(&self.node) {
            Some(entry) if entry.serial == self.serial => entry.heard_ms = now_ms,
            _ => return false,
        }
        work(&mut ring.reports);
        true
    }

    /// The node was welcomed: it speaks from here on, and what it said before is void.
    #[must_use]
    pub(crate) fn welcome(
        &self,
        incarnation: Incarnation,
        empty: bool,
        adopted: Epoch,
        now_ms: u64,
    ) -> bool {
        let node = self.node.clone();
        let done = self.work(now_ms, |reports| {
            reports.hello(node, incarnation, empty, adopted, now_ms);
        });
        self.links.heard.notify_one();
        done
    }

    /// The node renewed. `false`: the link has ended.
    #[must_use]
    pub(crate) fn renew(&self, now_ms: u64) -> bool {
        self.work(now_ms, |reports| reports.heard(&self.node, now_ms))
    }

    /// The node reported. `false`: the link has ended.
    #[must_use]
    pub(crate) fn report(&self, report: Report, now_ms: u64) -> bool {
        let done = self.work(now_ms, |reports| reports.take(&self.node, report, now_ms));
        self.links.heard.notify_one();
        done
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut inner = self.links.lock();
        let Some(ring) = inner.rings.get_mut(&self.ring) else {
            return;
        };
        if ring
            .links
            .get(&self.node)
            .is_some_and(|entry| entry.serial == self.serial)
        {
            ring.links.remove(&self.node);
            ring.reports.unlink(&self.node);
        }
        drop(inner);
        self.links.heard.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        links: Arc<Links>,
        ring: RingName,
        node: NodeId,
    }

    impl World {
        fn new() -> Self {
            let links = Arc::new(Links::new(3_000));
            links.lead(Some(5));
            Self {
                links,
                ring: RingName::new("r").unwrap(),
                node: NodeId::new("n").unwrap(),
            }
        }

        fn enter(&self, boot: u128, at: &str, now_ms: u64) -> Result<Link, LinkError> {
            let at = Endpoint::new(at).unwrap();
            self.links
                .enter(5, &self.ring, &self.node, Boot(boot), &at, now_ms)
        }
    }

    #[test]
    fn a_second_process_under_a_fresh_link_is_refused_naming_both() {
        let world = World::new();
        let first = world.enter(1, "a:1", 0).unwrap();
        assert!(first.renew(2_000));
        let message = world.enter(2, "b:2", 5_000).unwrap_err().to_string();
        assert!(
            message.contains("a:1") && message.contains("b:2"),
            "{message}"
        );
        assert!(!first.cut.is_cancelled());
        // After a silence, or once the first has gone, the second may speak.
        let second = world.enter(2, "b:2", 5_001).unwrap();
        assert!(first.cut.is_cancelled() && !first.renew(5_002));
        drop(first);
        assert!(
            second.renew(5_003),
            "an older link's end does not end the newer"
        );
        drop(second);
        assert!(world.enter(3, "c:3", 5_004).is_ok());
    }

    #[test]
    fn the_same_process_takes_its_own_link_over() {
        let world = World::new();
        let first = world.enter(1, "a:1", 0).unwrap();
        let second = world.enter(1, "a:1", 1).unwrap();
        assert!(first.cut.is_cancelled() && !second.cut.is_cancelled());
    }

    #[test]
    fn what_was_said_goes_with_the_term() {
        let world = World::new();
        let link = world.enter(1, "a:1", 0).unwrap();
        assert!(link.welcome(Incarnation(1), true, Epoch(0), 0));
        let known = |world: &World| {
            world.links.while_leading(&world.ring, |reports| {
                reports.map(|reports| reports.nodes().count())
            })
        };
        assert_eq!(known(&world), Some(1));
        assert!(world.links.lead(None));
        assert_eq!(known(&world), None);
        assert!(link.cut.is_cancelled() && !link.renew(1));
        assert_eq!(world.enter(1, "a:1", 0).unwrap_err(), LinkError::NotLeading);
        world.links.lead(Some(6));
        assert_eq!(known(&world), Some(0));
    }
}
