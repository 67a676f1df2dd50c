//! The agent as the user's program holds it.

use std::sync::Arc;

use annulus_ring::{Endpoint, Epoch, Incarnation, Slot};
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use crate::{
    adopt::Adopter,
    config::{AgentConfig, ConfigError},
    guard::EpochGuard,
    identity::{IdentityError, IdentityFile},
    link::Link,
    metrics::Metrics,
    peer::{self, PeerServer},
    shared::Shared,
    store::RangeStore,
    terms, throttle,
    view::NodeView,
    work,
};

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The settings do not go together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its directory cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// How an agent stands, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// The life of the data; 0 = not registered yet.
    pub incarnation: Incarnation,
    /// The epoch adopted and drained, durably.
    pub adopted: Epoch,
    /// Whether the view of that epoch names this incarnation as a member.
    pub member: bool,
    /// The leader that the link is open to.
    pub linked_to: Option<Endpoint>,
    /// Why the control plane refused this node at the last try, if it did.
    pub refused: Option<String>,
}

/// A running agent. Stops when dropped; [`Agent::shutdown`] also waits.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

impl Agent {
    /// Opens the agent's directory and begins to look for a leader. Returns at once; requests are
    /// refused as `Behind` until the first view came. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`AgentError`]: the settings, or the directory (in use, damaged, another node's).
    pub fn start(config: AgentConfig, store: Arc<dyn RangeStore>) -> Result<Self, AgentError> {
        config.validate()?;
        let identity = IdentityFile::open(&config.dir, &config.ring, &config.node_id)?;
        let metrics = Arc::new(Metrics::default());
        let unknown = NodeView::unknown(config.ring.clone(), config.node_id.clone());
        let guard = EpochGuard::new(unknown, metrics.clone());
        let shared = Arc::new(Shared::new(config, identity, store, guard, metrics));
        let (views, new_views) = watch::channel(None);
        let (directives, new_directives) = watch::channel(None);
        let (orders, new_orders) = mpsc::channel(4);
        let tasks = TaskTracker::new();
        tasks.spawn(Adopter::new(shared.clone()).run(new_views, new_directives, new_orders));
        tasks.spawn(Link::new(shared.clone(), views, directives, orders).run());
        tasks.spawn(work::tend(shared.clone()));
        tasks.spawn(work::release(shared.clone()));
        tasks.spawn(work::weigh(shared.clone()));
        tasks.spawn(throttle::ease_off(shared.clone()));
        tasks.spawn(terms::notice_isolation(shared.clone()));
        tasks.spawn(terms::tell_hits(shared.clone()));
        tasks.close();
        Ok(Self { shared, tasks })
    }

    /// What judges every request; clone it into the store's services.
    #[must_use]
    pub fn guard(&self) -> EpochGuard {
        self.shared.guard.clone()
    }

    /// The service that other data nodes copy from; add it to the store's own server, at the
    /// endpoint of the configuration.
    #[must_use]
    pub fn peer_service(&self) -> PeerServer {
        peer::server(self.shared.clone())
    }

    /// The store saw a hole in the live copy of a slot: it is repaired soon.
    pub fn needs_repair(&self, slot: Slot) {
        self.shared.want_repair(slot);
    }

    /// The same, for the store's services to keep.
    #[must_use]
    pub fn repairer(&self) -> Repairer {
        Repairer {
            shared: self.shared.clone(),
        }
    }

    /// How it stands now.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.shared.status.borrow().clone()
    }

    /// How it stands, with changes.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<AgentStatus> {
        self.shared.status.subscribe()
    }

    /// Its counters; register them in the process's registry.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        self.shared.metrics.clone()
    }

    /// Stops, waits until its tasks are over, and frees the directory. Stop the server that holds
    /// the peer service first: a read that it still serves may go on for a moment.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.tasks.wait().await;
        self.shared.identity.unlock();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Asks the agent for repairs; cheap to clone.
#[derive(Clone, Debug)]
pub struct Repairer {
    shared: Arc<Shared>,
}

impl Repairer {
    /// The store saw a hole in the live copy of a slot: it is repaired soon.
    pub fn needs_repair(&self, slot: Slot) {
        self.shared.want_repair(slot);
    }
}
