//! A data node as a server: one port for clients, replication and the movement of ranges.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use annulus_agent::{Agent, AgentConfig, AgentError, AgentStatus, EpochGuard};
use annulus_ring::{Endpoint, NameError};
use axum::{
    Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::get,
};
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{
    service::RoutesBuilder,
    transport::{self, server::TcpIncoming},
};

use crate::{
    config::KvConfig,
    limits::MAX_MESSAGE_BYTES,
    node::{Node, Settings},
    pb::{kv_server::KvServer, replica_server::ReplicaServer},
    replica::ReplicaService,
    service::KvService,
    store::{OpenError, Store, StoreFault},
};

/// Streams of one connection: a client that opens more waits.
const MAX_STREAMS: u32 = 1_024;

/// How long a stopping node waits for requests under way: they were told to end.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Why a data node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store did not open.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The agent did not start.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The address is taken, or not this machine's.
    #[error("listen on {address}: {source}")]
    Listen {
        /// The address as given.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The address listened on is no endpoint that others could use.
    #[error("listening on {address}, which others cannot reach; set advertise ({source})")]
    Advertise {
        /// The address listened on.
        address: SocketAddr,
        /// Why it is no endpoint.
        source: NameError,
    },
    /// The address names no machine: 0.0.0.0 or the like.
    #[error("listening on {address}, which names no machine to others; set advertise")]
    Unspecified {
        /// The address listened on.
        address: SocketAddr,
    },
}

/// A running data node. [`Server::shutdown`] stops it; dropped, it stops in the background.
pub struct Server {
    address: SocketAddr,
    node: Arc<Node>,
    agent: Agent,
    registry: Arc<Mutex<Registry>>,
    stop: CancellationToken,
    serving: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the store, listens, and begins to look for a leader. Until the ring names this node,
    /// requests are refused by name.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: KvConfig) -> Result<Self, StartError> {
        let listen = |address| async move {
            let listening = TcpListener::bind(address).await;
            let listening = listening.and_then(|listener| Ok((listener.local_addr()?, listener)));
            listening.map_err(|source| StartError::Listen { address, source })
        };
        let (address, listener) = listen(config.listen).await?;
        let endpoint = match &config.advertise {
            Some(endpoint) => endpoint.clone(),
            None if address.ip().is_unspecified() => {
                return Err(StartError::Unspecified { address });
            }
            None => Endpoint::new(address.to_string())
                .map_err(|source| StartError::Advertise { address, source })?,
        };
        let metrics_listener = match config.metrics_listen {
            Some(address) => Some(listen(address).await?.1),
            None => None,
        };
        let store = Store::open(&config.dir)?;
        if !config.replicate_delay().is_zero() {
            store.take_repairs_late(config.replicate_delay());
        }
        let agent = agent_config(&config, endpoint.clone());
        let agent = Agent::start(agent, Arc::new(store.clone()))?;
        let repairer = agent.repairer();
        let settings = Settings {
            dial: config.dial.clone(),
            endpoint: Some(endpoint),
            replicate_delay: config.replicate_delay(),
            repair: Some(Box::new(move |slot| repairer.needs_repair(slot))),
        };
        let node = Node::start(agent.guard(), store, settings);
        let mut registry = Registry::default();
        agent.metrics().register(&mut registry);
        node.metrics.register(&node.store.stats(), &mut registry);
        let registry = Arc::new(Mutex::new(registry));

        let stop = CancellationToken::new();
        let mut routes = routes(&node);
        routes.add_service(agent.peer_service());
        let mut serving = vec![serve(routes, listener, stop.clone())];
        if let Some(listener) = metrics_listener {
            let metrics = (node.clone(), registry.clone());
            let router = Router::new()
                .route("/metrics", get(show_metrics))
                .with_state(metrics);
            let stopped = stop.clone().cancelled_owned();
            serving.push(tokio::spawn(async move {
                if let Err(error) = axum::serve(listener, router)
                    .with_graceful_shutdown(stopped)
                    .await
                {
                    tracing::error!(%error, "the metrics server ended");
                }
            }));
        }
        tracing::info!(node = %config.node_id, ring = %config.ring, %address, "data node started");
        Ok(Self {
            address,
            node,
            agent,
            registry,
            stop,
            serving,
        })
    }

    /// The address listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What judges requests here, and its view.
    #[must_use]
    pub fn guard(&self) -> EpochGuard {
        self.agent.guard()
    }

    /// The node's store, to look into.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.node.store
    }

    /// How the agent stands.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.agent.status()
    }

    /// How the agent stands, with changes.
    #[must_use]
    pub fn watch_status(&self) -> tokio::sync::watch::Receiver<AgentStatus> {
        self.agent.watch_status()
    }

    /// All counters of this node, in the text format that `/metrics` serves.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        encode(&self.node, &self.registry)
    }

    /// Done when the storage engine failed: the process should end with this as its last word,
    /// and recover when it is started again.
    pub async fn failed(&self) -> StoreFault {
        self.node.store.failed().await
    }

    /// Takes no more requests, ends those that run, stops the agent, closes the store.
    pub async fn shutdown(self) {
        self.node.begin_stop();
        self.stop.cancel();
        for task in self.serving {
            // A handler that panicked was reported by the runtime.
            drop(task.await);
        }
        self.agent.shutdown().await;
        self.node.stop().await;
    }
}

fn agent_config(config: &KvConfig, endpoint: Endpoint) -> AgentConfig {
    let mut agent = AgentConfig::new(
        config.dir.join("agent"),
        config.ring.clone(),
        config.node_id.clone(),
        endpoint,
        config.zone.clone(),
        config.weight,
        config.control.clone(),
    );
    agent.copy_limits = config.copy_limits;
    agent.dial = config.dial.clone();
    agent
}

/// The services of the data path.
pub(crate) fn routes(node: &Arc<Node>) -> RoutesBuilder {
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(
            KvServer::new(KvService(node.clone()))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            ReplicaServer::new(ReplicaService(node.clone()))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
    routes
}

/// Serves until `stop`; then takes no more, and gives what is under way a moment to end.
pub(crate) fn serve(
    routes: RoutesBuilder,
    listener: TcpListener,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let server = transport::Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .add_routes(routes.routes());
    tokio::spawn(async move {
        // An answer is several small packets: with Nagle's algorithm each would wait for an ack.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = server.serve_with_incoming_shutdown(incoming, stop.cancelled());
        let patience = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        tokio::select! {
            biased;
            served = serving => {
                if let Err(error) = served {
                    tracing::error!(%error, "the server ended");
                }
            }
            () = patience => tracing::warn!("requests were still under way when the node stopped"),
        }
    })
}

type Metrics = (Arc<Node>, Arc<Mutex<Registry>>);

async fn show_metrics(State((node, registry)): State<Metrics>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], encode(&node, &registry))
}

fn encode(node: &Node, registry: &Mutex<Registry>) -> String {
    node.measure();
    let mut text = String::new();
    let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("writing to a string cannot fail");
    text
}
