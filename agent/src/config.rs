//! Settings of one agent.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use annulus_client::Dial;
use annulus_ring::{Endpoint, NodeId, RingName, Weight, Zone};

/// Everything an agent must be told. [`AgentConfig::new`] fills in the defaults.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The agent's own directory, beside the store's data and on the same disk: it says whose
    /// data that is. Made when missing. One agent, one ring, one directory.
    pub dir: PathBuf,
    /// The ring to serve.
    pub ring: RingName,
    /// This node's name, for life.
    pub node_id: NodeId,
    /// Where clients and other nodes reach this node. A new one is announced at the next link.
    pub endpoint: Endpoint,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
    /// Servers of the control plane, any of them, in any order; at least one.
    pub control: Vec<Endpoint>,
    /// How fast ranges move through this node.
    pub copy_limits: CopyLimits,
    /// Ranges copied from one source at once. Default 4. More fills long links better and costs
    /// the source a read transaction each.
    pub pulls_per_source: NonZeroUsize,
    /// How often the leader is told that this node lives. Default 1 s.
    pub renew: Duration,
    /// How long the link may be silent before another server is tried. Default 5 s; must be
    /// longer than `renew`.
    pub silence: Duration,
    /// How long changes are gathered before they are reported. Default 50 ms.
    pub debounce: Duration,
    /// How often live copies are looked at for holes. Default 1 s.
    pub tend: Duration,
    /// How connections are made.
    pub dial: Dial,
}

/// How fast ranges move through one node, in payload bytes a second; none = as fast as it goes. Lower
/// limits spare serving traffic, at the price of longer transitions. Copies alone are held back:
/// what repairs a copy that serves never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Copied in, over all sources.
    pub bytes_in: Option<NonZeroU64>,
    /// Given out to gainers, over all of them.
    pub bytes_out: Option<NonZeroU64>,
    /// Copied in from any one other zone. A limit for the link between two zones is this, times
    /// the nodes that gain in one of them.
    pub bytes_between_zones: Option<NonZeroU64>,
    /// Whether copies go slower, though never slower than 1 MiB a second each way, while writes and
    /// exact reads at this node take more than twice as long as when nothing moves. Default: yes.
    pub eases: bool,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self {
            bytes_in: None,
            bytes_out: None,
            bytes_between_zones: None,
            eases: true,
        }
    }
}

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nowhere to go.
    #[error("control is empty: name at least one server of the control plane")]
    NoControl,
    /// The link would be given up between two renewals.
    #[error("silence ({silence:?}) must be longer than renew ({renew:?})")]
    SilenceBeforeRenew {
        /// As given.
        silence: Duration,
        /// As given.
        renew: Duration,
    },
    /// A pause of nothing is a busy loop.
    #[error("{field} is 0: give a duration")]
    Zero {
        /// Which field.
        field: &'static str,
    },
}

impl AgentConfig {
    /// The defaults around what only the caller knows.
    #[must_use]
    pub fn new(
        dir: PathBuf,
        ring: RingName,
        node_id: NodeId,
        endpoint: Endpoint,
        zone: Zone,
        weight: Weight,
        control: Vec<Endpoint>,
    ) -> Self {
        Self {
            dir,
            ring,
            node_id,
            endpoint,
            zone,
            weight,
            control,
            copy_limits: CopyLimits::default(),
            pulls_per_source: NonZeroUsize::new(4).expect("4 is not 0"),
            renew: Duration::from_secs(1),
            silence: Duration::from_secs(5),
            debounce: Duration::from_millis(50),
            tend: Duration::from_secs(1),
            dial: Dial::default(),
        }
    }

    /// Whether the settings go together.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.control.is_empty() {
            return Err(ConfigError::NoControl);
        }
        for (field, value) in [("renew", self.renew), ("tend", self.tend)] {
            if value.is_zero() {
                return Err(ConfigError::Zero { field });
            }
        }
        let (silence, renew) = (self.silence, self.renew);
        if silence <= renew {
            return Err(ConfigError::SilenceBeforeRenew { silence, renew });
        }
        Ok(())
    }
}
