//! Settings of one data node.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use annulus_agent::CopyLimits;
use annulus_client::Dial;
use annulus_ring::{Endpoint, NodeId, RingName, Weight, Zone};

/// Everything a data node must be told. [`KvConfig::new`] fills in the defaults.
#[derive(Clone, Debug)]
pub struct KvConfig {
    /// Data directory; made when missing. One node, one ring, one directory.
    pub dir: PathBuf,
    /// Where to listen, for clients and for other nodes. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// How others reach this node. Default: the address listened on. Set it where that one is not
    /// reachable from outside, such as behind 0.0.0.0.
    pub advertise: Option<Endpoint>,
    /// The ring to serve.
    pub ring: RingName,
    /// This node's name, for life.
    pub node_id: NodeId,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
    /// Servers of the control plane, any of them; at least one.
    pub control: Vec<Endpoint>,
    /// Where `/metrics` is served over HTTP. Default: nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// How fast ranges move through this node.
    pub copy_limits: CopyLimits,
    /// How connections are made.
    pub dial: Dial,
    /// For tests: how many ms later this node takes in what is replicated to it, or fetched by it
    /// for a copy that was complete. Default 0.
    #[doc(hidden)]
    pub replicate_delay_ms: u64,
}

impl KvConfig {
    /// The defaults around what only the caller knows; weight 100.
    #[must_use]
    pub fn new(
        dir: PathBuf,
        listen: SocketAddr,
        ring: RingName,
        node_id: NodeId,
        zone: Zone,
        control: Vec<Endpoint>,
    ) -> Self {
        Self {
            dir,
            listen,
            advertise: None,
            ring,
            node_id,
            zone,
            weight: Weight::new(100).expect("100 is below the largest weight"),
            control,
            metrics_listen: None,
            copy_limits: CopyLimits::default(),
            dial: Dial::default(),
            replicate_delay_ms: 0,
        }
    }

    pub(crate) fn replicate_delay(&self) -> Duration {
        Duration::from_millis(self.replicate_delay_ms)
    }
}
