//! A Watch server on loopback that says what the test tells it to.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annulus_client::Client;
use annulus_proto::v1;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status};

pub type Event = v1::watch_event::Event;
type Sent = Result<v1::WatchEvent, Status>;
type Greeting = dyn Fn(&v1::WatchRequest, usize) -> Vec<Event> + Send + Sync;

/// How long a test waits for what must happen.
const LONG: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct Stub {
    state: Arc<State>,
    address: SocketAddr,
    server: Arc<Server>,
}

struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct State {
    greeting: Box<Greeting>,
    requests: Mutex<Vec<v1::WatchRequest>>,
    streams: Mutex<Vec<mpsc::UnboundedSender<Sent>>>,
    reports: Mutex<Vec<v1::ReportAppliedRequest>>,
    knows_fork: AtomicBool,
}

impl Stub {
    /// Starts a server that answers the n-th watch (from 0) with `greeting`, then keeps the
    /// stream open.
    pub async fn start(
        greeting: impl Fn(&v1::WatchRequest, usize) -> Vec<Event> + Send + Sync + 'static,
    ) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").await.unwrap(), greeting)
    }

    /// The same, behind a port that was open before.
    pub fn listen(
        listener: TcpListener,
        greeting: impl Fn(&v1::WatchRequest, usize) -> Vec<Event> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            greeting: Box::new(greeting),
            requests: Mutex::default(),
            streams: Mutex::default(),
            reports: Mutex::default(),
            knows_fork: AtomicBool::new(false),
        });
        let service = v1::watch_server::WatchServer::new(Handler(Arc::clone(&state)));
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { serving.await.unwrap() });
        Self {
            state,
            address,
            server: Arc::new(Server(server)),
        }
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Sends to every open stream.
    pub fn send(&self, event: Event) {
        let sent = v1::WatchEvent { event: Some(event) };
        lock(&self.state.streams).retain(|stream| stream.send(Ok(sent.clone())).is_ok());
    }

    /// Ends every open stream.
    pub fn hang_up(&self) {
        lock(&self.state.streams).clear();
    }

    /// Takes no new connections and ends every stream.
    pub fn stop(&self) {
        self.server.0.abort();
        self.hang_up();
    }

    pub fn requests(&self) -> Vec<v1::WatchRequest> {
        lock(&self.state.requests).clone()
    }

    /// Epochs that watchers said they applied, in order.
    pub fn reported(&self) -> Vec<u64> {
        let reports = lock(&self.state.reports);
        reports
            .iter()
            .filter_map(|report| Some(report.applied.as_ref()?.epoch))
            .collect()
    }

    pub fn knows_fork(&self) {
        self.state.knows_fork.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

struct Handler(Arc<State>);

#[tonic::async_trait]
impl v1::watch_server::Watch for Handler {
    type WatchStream = UnboundedReceiverStream<Sent>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        let (stream, events) = mpsc::unbounded_channel();
        let mut requests = lock(&self.0.requests);
        for event in (self.0.greeting)(&request, requests.len()) {
            let _ = stream.send(Ok(v1::WatchEvent { event: Some(event) }));
        }
        requests.push(request);
        lock(&self.0.streams).push(stream);
        Ok(Response::new(UnboundedReceiverStream::new(events)))
    }

    async fn report_applied(
        &self,
        request: Request<v1::ReportAppliedRequest>,
    ) -> Result<Response<v1::ReportAppliedResponse>, Status> {
        lock(&self.0.reports).push(request.into_inner());
        let fork = self.0.knows_fork.load(Ordering::Relaxed);
        Ok(Response::new(v1::ReportAppliedResponse { fork }))
    }
}

/// A place where nothing ever listens, below the ports that tests are given.
pub const NOBODY: &str = "127.0.0.1:1";

/// A port that nobody listens at: held, so that no other test gets it, and refused.
pub struct Nobody {
    socket: TcpSocket,
    address: String,
}

impl Nobody {
    pub fn endpoint(&self) -> &str {
        &self.address
    }

    /// From now on somebody does.
    pub fn listen(self) -> TcpListener {
        self.socket.listen(64).unwrap()
    }
}

pub fn nobody() -> Nobody {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    Nobody { socket, address }
}

/// A port at which connections come up and nothing is ever answered.
pub async fn black_hole() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Waits for a condition; names it when it does not come true.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the client holds `epoch`.
pub async fn at_epoch(client: &Client, epoch: u64) {
    let mut epochs = client.epochs();
    let reached = epochs.wait_for(|held| held.is_some_and(|held| held.epoch.0 == epoch));
    if within(reached).await.is_none_or(|reached| reached.is_err()) {
        panic!("epoch {epoch} never came: {:?}", client.status());
    }
}

/// The value, unless it takes too long.
pub async fn within<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(LONG, future).await.ok()
}

/// A client with pauses short enough for tests.
pub fn builder<'a>(endpoints: impl IntoIterator<Item = &'a str>) -> annulus_client::Builder {
    Client::builder(crate::rings::RING)
        .endpoints(endpoints)
        .backoff(Duration::from_millis(5), Duration::from_millis(50))
        .seed(1)
}
