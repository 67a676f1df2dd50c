//! Who may do what under which epoch: admission of requests, and what is still in flight.
//!
//! ```text
//!   admit(place, stamp, intent) --> Admission (holds a token) -- dropped when the request is over
//!   adopt(view) --> swap; later requests see the new view
//!              '--> drained(): no token older than the view on the slots it changed
//! ```
//!
//! A token is counted under the lock of its slot, in which the view is read too. So after a swap
//! every token that was given by an older view is already counted, and "drained" means drained.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annulus_ring::{Endpoint, Epoch, Generation, Handle, Incarnation, NodeId, SessionId, Slot};
use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::{bait, metrics::Metrics, store::Copy, strain::Served, terms::Terms};

mod flight;
mod judge;
mod refusal;
#[cfg(test)]
mod tests;

use flight::{Flight, Token};
use judge::Verdict;
pub use refusal::Refusal;

pub use crate::view::{NodeView, Place};

/// How long a request waits for an epoch that its sender has seen and this node has not.
pub const BEHIND_WAIT: Duration = Duration::from_millis(500);

/// Under which epoch a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The generation of the client's snapshot.
    pub generation: Generation,
    /// Its epoch.
    pub epoch: Epoch,
}

/// What a client wants of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Put or delete: the owner, unsealed, with lists of at least w members.
    Write,
    /// A read that sees every acknowledged write: the owner, unsealed.
    ReadExact,
    /// A read that may be old: any member of the read set.
    ReadAny,
}

/// Under which epoch and reign an owner sends a write to a replica or gainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStamp {
    /// The generation of the owner's view.
    pub generation: Generation,
    /// Its epoch.
    pub epoch: Epoch,
    /// The reign the owner writes in.
    pub reign: Epoch,
    /// The session for which the receiver is a gainer; absent for members.
    pub session: Option<SessionId>,
}

/// Under which epoch another data node asks this one, as a slot's owner, for its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    /// The generation of the asker's view.
    pub generation: Generation,
    /// Its epoch.
    pub epoch: Epoch,
    /// The reign it believes this owner to be in.
    pub reign: Epoch,
    /// The session for which the asker is a gainer; absent for members.
    pub session: Option<SessionId>,
    /// Who asks.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// It wants a whole copy, which may be cut from step 3 on.
    pub copies: bool,
}

/// A data node as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its small number.
    pub handle: Handle,
    /// Its name.
    pub node_id: NodeId,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Set for a gainer before the switch: the session to stamp replicated writes with.
    pub session: Option<SessionId>,
}

/// A list of which so many members must hold a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its members.
    pub members: Vec<Handle>,
    /// How many of them: w of this list. Two lists may need different numbers, while a transition
    /// changes the replication.
    pub need: usize,
}

impl Group {
    /// Whether enough of its members are among `holders`.
    #[must_use]
    pub fn satisfied(&self, holders: &[Handle]) -> bool {
        let held = self.members.iter().filter(|one| holders.contains(one));
        held.count() >= self.need
    }
}

/// Leave to carry out one request, under one view. Keep it until the request is over (for a write:
/// acknowledged or failed for good): while it lives, this node does not ack an epoch that changes
/// the slot.
#[derive(Debug)]
pub struct Admission {
    /// The generation admitted under.
    pub generation: Generation,
    /// The epoch admitted under: stamp what is sent to replicas with it.
    pub epoch: Epoch,
    /// The owner's reign: that of positions to assign.
    pub reign: Epoch,
    /// Which slot.
    pub slot: Slot,
    /// This node.
    pub own: Handle,
    /// Everybody who must receive a write, **this node included**; owner first.
    pub write_set: Vec<Peer>,
    /// The read set, **this node included**; owner first.
    pub read_set: Vec<Peer>,
    /// A write is acknowledged when every one of these is satisfied. One, or two while a
    /// transition is joint or switched.
    pub groups: Vec<Group>,
    /// Members of the read set, this node included, that must confirm the reign for an exact read:
    /// w of the list that is read.
    pub confirmations: usize,
    guard: EpochGuard,
    _token: Token,
}

impl Admission {
    /// The others who must receive a write.
    pub fn replicas(&self) -> impl Iterator<Item = &Peer> {
        self.write_set.iter().filter(|peer| peer.handle != self.own)
    }

    /// The others of the read set.
    pub fn readers(&self) -> impl Iterator<Item = &Peer> {
        self.read_set.iter().filter(|peer| peer.handle != self.own)
    }

    /// Whether these members, all of which hold the write durably, make it acknowledged.
    #[must_use]
    pub fn satisfied(&self, holders: &[Handle]) -> bool {
        self.groups.iter().all(|group| group.satisfied(holders))
    }

    /// Whether the guard's present view has changed the slot since: then `restamp`.
    #[must_use]
    pub fn outdated(&self) -> bool {
        let outdated = self.guard.inner.view.load().last_change(self.slot) > self.epoch;
        outdated && !bait::on(bait::NEVER_RESTAMPED)
    }

    /// The same request under the present view: same position, new sets. The old admission is
    /// dropped by the caller once the new one is in use. A seal does not hinder what was admitted
    /// before it: it must finish, or the owner never drains.
    ///
    /// # Errors
    /// [`Refusal`] if this node is no longer the owner in the same reign: the write is failed.
    pub fn restamp(&self) -> Result<Self, Refusal> {
        self.guard.locked(self.slot, true, |view, token| {
            view.judge_owner(self.slot, None, None)?;
            let reign = view.reign(self.slot);
            if reign != self.reign {
                let epoch = view.epoch();
                return Err(Refusal::Deposed {
                    epoch,
                    slot: self.slot,
                    reign,
                    asked: self.reign,
                });
            }
            view.admission(self.slot, &self.guard, token)
        })
    }
}

/// Leave to store one replicated write in one copy. Keep it until the record is durable.
#[derive(Debug)]
pub struct ReplicaAdmission {
    /// The epoch admitted under.
    pub epoch: Epoch,
    /// The reign that runs.
    pub reign: Epoch,
    /// Which slot.
    pub slot: Slot,
    /// Into which copy.
    pub copy: Copy,
    _token: Token,
}

/// Admits, refuses and counts. Cheap to clone; all clones are one guard.
#[derive(Clone, Debug)]
pub struct EpochGuard {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    view: ArcSwap<NodeView>,
    changes: watch::Sender<Arc<NodeView>>,
    flight: Arc<Flight>,
    metrics: Arc<Metrics>,
    terms: ArcSwap<Terms>,
    /// Nothing was heard of the control plane for the link's silence.
    isolated: AtomicBool,
}

impl EpochGuard {
    /// A guard that no agent drives: for a store's own tests. Views are given by [`Self::adopt`].
    #[must_use]
    pub fn detached(view: NodeView) -> Self {
        Self::new(view, Arc::default())
    }

    pub(crate) fn new(view: NodeView, metrics: Arc<Metrics>) -> Self {
        let flight = Arc::new(Flight::of(view.slot_count()));
        let view = Arc::new(view);
        let inner = Inner {
            changes: watch::Sender::new(view.clone()),
            view: ArcSwap::from(view),
            flight,
            metrics,
            terms: ArcSwap::from_pointee(Terms::default()),
            isolated: AtomicBool::new(false),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The ring's settings, as the adopted view brought them.
    pub(crate) fn terms(&self) -> Terms {
        **self.inner.terms.load()
    }

    pub(crate) fn set_terms(&self, terms: Terms) {
        self.inner.terms.store(Arc::new(terms));
    }

    /// Notes whether the control plane is heard; what was noted before.
    pub(crate) fn isolate(&self, isolated: bool) -> bool {
        self.inner.isolated.swap(isolated, Ordering::Relaxed)
    }

    /// Clients are served while the control plane is heard, and beyond that if the ring says so.
    fn in_touch(&self, slot: Slot) -> Result<(), Refusal> {
        if self.terms().serves_when_isolated || !self.inner.isolated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let epoch = self.inner.view.load().epoch();
        Err(Refusal::Isolated { epoch, slot })
    }

    /// The view that requests are judged by now.
    #[must_use]
    pub fn view(&self) -> Arc<NodeView> {
        self.inner.view.load_full()
    }

    /// Every swap of the view, newest only: re-stamp what is in flight on slots with a newer
    /// `last_change`, or this node never drains.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<NodeView>> {
        self.inner.changes.subscribe()
    }

    /// Swaps the view; its `seq` is given here. Only the agent calls this (and tests of a store,
    /// on a detached guard). Await [`Self::drained`] with the view's own `seq` before acking it.
    pub fn adopt(&self, mut view: NodeView) -> Arc<NodeView> {
        let mut adopted = None;
        self.inner.changes.send_modify(|slot| {
            view.seq = slot.seq + 1;
            if view.slot_count() != slot.slot_count() {
                self.inner.flight.resize(view.slot_count());
            }
            let view = Arc::new(view);
            self.inner.view.store(view.clone());
            adopted = Some(view.clone());
            *slot = view;
        });
        adopted.expect("send_modify ran the closure")
    }

    /// Done when nothing is in flight on `slots` that was admitted by a view before `seq`.
    pub fn drained(&self, slots: Vec<Slot>, seq: u64) -> impl Future<Output = ()> + Send + use<> {
        self.inner.flight.landed(slots, move |tag| tag.seq < seq)
    }

    /// What [`Self::drained`] still waits for.
    pub(crate) fn not_drained(&self, slots: &[Slot], seq: u64) -> Vec<Slot> {
        self.inner.flight.older(slots, seq)
    }

    /// Done when no write or exact read is in flight on `slots`. Ends only where no new one is
    /// admitted: after a view with seals on them was adopted.
    pub fn quiet(&self, slots: Vec<Slot>) -> impl Future<Output = ()> + Send + use<> {
        self.inner.flight.landed(slots, |tag| tag.owned)
    }

    /// Admits a client's request; waits up to [`BEHIND_WAIT`] for an epoch that the client has.
    ///
    /// A client with an old epoch is served at the right owner: the answer's epoch tells it. Where a
    /// conversion came between the view that named the slot and this, locate the key again.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was counted then.
    pub async fn admit(
        &self,
        place: Place,
        stamp: Stamp,
        intent: Intent,
    ) -> Result<Admission, Refusal> {
        let slot = place.slot;
        let owned = intent != Intent::ReadAny;
        self.in_touch(slot)
            .map_err(|refusal| self.refused(refusal))?;
        let admit = || {
            self.locked(slot, owned, |view, token| {
                view.await_epoch(stamp.generation, stamp.epoch)?;
                view.judge_place(place)?;
                match intent {
                    Intent::Write | Intent::ReadExact => {
                        view.judge_owner(slot, Some(stamp), Some(intent))?;
                    }
                    Intent::ReadAny => view.judge_reader(slot, stamp)?,
                }
                Ok(view.admission(slot, self, token)?)
            })
        };
        self.patiently(admit).await
    }

    /// Admits a write that an owner sends to this replica or gainer; waits up to [`BEHIND_WAIT`]
    /// for an epoch that the owner has.
    ///
    /// # Errors
    /// [`Refusal`]; a refusal for age is never simply retried by the owner, but re-stamped.
    pub async fn admit_replica(
        &self,
        slot: Slot,
        stamp: ReplicaStamp,
    ) -> Result<ReplicaAdmission, Refusal> {
        let admit = || {
            self.locked(slot, false, |view, token| {
                view.await_epoch(stamp.generation, stamp.epoch)?;
                let copy = view.judge_replica(slot, stamp)?;
                let (epoch, reign) = (view.epoch(), view.reign(slot));
                Ok(ReplicaAdmission {
                    epoch,
                    reign,
                    slot,
                    copy,
                    _token: token,
                })
            })
        };
        self.patiently(admit).await
    }

    /// Whether this member of the read set knows no newer reign than the asking owner's, under an
    /// epoch that is not older than the slot's last change. What an exact read asks of w members
    /// (the owner asks itself here too).
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn confirm_reign(
        &self,
        slot: Slot,
        reign: Epoch,
        epoch: Epoch,
    ) -> Result<(), Refusal> {
        let confirm = || -> Result<(), Verdict> {
            let view = self.inner.view.load();
            view.await_epoch(view.generation(), epoch)?;
            view.judge_reign(slot, reign, epoch)?;
            let reads = view.sets(slot).read_set();
            if view.own.is_none_or(|own| !reads.contains(&own)) {
                return Err(Refusal::NotMember {
                    epoch: view.epoch(),
                    slot,
                }
                .into());
            }
            Ok(())
        };
        self.patiently(confirm).await
    }

    /// Whether another node may have this one's records of a slot: only from the owner that serves
    /// in the very reign that is asked for, and only for a member or the running session's gainer.
    /// A sealed owner answers: its successor needs it to.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn admit_source(&self, slot: Slot, stamp: SourceStamp) -> Result<(), Refusal> {
        self.patiently(|| -> Result<(), Verdict> {
            let view = self.inner.view.load();
            view.await_epoch(stamp.generation, stamp.epoch)?;
            Ok(view.judge_source(slot, &stamp)?)
        })
        .await
    }

    /// Whether the successor of a failover may have this member's records of a slot: only while
    /// this member refuses the owner's present reign.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn admit_fenced(&self, slot: Slot, stamp: SourceStamp) -> Result<(), Refusal> {
        self.patiently(|| -> Result<(), Verdict> {
            let view = self.inner.view.load();
            view.await_epoch(stamp.generation, stamp.epoch)?;
            Ok(view.judge_fenced(slot, &stamp)?)
        })
        .await
    }

    /// Whether a slot's reign is still this one.
    pub(crate) fn serves_reign(&self, slot: Slot, reign: Epoch) -> bool {
        self.inner.view.load().reign(slot) == reign
    }

    /// Writes and exact reads that ended since this was last asked.
    pub(crate) fn take_served(&self) -> Served {
        self.inner.flight.take_served()
    }

    /// Counts a request that the store forwarded to the owner.
    pub fn count_forwarded(&self) {
        self.inner.metrics.forwarded.inc();
    }

    /// Runs `judge` until it no longer says "later" or the wait is over.
    async fn patiently<T>(&self, judge: impl Fn() -> Result<T, Verdict>) -> Result<T, Refusal> {
        match judge() {
            Ok(done) => return Ok(done),
            Err(Verdict::No(refusal)) => return Err(self.refused(refusal)),
            Err(Verdict::Later(_)) => {}
        }
        let mut changes = self.changes();
        let deadline = tokio::time::Instant::now() + BEHIND_WAIT;
        loop {
            // Judged again first: the view may have been swapped before the subscription.
            let refusal = match judge() {
                Ok(done) => return Ok(done),
                Err(Verdict::No(refusal)) => return Err(self.refused(refusal)),
                Err(Verdict::Later(refusal)) => refusal,
            };
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(self.refused(refusal)),
            }
        }
    }

    fn refused(&self, refusal: Refusal) -> Refusal {
        self.inner.metrics.count_refusal(refusal.kind());
        refusal
    }

    /// Judges under the slot's lock, with a token that is counted already.
    fn locked<T, E: From<Refusal>>(
        &self,
        slot: Slot,
        owned: bool,
        judge: impl Fn(&NodeView, Token) -> Result<T, E>,
    ) -> Result<T, E> {
        let load = || self.inner.view.load_full();
        let (view, token) = self.inner.flight.enter(slot, owned, load);
        judge(&view, token)
    }
}
