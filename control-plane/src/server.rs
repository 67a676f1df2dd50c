//! A running server: started from its configuration, stopped in order.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use annulus_proto::{
    MAX_MESSAGE_BYTES,
    v1::{admin_server::AdminServer, link_server::LinkServer, watch_server::WatchServer},
};
use axum::{Router, routing::get};
use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Connected, TcpIncoming};

use crate::{
    Config, ConfigError,
    api::{admin::Admin, agent::Link, watch::Watch},
    clock::Clock,
    context::Context,
    drive,
    links::Links,
    metrics::Metrics,
    publish::{hub::Hub, watchers::Watchers},
    raft::{self, Dial, Node, NodeConfig, Storage, WallClock},
};

/// A dead peer is noticed within these two together.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long open calls may take to end once the server stops.
const GOODBYE: Duration = Duration::from_secs(3);

/// What a server is given from outside, so that a simulation can give its own.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// Makes channels to the other servers.
    pub dial: Dial,
    /// Where the log lives; absent: in the configuration's `data_dir`.
    pub storage: Option<Storage>,
    /// Stamps entries.
    pub wall_clock: WallClock,
}

impl Default for Wiring {
    fn default() -> Self {
        Self {
            dial: Dial::tcp(),
            storage: None,
            wall_clock: WallClock::system(),
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; stop what listens there, or choose another")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The log cannot be opened.
    #[error(transparent)]
    Raft(#[from] raft::StartError),
}

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// Raft, its storage or the listener failed for good: the process must end, non-zero, with
    /// this as its last log line, so that a supervisor starts it again.
    Failed(String),
}

/// One running control-plane server.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    metrics_addr: Option<SocketAddr>,
    context: Arc<Context>,
    ended: watch::Receiver<Option<Ended>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on TCP. One that belongs to no cluster yet waits to be initialised.
    ///
    /// # Errors
    /// See [`StartError`]: each names the place and the remedy.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let address = config.listen;
        let listen = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        Self::start_with(config, Wiring::default(), incoming, local_addr).await
    }

    /// Starts a server on connections that come from elsewhere, such as a simulated network.
    /// `local_addr` is the address that they were made to.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start_with<I, IO>(
        config: Config,
        wiring: Wiring,
        incoming: I,
        local_addr: SocketAddr,
    ) -> Result<Self, StartError>
    where
        I: Stream<Item = io::Result<IO>> + Send + 'static,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        config.validate()?;
        let endpoint = config.endpoint(local_addr)?;
        let storage = wiring
            .storage
            .unwrap_or_else(|| Storage::Directory(config.data_dir.clone()));
        let node = Node::start(NodeConfig {
            dial: wiring.dial.clone(),
            wall_clock: wiring.wall_clock,
            snapshot_every: config.log.snapshot_every.get(),
            keep_log: config.log.keep_entries.get(),
            ..NodeConfig::new(config.server_id.get(), storage)
        })
        .await?;
        let context = Arc::new(Context {
            endpoint,
            hub: Hub::new(Arc::clone(node.shared())),
            node,
            dial: wiring.dial,
            clock: Clock::start(),
            watchers: Arc::new(Watchers::default()),
            links: Arc::new(Links::new(config.link.fresh_ms.get().into())),
            metrics: Metrics::new(),
            stop: CancellationToken::new(),
            config,
        });
        let (ending, ended) = watch::channel(None);
        let ending = Arc::new(ending);
        let mut tasks = Vec::new();
        let metrics_addr = match context.config.metrics_listen {
            Some(address) => {
                let (bound, task) = serve_metrics(&context, address).await?;
                tasks.push(task);
                Some(bound)
            }
            None => None,
        };
        tasks.push(tokio::spawn(serve(
            Arc::clone(&context),
            incoming,
            Arc::clone(&ending),
        )));
        tasks.push(tokio::spawn({
            let context = Arc::clone(&context);
            async move { context.hub.run(context.stop.clone()).await }
        }));
        tasks.push(tokio::spawn(drive::run(Arc::clone(&context))));
        tasks.push(tokio::spawn(watch_over(Arc::clone(&context), ending)));
        tracing::info!(
            server = context.config.server_id, listen = %local_addr,
            endpoint = %context.endpoint, "server is up"
        );
        Ok(Self {
            local_addr,
            metrics_addr,
            context,
            ended,
            tasks,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where it serves `/metrics`, if anywhere.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_addr
    }

    /// Its raft, for tests and for status of the process itself.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.context.node
    }

    /// What `/metrics` would answer.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.context.metrics.text(&self.context)
    }

    /// Comes back when the server has ended by itself or was asked to.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(how) => how.clone().unwrap_or(Ended::Stopped),
                Err(_) => Ended::Stopped,
            }
        }
    }

    /// Ends streams with a word, waits a little for open calls, and closes the log. When this
    /// returns the directory is unlocked.
    pub async fn shutdown(mut self) {
        self.context.stop.cancel();
        for mut task in std::mem::take(&mut self.tasks) {
            if tokio::time::timeout(GOODBYE, &mut task).await.is_err() {
                task.abort();
            }
        }
        self.context.node.shutdown().await;
        tracing::info!(server = self.context.config.server_id, "server is down");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is merely dropped must not go on serving, nor voting.
        self.context.stop.cancel();
        let dropped = !self.tasks.is_empty();
        if let (true, Ok(runtime)) = (dropped, tokio::runtime::Handle::try_current()) {
            let node = self.context.node.clone();
            runtime.spawn(async move { node.shutdown().await });
        }
    }
}

/// Serves every gRPC service until the server stops.
async fn serve<I, IO>(context: Arc<Context>, incoming: I, ending: Arc<watch::Sender<Option<Ended>>>)
where
    I: Stream<Item = io::Result<IO>> + Send + 'static,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    macro_rules! bounded {
        ($service:expr) => {
            $service
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES)
        };
    }
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(context.config.limits.streams_per_connection.get())
        .add_service(bounded!(AdminServer::new(Admin {
            context: Arc::clone(&context)
        })))
        .add_service(bounded!(WatchServer::new(Watch {
            context: Arc::clone(&context)
        })))
        .add_service(bounded!(LinkServer::new(Link {
            context: Arc::clone(&context)
        })))
        .add_service(context.node.service())
        .serve_with_incoming_shutdown(incoming, context.stop.clone().cancelled_owned())
        .await;
    if let Err(error) = served {
        fail(&context, &ending, format!("the listener failed: {error}"));
    }
}

/// Ends the server when its raft has ended.
async fn watch_over(context: Arc<Context>, ending: Arc<watch::Sender<Option<Ended>>>) {
    tokio::select! {
        biased;
        () = context.stop.cancelled() => end(&ending, Ended::Stopped),
        reason = context.node.fatal() => fail(&context, &ending, reason),
    }
}

fn fail(context: &Context, ending: &watch::Sender<Option<Ended>>, reason: String) {
    tracing::error!(server = context.config.server_id, reason, "server ends");
    end(ending, Ended::Failed(reason));
    context.stop.cancel();
}

/// The first end counts.
fn end(ending: &watch::Sender<Option<Ended>>, how: Ended) {
    ending.send_if_modified(|ended| {
        let first = ended.is_none();
        ended.get_or_insert(how);
        first
    });
}

async fn serve_metrics(
    context: &Arc<Context>,
    address: SocketAddr,
) -> Result<(SocketAddr, JoinHandle<()>), StartError> {
    let listen = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let read = Arc::clone(context);
    let page = move || async move {
        let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (
            [(http::header::CONTENT_TYPE, form)],
            read.metrics.text(&read),
        )
    };
    let router = Router::new().route("/metrics", get(page));
    let stop = context.stop.clone().cancelled_owned();
    let task = tokio::spawn(async move {
        let served = axum::serve(listener, router)
            .with_graceful_shutdown(stop)
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok((bound, task))
}
