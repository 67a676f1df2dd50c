//! From a view to an acked epoch, and from a directive to a seal: the agent's one decision loop.
//!
//! ```text
//!   view --> promote / found / begin reigns (durable) --> guard swaps --> reconcile the work
//!                                   drained --> retain what was lost --> sync --> report the ack
//!   directive (of an epoch adopted) --> seals lifted, seals made (durable) --> quiet --> F
//! ```
//!
//! Views are taken in as they come, newest only; a newer one does not wait until an older one has
//! drained. Everything here is repeated after a failure or a restart, and nothing is half done.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use annulus_ring::{Epoch, Handle, Position, SessionId, Slot, Step};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error, info, warn};

use crate::{
    board::LIVE,
    identity::IdentityError,
    plan::{self, Held},
    shared::Shared,
    store::StoreError,
    view::NodeView,
    wire::{Directive, View, Wave},
    work::Work,
};

mod convert;
mod direct;

/// How long after a failure of the disk the same thing is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What the link asks for besides handing over views and directives.
pub(crate) enum Order {
    /// The control plane gave this directory a life (or the same one again).
    Welcomed,
    /// Another process has taken this node's place: serve nothing until welcomed again.
    StandAside,
    /// Its data belongs to nobody: set it aside and draw a new birth, then answer.
    Discard(oneshot::Sender<Result<(), StepError>>),
}

/// Why something could not be done now; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("copies are of 2^{from} slots, the ring has 2^{to}: slots are never merged; ask why")]
    Merged { from: u8, to: u8 },
    #[error("told to discard, but {live} live copies are held; stop this node and ask why")]
    LiveData { live: usize },
    #[error("a blocking task failed: {0}")]
    Join(#[from] tokio::task::JoinError),
}

/// How often it is said what an epoch waits for here.
const STUCK: Duration = Duration::from_secs(10);

/// What an adopted view waits for before it is acked: slots that it changed, and its `seq`.
type Waits = (Vec<Slot>, u64);

/// `Send` only, so the loop borrows itself mutably across every await.
type Wait<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The loop and what it remembers.
pub(crate) struct Adopter {
    shared: Arc<Shared>,
    work: Work,
    /// The view that the guard obeys.
    current: Option<Current>,
    /// A view that could not be obeyed yet, for a failure of the disk.
    again: Option<View>,
    unheld: Arc<BTreeSet<Slot>>,
    session: Option<SessionId>,
    /// Sessions that are over, with the epoch at which this process saw it.
    gone: BTreeMap<SessionId, Epoch>,
    /// The newest directive, whether or not its epoch is adopted.
    directive: Option<Arc<Directive>>,
    drain: Option<Wait<()>>,
    drains: Waits,
    quiet: Option<Wait<Wave>>,
    /// A refusal that is durable and obeyed, and drains.
    fencing: Option<Wait<u64>>,
    retry: Option<Wait<()>>,
    /// The copies were given new names since the last ack: the leader forgot what it knew of them.
    renamed: bool,
}

#[derive(Clone)]
struct Current {
    view: View,
    own: Option<Handle>,
}

impl Adopter {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            work: Work::new(shared.clone()),
            shared,
            current: None,
            again: None,
            unheld: Arc::default(),
            session: None,
            gone: BTreeMap::new(),
            directive: None,
            drain: None,
            drains: Waits::default(),
            quiet: None,
            fencing: None,
            retry: None,
            renamed: false,
        }
    }

    pub(crate) async fn run(
        mut self,
        mut views: watch::Receiver<Option<View>>,
        mut directives: watch::Receiver<Option<Arc<Directive>>>,
        mut orders: mpsc::Receiver<Order>,
    ) {
        let stop = self.shared.stop.clone();
        let mut stuck = tokio::time::interval_at(tokio::time::Instant::now() + STUCK, STUCK);
        stuck.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Biased, so that a simulated run is the same twice; orders are rare.
            let done = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(order) = orders.recv() => self.order(order).await,
                Ok(()) = views.changed() => {
                    let view = views.borrow_and_update().clone();
                    match view {
                        Some(view) => self.adopt(view).await,
                        None => Ok(()),
                    }
                }
                Ok(()) = directives.changed() => {
                    self.directive = directives.borrow_and_update().clone();
                    self.direct().await
                }
                () = ready(&mut self.drain) => {
                    self.drain = None;
                    self.drained().await
                }
                wave = ready(&mut self.fencing) => {
                    self.fencing = None;
                    self.fenced(wave).await
                }
                wave = ready(&mut self.quiet) => {
                    self.quiet = None;
                    self.sealed(wave).await
                }
                _ = stuck.tick() => {
                    self.say_what_is_stuck();
                    Ok(())
                }
                () = ready(&mut self.retry) => {
                    self.retry = None;
                    self.retry().await
                }
            };
            if let Err(error) = done {
                let epoch = self.shared.guard.view().epoch();
                error!(%error, %epoch, "a step failed and will be tried again");
                self.retry = Some(Box::pin(tokio::time::sleep(AGAIN)));
            }
        }
        self.work.stop().await;
    }

    async fn retry(&mut self) -> Result<(), StepError> {
        if let Some(view) = self.again.take() {
            return self.adopt(view).await;
        }
        if self.drain.is_none() && self.acked() < self.epoch() {
            self.drained().await?;
        }
        self.reconcile().await?;
        self.direct().await
    }

    fn epoch(&self) -> Epoch {
        self.current
            .as_ref()
            .map_or(Epoch(0), |current| current.view.epoch())
    }

    fn acked(&self) -> Epoch {
        self.shared.identity.get().adopted
    }

    async fn held(&mut self) -> Result<Held, StepError> {
        Ok(Held::from(
            self.shared.store.call(|store| store.holdings()).await?,
        ))
    }

    async fn remember(
        &mut self,
        change: impl FnOnce(&mut crate::identity::Identity) + Send + 'static,
    ) -> Result<crate::identity::Identity, StepError> {
        let shared = self.shared.clone();
        Ok(tokio::task::spawn_blocking(move || shared.identity.update(change)).await??)
    }

    async fn order(&mut self, order: Order) -> Result<(), StepError> {
        match order {
            Order::Welcomed => match self.current.clone() {
                // The life decides whether this node is the member that the view names.
                Some(current) => self.adopt(current.view).await,
                None => Ok(()),
            },
            Order::StandAside => {
                self.serve_nothing();
                Ok(())
            }
            Order::Discard(answer) => {
                let done = self.discard().await;
                // The link may be gone; it asks again when it is back.
                let _gone = answer.send(done);
                Ok(())
            }
        }
    }

    /// An aborted join: the staging copies go, the directory begins a new life.
    async fn discard(&mut self) -> Result<(), StepError> {
        let held = self.held().await?;
        if !held.live.is_empty() {
            return Err(StepError::LiveData {
                live: held.live.len(),
            });
        }
        self.work.close_session().await;
        for session in held.sessions() {
            self.shared
                .store
                .call(move |store| store.drop_staging(session))
                .await?;
        }
        let known = self.remember(crate::identity::Identity::be_reborn).await?;
        self.gone.clear();
        self.shared.board.session(None);
        info!(birth = %format_args!("{:032x}", known.birth), "data set aside, a new life begins");
        self.serve_nothing();
        Ok(())
    }

    /// As somebody who is no member, until a view is adopted again.
    fn serve_nothing(&mut self) {
        if let Some(current) = self.current.clone() {
            self.obey(&current.view, None);
            self.current = Some(Current {
                own: None,
                ..current
            });
        }
    }

    /// Takes in a view; an older one than is known is dropped.
    async fn adopt(&mut self, view: View) -> Result<(), StepError> {
        let known = self.shared.identity.get();
        let place = (view.generation(), view.epoch());
        let held = self
            .current
            .as_ref()
            .map(|now| (now.view.generation(), now.view.epoch()));
        if place < (known.generation, known.adopted) || held.is_some_and(|held| place < held) {
            warn!(epoch = %view.epoch(), adopted = %known.adopted, "an older view was dropped");
            return Ok(());
        }
        let done = match self.must_convert(&view) {
            true => self.convert(&view).await,
            false => self.swap(&view).await,
        };
        if done.is_err() {
            self.again = Some(view);
            return done;
        }
        self.again = None;
        self.reconcile().await?;
        self.direct().await
    }

    async fn swap(&mut self, view: &View) -> Result<(), StepError> {
        let known = self.shared.identity.get();
        let member = view.lookup.snapshot().member(&known.node_id);
        let own = member
            .filter(|member| member.incarnation == known.incarnation)
            .map(|member| member.handle);
        self.remember_cut(view).await?;
        let mut unheld = BTreeSet::new();
        if let Some(own) = own {
            unheld = self.prepare(view, own, known.held).await?;
        }
        for slot in unheld.difference(&self.unheld) {
            error!(
                %slot, epoch = %view.epoch(),
                "listed for a range of which no copy is held; it is refused, not served empty"
            );
        }
        self.shared
            .metrics
            .unheld
            .set(i64::try_from(unheld.len()).unwrap_or(i64::MAX));
        self.shared
            .board
            .unheld(u32::try_from(unheld.len()).unwrap_or(u32::MAX));
        self.unheld = Arc::new(unheld);
        self.shared.guard.set_terms(view.terms);
        let adopted = self.obey(view, own);
        debug!(epoch = %view.epoch(), step = ?adopted.step(), "view adopted, draining");
        // Everything that changed since the last ack, also under views that were skipped.
        let changed = plan::changed_since(view, known.adopted);
        self.drains = (changed.clone(), adopted.seq);
        self.drain = Some(Box::pin(self.shared.guard.drained(changed, adopted.seq)));
        let was_member = self
            .current
            .as_ref()
            .is_some_and(|current| current.own.is_some());
        self.current = Some(Current {
            view: view.clone(),
            own,
        });
        self.shared.forget_channels(|endpoint| {
            view.lookup
                .snapshot()
                .members
                .iter()
                .any(|member| member.endpoint == *endpoint)
        });
        if was_member && own.is_none() {
            warn!(epoch = %view.epoch(), "no longer a member; asking the leader what becomes of it");
            self.shared.rejected.notify_one();
        }
        Ok(())
    }

    /// What must be durable before the guard obeys. The slots that cannot be served.
    async fn prepare(
        &mut self,
        view: &View,
        own: Handle,
        ever_held: bool,
    ) -> Result<BTreeSet<Slot>, StepError> {
        let held = self.held().await?;
        if !ever_held && !held.nothing() {
            // Stopped between opening the first copies and saying so.
            self.remember(|known| known.held = true).await?;
        }
        let plan = plan::before(view, own, &held, ever_held);
        for (session, slots) in plan.promote {
            let count = slots.len();
            self.shared
                .store
                .call(move |store| store.promote(session, &slots))
                .await?;
            info!(%session, epoch = %view.epoch(), count, "copies promoted");
        }
        if let Some((session, slots)) = plan.demote {
            let count = slots.len();
            self.shared
                .store
                .call(move |store| store.demote(session, &slots))
                .await?;
            info!(%session, epoch = %view.epoch(), count, "flipping back: copies hidden again");
        }
        let (found, begin) = (plan.found, plan.begin);
        if !found.is_empty() {
            info!(epoch = %view.epoch(), count = found.len(), "founding: empty copies opened");
        }
        let founding = !found.is_empty();
        self.shared
            .store
            .call(move |store| {
                if !found.is_empty() {
                    store.open_live(&found)?;
                }
                if begin.is_empty() {
                    Ok(())
                } else {
                    store.begin_reign(&begin)
                }
            })
            .await?;
        if founding {
            self.remember(|known| known.held = true).await?;
        }
        Ok(plan.unheld)
    }

    /// An epoch that is not acked holds up everybody: which ranges it waits for is worth a line.
    fn say_what_is_stuck(&self) {
        let (slots, seq) = &self.drains;
        if self.drain.is_none() {
            return;
        }
        let slots = self.shared.guard.not_drained(slots, *seq);
        if !slots.is_empty() {
            let (epoch, acked) = (self.epoch(), self.acked());
            let some = &slots[..slots.len().min(8)];
            warn!(%epoch, %acked, count = slots.len(), ?some, "requests of before are still in flight");
        }
    }

    /// Swaps the guard's view, under the seals in force.
    fn obey(&self, view: &View, own: Option<Handle>) -> Arc<NodeView> {
        let known = self.shared.identity.get();
        self.shared.guard.adopt(NodeView {
            seq: 0,
            ring: known.ring.clone(),
            node: known.node_id.clone(),
            incarnation: Some(known.incarnation),
            lookup: Some(view.lookup.clone()),
            reigns: view.reigns.clone(),
            last_changes: view.last_changes.clone(),
            own,
            seals: Arc::new(known.sealed()),
            unheld: self.unheld.clone(),
            converting: view.converting,
            converted: view.converted,
        })
    }

    /// Nothing older is in flight: retain what was lost, sync, say so.
    async fn drained(&mut self) -> Result<(), StepError> {
        let Some(Current { view, own }) = self.current.clone() else {
            return Ok(());
        };
        let known = self.shared.identity.get();
        let epoch = view.epoch();
        let held = self.held().await?;
        let lost = own
            .map(|own| plan::given_up(&view, own, &held))
            .unwrap_or_default();
        if !lost.is_empty() {
            let (session, count) = (known.losing, lost.len());
            if session == LIVE {
                error!(%epoch, count, "copies are no longer listed, by no transition known here; kept unread");
            } else {
                self.shared
                    .store
                    .call(move |store| store.retain(session, &lost))
                    .await?;
                info!(%session, %epoch, count, "copies retained until a permit releases them");
            }
        }
        // Before the ack is synced, so that a failure here is made up for with it.
        self.joint(&view, own).await?;
        let snapshot = view.lookup.snapshot().clone();
        let switched = snapshot
            .transition
            .as_ref()
            .filter(|transition| transition.step == Step::Switched)
            .map(|transition| SessionId::from(transition.id));
        let losing = switched.filter(|_| own.is_some_and(|own| plan::loses(&view, own)));
        let (generation, cluster_id) = (view.generation(), snapshot.cluster_id);
        self.remember(move |known| {
            known.generation = generation;
            known.adopted = epoch;
            known.cluster_id = Some(cluster_id);
            if let Some(session) = losing {
                known.losing = session;
            }
        })
        .await?;
        self.note_retained().await?;
        let changed = plan::changed_since(&view, known.adopted)
            .into_iter()
            .collect();
        self.shared.board.outlive(&changed);
        // With the ack of the epoch that began a reign, not a look later.
        let behind = own.map_or(0, |own| plan::behind(&view, own, &held));
        self.shared.board.behind(behind);
        self.shared.board.adopted(epoch);
        self.shared
            .metrics
            .epoch
            .set(i64::try_from(epoch.0).unwrap_or(i64::MAX));
        self.shared.metrics.adoptions.inc();
        self.shared.status.send_modify(|status| {
            status.adopted = epoch;
            status.member = own.is_some();
        });
        info!(%epoch, step = ?snapshot.transition.as_ref().map(|one| one.step), "epoch acked");
        if std::mem::take(&mut self.renamed) {
            // A new link begins with everything that there is to say.
            self.shared.rejected.notify_one();
        }
        Ok(())
    }

    async fn note_retained(&mut self) -> Result<(), StepError> {
        let held = self.held().await?;
        self.shared.board.retained(held.retained);
        let store = self.shared.store.inner();
        let free = tokio::task::spawn_blocking(move || store.free_bytes()).await?;
        self.shared.board.free_bytes(free);
        Ok(())
    }

    /// J: once the joint epoch is drained, the last position assigned in each moving slot owned.
    async fn joint(&mut self, view: &View, own: Option<Handle>) -> Result<(), StepError> {
        let snapshot = view.lookup.snapshot();
        let (Some(own), Some(transition)) = (own, &snapshot.transition) else {
            return Ok(());
        };
        if transition.step != Step::Joint || view.terms.is_cache() {
            return Ok(());
        }
        let quorums = snapshot.quorums();
        let owned: Vec<Slot> = transition
            .target
            .iter()
            .map(|change| change.slot)
            .filter(|slot| {
                let sets = snapshot.sets(*slot);
                // Whoever must hold everything up to J is told what J is.
                let asked = sets.gainers().next().is_some() || sets.stayers_must_prove(quorums);
                sets.owner() == Some(own) && asked
            })
            .collect();
        let positions = self.positions(owned.clone()).await?;
        let session = SessionId::from(transition.id);
        for (slot, position) in owned.into_iter().zip(positions) {
            self.shared
                .board
                .stand(session, slot, |standing| standing.joint = Some(position));
        }
        Ok(())
    }

    async fn positions(&mut self, slots: Vec<Slot>) -> Result<Vec<Position>, StepError> {
        let read = move |store: &dyn crate::store::RangeStore| {
            slots
                .iter()
                .map(|slot| store.last_position(*slot))
                .collect()
        };
        Ok(self.shared.store.call(read).await?)
    }

    /// Starts and ends the work of the running session, and opens its staging copies.
    async fn reconcile(&mut self) -> Result<(), StepError> {
        let Some(Current { view, own }) = self.current.clone() else {
            return Ok(());
        };
        let transition = &view.lookup.snapshot().transition;
        let session = transition
            .as_ref()
            .map(|transition| SessionId::from(transition.id));
        let step = transition.as_ref().map(|transition| transition.step);
        if session != self.session {
            self.work.close_session().await;
            self.shared.board.session(session);
            self.session = session;
        }
        let held = self.held().await?;
        for over in held.sessions() {
            if Some(over) != session {
                self.gone.entry(over).or_insert(view.epoch());
            }
        }
        if let (Some(session), Some(own), Some(step)) = (session, own, step)
            && step < Step::Switched
        {
            let gained = plan::gained(&view, own);
            self.open(session, &gained, &held).await?;
        } else {
            self.work.close_session().await;
        }
        Ok(())
    }

    async fn open(
        &mut self,
        session: SessionId,
        gained: &[Slot],
        held: &Held,
    ) -> Result<(), StepError> {
        if gained.is_empty() {
            return Ok(());
        }
        let missing: Vec<Slot> = gained
            .iter()
            .copied()
            .filter(|slot| !held.staging.contains_key(&(session, *slot)))
            .collect();
        if !missing.is_empty() {
            // First: from now on an empty store is a loss.
            self.remember(|known| known.held = true).await?;
            let count = missing.len();
            self.shared
                .store
                .call(move |store| store.open_staging(session, 1, &missing))
                .await?;
            info!(%session, count, "staging opened");
        }
        for slot in gained {
            let holding = held.staging.get(&(session, *slot));
            self.work.gain(session, *slot, holding, held.kept(*slot));
        }
        Ok(())
    }
}

/// The future's output once it is there; never, without one. The caller clears the place.
async fn ready<T>(wait: &mut Option<Wait<T>>) -> T {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}
