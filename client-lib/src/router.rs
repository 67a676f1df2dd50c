//! Sends a request where the ring says, and again where it says after a refresh.

use std::{
    future::Future,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use annulus_ring::{Endpoint, Epoch, Generation, NodeId, RingName, Slot};
use tokio::time::{Instant, timeout_at};

use crate::{
    client::Client,
    deadline::Deadline,
    error::{BoxError, Error},
};

mod failed;
mod trip;

use failed::FailedNodes;
use trip::Trip;

/// What every data request carries, so that a node can judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which ring.
    pub ring: RingName,
    /// Rises when a backup is restored.
    pub generation: Generation,
    /// The epoch that the request was routed by.
    pub epoch: Epoch,
    /// Hops so far: 1 straight from the ring, 2 on a node's word. A node that passes a request
    /// on adds one, and passes on none that has two.
    pub hops: u8,
}

/// Where one attempt goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whom to ask.
    pub node_id: NodeId,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The slot of the key.
    pub slot: Slot,
    /// What to send along.
    pub stamp: Stamp,
    /// When this attempt is given up.
    pub deadline: Instant,
}

/// What an attempt came to, other than an answer. The user's protocol is translated to this.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The node judged the request to be of an older epoch than its range's last change.
    #[error("stale: the node is at epoch {epoch}")]
    Stale {
        /// The node's epoch.
        epoch: Epoch,
    },
    /// The node waited for our epoch and has not got it yet.
    #[error("the node is still at epoch {epoch}")]
    Behind {
        /// The node's epoch.
        epoch: Epoch,
    },
    /// The range is being handed over; soon there is an owner again.
    #[error("the range is sealed")]
    Sealed,
    /// The node does not serve this key.
    #[error("not the owner at epoch {epoch}")]
    NotOwner {
        /// The node's epoch.
        epoch: Epoch,
        /// Who it thinks is. A hint: the ring is asked first.
        owner: Option<NodeId>,
    },
    /// The node was not reached, or said that it did nothing. Safe to try again.
    #[error("unavailable: {0}")]
    Unavailable(BoxError),
    /// It may have been done: sent, and not answered. Tried again only if that is harmless.
    #[error("outcome unknown: {0}")]
    Unknown(BoxError),
    /// The node's final answer.
    #[error("{0}")]
    Failed(BoxError),
}

/// Which member of a key's list a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The owner: writes and exact reads.
    #[default]
    Owner,
    /// Any member of the read set, at random; those that are down, or failed lately, last.
    Any,
}

/// What kind of request it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallKind {
    /// Who may answer it.
    pub reach: Reach,
    /// Whether doing it twice is harmless. Default no: after [`CallError::Unknown`] it is not
    /// sent again.
    pub repeatable: bool,
}

/// Bounds of one routed request.
#[derive(Clone, Copy, Debug)]
pub struct RouterConfig {
    /// Most attempts. Default 8. Raise it for long deadlines; the price is load on nodes that
    /// refuse.
    pub max_tries: NonZeroU32,
    /// Ceilings of the pauses between attempts: first and largest. Default 10 ms and 500 ms.
    pub pause: (Duration, Duration),
    /// Longest wait for an epoch that a node claims to have. Default 1 s. A ring that cannot be
    /// refreshed costs this once per request.
    pub refresh_wait: Duration,
    /// How requests of [`Router::call`] are treated.
    pub kind: CallKind,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            max_tries: NonZeroU32::new(8).expect("8 is not 0"),
            pause: (Duration::from_millis(10), Duration::from_millis(500)),
            refresh_wait: Duration::from_secs(1),
            kind: CallKind::default(),
        }
    }
}

/// What a router did since it was made, all clones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Requests begun.
    pub requests: u64,
    /// Requests that were sent a second time.
    pub retried: u64,
    /// Attempts in all.
    pub tries: u64,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    retried: AtomicU64,
    tries: AtomicU64,
}

/// Routes requests by a [`Client`]. Cheap to clone; clones share the memory of failed nodes and the
/// counts.
#[derive(Clone, Debug)]
pub struct Router {
    client: Client,
    config: RouterConfig,
    failed: Arc<FailedNodes>,
    counts: Arc<Counts>,
}

impl Router {
    /// A router over `client`.
    #[must_use]
    pub fn new(client: Client, config: RouterConfig) -> Self {
        Self {
            client,
            config,
            failed: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// How many requests and attempts there were; a few loads.
    #[must_use]
    pub fn stats(&self) -> RouterStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RouterStats {
            requests: read(&self.counts.requests),
            retried: read(&self.counts.retried),
            tries: read(&self.counts.tries),
        }
    }

    /// The client that says where.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a request of the configured kind; see [`Router::call_as`].
    ///
    /// # Errors
    /// As [`Router::call_as`].
    pub async fn call<T, F, Fut>(
        &self,
        key: &[u8],
        deadline: impl Into<Deadline>,
        attempt: F,
    ) -> Result<T, Error>
    where
        F: FnMut(Target) -> Fut,
        Fut: Future<Output = Result<T, CallError>>,
    {
        self.call_as(self.config.kind, key, deadline, attempt).await
    }

    /// Makes a request: `attempt` is called with one target after another until it answers, the
    /// answer is final, tries run out or the deadline comes.
    ///
    /// An attempt of a repeatable request is cut off early enough to ask the other members
    /// that may answer; every attempt is cut off at the deadline. A cut attempt counts as
    /// [`CallError::Unknown`].
    ///
    /// # Errors
    /// [`Error::Lookup`] without a route; else by the last answer, with both epochs:
    /// [`Error::Stale`], [`Error::Behind`], [`Error::Sealed`], [`Error::Unavailable`],
    /// [`Error::Failed`]; [`Error::Unknown`] when any attempt may have been carried out.
    pub async fn call_as<T, F, Fut>(
        &self,
        kind: CallKind,
        key: &[u8],
        deadline: impl Into<Deadline>,
        mut attempt: F,
    ) -> Result<T, Error>
    where
        F: FnMut(Target) -> Fut,
        Fut: Future<Output = Result<T, CallError>>,
    {
        let deadline = deadline.into();
        let mut trip = Trip::new(self, kind, deadline);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        loop {
            let target = trip.target(key).await?;
            trip.tries += 1;
            self.counts.tries.fetch_add(1, Ordering::Relaxed);
            if trip.tries == 2 {
                self.counts.retried.fetch_add(1, Ordering::Relaxed);
            }
            let made = timeout_at(target.deadline, attempt(target.clone())).await;
            let error = match made {
                Ok(Ok(answer)) => {
                    self.failed.forgive(&target.node_id);
                    return Ok(answer);
                }
                Ok(Err(error)) => error,
                Err(_) => CallError::Unknown("no answer in the time that it had".into()),
            };
            trip.go_on(target, error).await?;
        }
    }
}
