//! One data node: what its services and tasks share.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use annulus_agent::guard::EpochGuard;
use annulus_client::Dial;
use annulus_ring::{Endpoint, Epoch, NodeId, Slot};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{channels::Channels, lane::Lanes, metrics::Metrics, peers::Link, store::Store};

/// Settings of the data path.
#[derive(Default)]
pub(crate) struct Settings {
    /// How connections to other nodes are made.
    pub dial: Dial,
    /// Where this node listens, as it told the control plane.
    pub endpoint: Option<Endpoint>,
    /// For tests: how much later this node answers that it stored replicated writes.
    pub replicate_delay: Duration,
    /// Told of live copies with a hole.
    pub repair: Option<Repair>,
}

/// Asks for the repair of a slot's live copy.
pub(crate) type Repair = Box<dyn Fn(Slot) + Send + Sync>;

/// Why something was not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Late {
    #[error("before the deadline")]
    Deadline,
    #[error("before this node stopped")]
    Stopping,
}

/// One data node's data path, without its server and its agent.
pub(crate) struct Node {
    pub guard: EpochGuard,
    pub store: Store,
    pub settings: Settings,
    pub channels: Channels,
    pub lanes: Lanes,
    pub metrics: Metrics,
    /// Writes not acknowledged yet.
    pub pending: AtomicUsize,
    links: RwLock<HashMap<NodeId, Arc<Link>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    runtime: tokio::runtime::Handle,
}

impl Node {
    /// Starts the node's tasks on the present runtime.
    pub fn start(guard: EpochGuard, store: Store, settings: Settings) -> Arc<Self> {
        let node = Arc::new(Self {
            guard,
            store,
            channels: Channels::new(settings.dial.clone()),
            settings,
            lanes: Lanes::default(),
            metrics: Metrics::default(),
            pending: AtomicUsize::new(0),
            links: RwLock::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            runtime: tokio::runtime::Handle::current(),
        });
        node.spawn(node.clone().follow());
        node
    }

    /// The epoch that requests are judged by now.
    pub fn epoch(&self) -> Epoch {
        self.guard.view().epoch()
    }

    /// Runs a task until the node is stopped. Also from threads of no runtime.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// The queue and questions of a peer; its tasks start with the first use.
    pub fn link(self: &Arc<Self>, peer: &NodeId) -> Arc<Link> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(peer) {
            return link.clone();
        }
        drop(links);
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(peer) {
            return link.clone();
        }
        let link = Link::new(peer.clone());
        links.insert(peer.clone(), link.clone());
        self.spawn(self.clone().replicate(link.clone()));
        self.spawn(self.clone().question(link.clone()));
        link
    }

    /// Waits for `work`, but not beyond the deadline nor the node's end.
    pub async fn wait<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Late> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.stop.cancelled() => Err(Late::Stopping),
            () = tokio::time::sleep_until(deadline) => Err(Late::Deadline),
        }
    }

    /// Brings the gauges up to date.
    pub fn measure(&self) {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        let backlog: usize = links.values().map(|link| link.backlog()).sum();
        self.metrics
            .backlog
            .set(i64::try_from(backlog).unwrap_or(i64::MAX));
        let pending = self.pending.load(Ordering::Relaxed);
        self.metrics
            .pending
            .set(i64::try_from(pending).unwrap_or(i64::MAX));
    }

    /// Tells tasks and waiting requests to end.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Ends the tasks and forgets pending writes, whose outcomes stay unknown.
    pub async fn stop(&self) {
        self.begin_stop();
        self.tasks.close();
        self.tasks.wait().await;
        // Lanes and writes point at each other, and writes at the store.
        for lane in self.lanes.all() {
            lane.close();
        }
        self.links
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
