//! What all parts of one agent share.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use annulus_proto::{MAX_MESSAGE_BYTES, v1::peer_client::PeerClient};
use annulus_ring::{Endpoint, NodeId, Slot};
use tokio::sync::{Notify, Semaphore, watch};
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
            store: StoreHandle(store),
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

/// The store, called on blocking threads.
#[derive(Clone)]
pub(crate) struct StoreHandle(Arc<dyn RangeStore>);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreHandle")
    }
}

impl StoreHandle {
    /// Runs one call (or several) on a blocking thread.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn RangeStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.0.clone();
        tokio::task::spawn_blocking(move || call(&*store))
            .await
            .unwrap_or_else(|error| {
                Err(StoreError::Backend {
                    doing: "run a call of the store",
                    source: error.into(),
                })
            })
    }

    pub(crate) fn inner(&self) -> Arc<dyn RangeStore> {
        self.0.clone()
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
