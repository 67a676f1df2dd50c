//! What every call and every loop of one server works with.

use std::{sync::Arc, time::Duration};

use annulus_ring::{Endpoint, Epoch, RingName};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    clock::{Clock, whole_ms},
    links::Links,
    metrics::Metrics,
    publish::{hub::Hub, watchers::Watchers},
    raft::{Dial, Node},
};

/// Shared by the services, the hub's task and the driver.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    /// Where others reach this server.
    pub(crate) endpoint: Endpoint,
    pub(crate) node: Node,
    pub(crate) dial: Dial,
    pub(crate) clock: Clock,
    pub(crate) hub: Hub,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) links: Arc<Links>,
    pub(crate) metrics: Metrics,
    /// The server ends.
    pub(crate) stop: CancellationToken,
}

impl Context {
    /// How long this server has not known that its state is the cluster's. A server that never
    /// knew counts from its start.
    pub(crate) fn behind(&self) -> Duration {
        self.node
            .last_heard()
            .unwrap_or_else(|| self.clock.elapsed())
    }

    /// The same in ms.
    pub(crate) fn behind_ms(&self) -> u64 {
        whole_ms(self.behind())
    }

    /// The other servers' endpoints, the leader's first.
    pub(crate) fn other_endpoints(&self) -> Vec<String> {
        let standing = self.node.standing();
        let leader = standing.leader.as_ref().map(|leader| leader.id);
        let mut others: Vec<_> = standing
            .servers
            .iter()
            .filter(|(id, _)| **id != standing.server_id)
            .collect();
        others.sort_by_key(|(id, _)| (Some(**id) != leader, **id));
        others
            .into_iter()
            .map(|(_, server)| server.endpoint.clone())
            .collect()
    }

    /// The ring's newest epoch here.
    pub(crate) fn epoch(&self, ring: &RingName) -> Option<Epoch> {
        self.node
            .shared()
            .read(|state, _| state.rings.get(ring).map(|ring| ring.epoch))
    }
}
