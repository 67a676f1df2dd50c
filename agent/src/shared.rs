//! What all parts of one agent share.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    num::NonZeroU64,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use annulus_proto::{MAX_MESSAGE_BYTES, v1::peer_client::PeerClient};
use annulus_ring::{Endpoint, NodeId, Slot};
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::{
    agent::AgentStatus,
    board::Board,
    config::AgentConfig,
    guard::EpochGuard,
    identity::IdentityFile,
    metrics::Metrics,
    store::{RangeStore, StoreError},
    throttle::Throttles,
    wire::Directive,
};

/// Read transactions that this node keeps open for others at once.
const SERVED_AT_ONCE: usize = 16;
/// Copies digested at once.
const SCANS_AT_ONCE: usize = 2;

/// The leader that the open link leads to.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub endpoint: Endpoint,
    pub channel: Channel,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub config: AgentConfig,
    pub identity: IdentityFile,
    pub store: StoreHandle,
    pub guard: EpochGuard,
    pub board: Board,
    pub metrics: Arc<Metrics>,
    pub throttles: Throttles,
    /// Limits copies per source.
    pulls: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
    channels: Mutex<BTreeMap<Endpoint, Channel>>,
    pub serving: Arc<Semaphore>,
    pub scans: Semaphore,
    /// The newest directive whose epoch this node has adopted.
    pub directive: watch::Sender<Arc<Directive>>,
    pub leader: watch::Sender<Option<Leader>>,
    /// Live copies that the store asked to have repaired.
    wanted: Mutex<BTreeSet<Slot>>,
    pub wanted_changed: Notify,
    /// The node was a member and no longer is: the link says Hello again.
    pub rejected: Notify,
    pub status: watch::Sender<AgentStatus>,
    pub stop: CancellationToken,
    pub coordinates: Coordinates,
}

impl Shared {
    pub(crate) fn new(
        config: AgentConfig,
        identity: IdentityFile,
        store: Arc<dyn RangeStore>,
        guard: EpochGuard,
        metrics: Arc<Metrics>,
    ) -> Self {
        let known = identity.get();
        let board = Board::default();
        board.adopted(known.adopted);
        board.limit(config.copy_limits.bytes_in.map_or(0, NonZeroU64::get));
        let status = AgentStatus {
            incarnation: known.incarnation,
            adopted: known.adopted,
            ..AgentStatus::default()
        };
        Self {
            throttles: Throttles::new(config.copy_limits),
            identity,
            store: StoreHandle::new(store),
            guard,
            board,
            metrics,
            pulls: Mutex::default(),
            channels: Mutex::default(),
            serving: Arc::new(Semaphore::new(SERVED_AT_ONCE)),
            scans: Semaphore::new(SCANS_AT_ONCE),
            directive: watch::Sender::default(),
            leader: watch::Sender::new(None),
            wanted: Mutex::default(),
            wanted_changed: Notify::new(),
            rejected: Notify::new(),
            status: watch::Sender::new(status),
            stop: CancellationToken::new(),
            coordinates: Coordinates::default(),
            config,
        }
    }

    /// A client of another data node; connects at its first call.
    pub(crate) fn peer(
        &self,
        endpoint: &Endpoint,
    ) -> Result<PeerClient<Channel>, annulus_client::DialError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(endpoint) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.config.dial.channel(endpoint)?;
                channels.insert(endpoint.clone(), channel.clone());
                channel
            }
        };
        Ok(PeerClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// Keeps channels to the ring's present endpoints only.
    pub(crate) fn forget_channels(&self, keep: impl Fn(&Endpoint) -> bool) {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|endpoint, _| keep(endpoint));
    }

    /// The limit on copies from one source.
    pub(crate) fn pulls_from(&self, source: &NodeId) -> Arc<Semaphore> {
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.config.pulls_per_source.get();
        pulls
            .entry(source.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(most)))
            .clone()
    }

    pub(crate) fn want_repair(&self, slot: Slot) {
        self.wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(slot);
        self.wanted_changed.notify_one();
    }

    pub(crate) fn take_wanted(&self) -> BTreeSet<Slot> {
        std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How keys find their slots, as a thing to hold on to: whoever names a slot in more than one step
/// holds it, so that between two steps the name does not become another slot's.
///
/// ```text
///   hold() --> Held: names stay           change() --> nobody holds; no call of the store runs
///     '-- over(): give up, or they wait for you
/// ```
#[derive(Debug, Default)]
pub(crate) struct Coordinates {
    names: Arc<RwLock<()>>,
    over: Mutex<CancellationToken>,
}

/// While this lives, slots keep their names.
#[derive(Debug)]
pub(crate) struct Held {
    _names: OwnedRwLockReadGuard<()>,
    over: CancellationToken,
}

impl Held {
    /// What is to be left half done when the names change.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }
}

impl Coordinates {
    /// Waits while they change.
    pub(crate) async fn hold(&self) -> Held {
        let names = self.names.clone().read_owned().await;
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        Held {
            _names: names,
            over: over.clone(),
        }
    }

    /// Runs `work` for as long as names stay; none if they changed first. `work` may be left at any
    /// await, and a call of the store that it made is waited for by whoever changes them.
    pub(crate) async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let held = self.hold().await;
        held.over.run_until_cancelled(work).await
    }

    /// Has everybody let go, and keeps them out while the answer lives.
    pub(crate) async fn change(&self) -> OwnedRwLockWriteGuard<()> {
        let next = CancellationToken::new();
        let over = std::mem::replace(
            &mut *self.over.lock().unwrap_or_else(PoisonError::into_inner),
            next,
        );
        over.cancel();
        self.names.clone().write_owned().await
    }
}

/// The store, called on blocking threads.
#[derive(Clone)]
pub(crate) struct StoreHandle {
    store: Arc<dyn RangeStore>,
    /// Held by every call while it runs, also when nobody waits for it any more.
    calls: Arc<RwLock<()>>,
}

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreHandle")
    }
}

fn answer<T>(
    joined: Result<Result<T, StoreError>, tokio::task::JoinError>,
) -> Result<T, StoreError> {
    joined.unwrap_or_else(|error| {
        Err(StoreError::Backend {
            doing: "run a call of the store",
            source: error.into(),
        })
    })
}

impl StoreHandle {
    fn new(store: Arc<dyn RangeStore>) -> Self {
        Self {
            store,
            calls: Arc::default(),
        }
    }

    /// Runs one call (or several) on a blocking thread.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn RangeStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (store, running) = (self.store.clone(), self.calls.clone().read_owned().await);
        let call = move || {
            let _running = running;
            call(&*store)
        };
        answer(tokio::task::spawn_blocking(call).await)
    }

    /// The same, while no other call runs.
    pub(crate) async fn call_alone<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn RangeStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (store, alone) = (self.store.clone(), self.calls.clone().write_owned().await);
        let call = move || {
            let _alone = alone;
            call(&*store)
        };
        answer(tokio::task::spawn_blocking(call).await)
    }

    /// For calls that name no slot.
    pub(crate) fn inner(&self) -> Arc<dyn RangeStore> {
        self.store.clone()
    }

    /// For calls on a blocking thread of the caller's own: the store, and what to keep until they are
    /// over.
    pub(crate) async fn borrow(&self) -> (Arc<dyn RangeStore>, OwnedRwLockReadGuard<()>) {
        (self.store.clone(), self.calls.clone().read_owned().await)
    }
}

/// Pauses that double from `first` to `last`, drawn at random below that.
#[derive(Debug)]
pub(crate) struct Pauses {
    first: Duration,
    last: Duration,
    ceiling: Duration,
}

impl Pauses {
    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self {
            first,
            last,
            ceiling: first,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let ceiling = self.ceiling;
        self.ceiling = (ceiling * 2).min(self.last);
        // Half fixed, half drawn: nobody hammers, and a crowd that failed together spreads.
        ceiling / 2 + ceiling.mul_f64(fastrand::f64() / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.ceiling = self.first;
    }
}
