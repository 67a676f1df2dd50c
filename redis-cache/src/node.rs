//! The process beside one server: an agent, and the service that other nodes copy from.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use annulus_agent::{Agent, AgentConfig, AgentError, AgentStatus};
use annulus_ring::{Endpoint, NameError, NodeId, RingName, Weight, Zone};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::transport::{self, server::TcpIncoming};

use crate::store::{OpenError, RedisStore};

/// Settings of one node.
#[derive(Clone, Debug)]
pub struct RedisNodeConfig {
    /// Where it keeps which copies it holds; made when missing. One directory, one server.
    pub dir: PathBuf,
    /// The ring, a cache ring.
    pub ring: RingName,
    /// This node's name, for life.
    pub node_id: NodeId,
    /// Its failure domain.
    pub zone: Zone,
    /// Its share; 0 owns nothing.
    pub weight: Weight,
    /// Where other nodes reach the agent; port 0 takes a free one. Not the server's address.
    pub listen: SocketAddr,
    /// The server beside it: `host:port` or a `redis://` URL.
    pub server: String,
    /// Servers of the control plane; at least one.
    pub control: Vec<Endpoint>,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The file of copies, or the server's address.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The agent's directory or settings.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The address to listen on.
    #[error("listen on {address}: {source}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others cannot dial it.
    #[error("address {address}: {source}")]
    Address {
        /// As listened on.
        address: SocketAddr,
        /// What is wrong with it.
        source: NameError,
    },
}

/// A running node. [`RedisNode::shutdown`] stops it.
#[derive(Debug)]
pub struct RedisNode {
    agent: Agent,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl RedisNode {
    /// Opens the store, listens, and begins to look for a leader. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: RedisNodeConfig) -> Result<Self, StartError> {
        let listen = |source| StartError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let endpoint = Endpoint::new(address.to_string())
            .map_err(|source| StartError::Address { address, source })?;
        let store = RedisStore::open(&config.dir, &config.server)?;
        let agent = AgentConfig::new(
            config.dir.join("agent"),
            config.ring,
            config.node_id,
            endpoint,
            config.zone,
            config.weight,
            config.control,
        );
        let agent = Agent::start(agent, Arc::new(store.clone()))?;
        store.follow(agent.guard());
        let stop = CancellationToken::new();
        let server = transport::Server::builder().add_service(agent.peer_service());
        let stopped = stop.clone();
        let serving = tokio::spawn(async move {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let serving = server.serve_with_incoming_shutdown(incoming, stopped.cancelled());
            if let Err(error) = serving.await {
                tracing::error!(%error, "the server ended");
            }
        });
        Ok(Self {
            agent,
            stop,
            serving,
        })
    }

    /// How the agent stands.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.agent.status()
    }

    /// Stops serving copies, then the agent; the server beside it goes on serving clients.
    pub async fn shutdown(self) {
        self.stop.cancel();
        // A handler that panicked was reported by the runtime.
        drop(self.serving.await);
        self.agent.shutdown().await;
    }
}
