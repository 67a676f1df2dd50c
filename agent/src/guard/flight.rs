//! What is in flight: tokens counted per slot, and waiting until they have landed.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use annulus_ring::Slot;
use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::{strain::Served, view::NodeView};

type Counts = SmallVec<[(Tag, u32); 1]>;

/// What tokens are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Sequence number of the view that admitted.
    pub seq: u64,
    /// A request that only an unsealed owner is given: a seal waits for it whatever its view,
    /// since what was admitted before the seal may be re-stamped after it.
    pub owned: bool,
}

/// Per slot: how many requests run, by view and by kind.
#[derive(Debug)]
struct Table(Box<[Mutex<Counts>]>);

impl Table {
    fn of(slots: usize) -> Arc<Self> {
        Arc::new(Self((0..slots).map(|_| Mutex::default()).collect()))
    }

    fn lock(&self, slot: Slot) -> Option<MutexGuard<'_, Counts>> {
        Some(
            self.0
                .get(slot.index())?
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn none(&self, slot: Slot, of: impl Fn(Tag) -> bool) -> bool {
        self.lock(slot)
            .is_none_or(|counts| !counts.iter().any(|(tag, _)| of(*tag)))
    }
}

/// The counts of one guard.
#[derive(Debug)]
pub(super) struct Flight {
    table: ArcSwap<Table>,
    /// Woken when a token is dropped while somebody waits.
    landed: Notify,
    waiters: AtomicUsize,
    /// Owned requests that landed, and the nanoseconds they took, since [`Flight::take_served`].
    requests: AtomicU64,
    took: AtomicU64,
}

/// One request under way; it has landed when this is dropped.
#[derive(Debug)]
pub(super) struct Token {
    flight: Arc<Flight>,
    table: Arc<Table>,
    slot: Slot,
    tag: Tag,
    entered: Instant,
}

impl Drop for Token {
    fn drop(&mut self) {
        if self.tag.owned {
            let took = u64::try_from(self.entered.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // Apart from each other these may be off by a request, which nobody will notice.
            self.flight.requests.fetch_add(1, Ordering::Relaxed);
            self.flight.took.fetch_add(took, Ordering::Relaxed);
        }
        if let Some(mut counts) = self.table.lock(self.slot)
            && let Some(at) = counts.iter().position(|(tag, _)| *tag == self.tag)
        {
            counts[at].1 -= 1;
            if counts[at].1 == 0 {
                counts.swap_remove(at);
            }
        }
        if self.flight.waiters.load(Ordering::SeqCst) > 0 {
            self.flight.landed.notify_waiters();
        }
    }
}

impl Flight {
    pub(super) fn of(slots: usize) -> Self {
        Self {
            table: ArcSwap::from(Table::of(slots)),
            landed: Notify::new(),
            waiters: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            took: AtomicU64::new(0),
        }
    }

    pub(super) fn take_served(&self) -> Served {
        Served {
            requests: self.requests.swap(0, Ordering::Relaxed),
            took: Duration::from_nanos(self.took.swap(0, Ordering::Relaxed)),
        }
    }

    /// The ring has another number of slots: a table of its own.
    pub(super) fn resize(&self, slots: usize) {
        self.table.store(Table::of(slots));
    }

    /// Counts a request and says by which view: the one that `load` gives under the slot's lock.
    /// A slot that is not of the ring is not counted.
    pub(super) fn enter(
        self: &Arc<Self>,
        slot: Slot,
        owned: bool,
        load: impl Fn() -> Arc<NodeView>,
    ) -> (Arc<NodeView>, Token) {
        loop {
            let table = self.table.load_full();
            let counts = table.lock(slot);
            let view = load();
            if view.slot_count() != table.0.len() {
                continue; // The table was replaced in between; the view and it go together.
            }
            let tag = Tag {
                seq: view.seq,
                owned,
            };
            if let Some(mut counts) = counts {
                match counts.iter_mut().find(|(counted, _)| *counted == tag) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((tag, 1)),
                }
            }
            let token = Token {
                flight: self.clone(),
                table: table.clone(),
                slot,
                tag,
                entered: Instant::now(),
            };
            return (view, token);
        }
    }

    /// Slots with a request in flight that a view before `seq` admitted.
    pub(super) fn older(&self, slots: &[Slot], seq: u64) -> Vec<Slot> {
        let table = self.table.load_full();
        let slots = slots.iter().copied();
        slots
            .filter(|slot| !table.none(*slot, |tag| tag.seq < seq))
            .collect()
    }

    /// Done when no token that `waits_for` names is left on the slots.
    pub(super) fn landed<F: Fn(Tag) -> bool + Send>(
        self: &Arc<Self>,
        mut left: Vec<Slot>,
        waits_for: F,
    ) -> impl Future<Output = ()> + Send + use<F> {
        let flight = self.clone();
        async move {
            let table = flight.table.load_full();
            let _waiter = Waiter::of(&flight);
            loop {
                let mut landed = pin!(flight.landed.notified());
                // Listening first: a token dropped after the count is not missed.
                landed.as_mut().enable();
                left.retain(|slot| !table.none(*slot, &waits_for));
                if left.is_empty() {
                    return;
                }
                landed.await;
            }
        }
    }
}

/// Counts a waiter, also when its future is dropped half way.
struct Waiter<'a>(&'a Flight);

impl<'a> Waiter<'a> {
    fn of(flight: &'a Flight) -> Self {
        flight.waiters.fetch_add(1, Ordering::SeqCst);
        Self(flight)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}
