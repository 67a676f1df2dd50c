//! Three servers in one process on loopback, and data nodes that speak the link's protocol and
//! hold nothing.

#![allow(dead_code, reason = "each test binary uses its own part")]

mod work;

use std::{
    future::Future,
    num::{NonZeroU32, NonZeroU64},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use annulus_control_plane::{Config, Server, Wiring, raft::Dial};
use annulus_proto::v1::{
    self, admin_client::AdminClient, from_agent, link_client::LinkClient, to_agent,
    watch_client::WatchClient, watch_event::Event,
};
use bytes::Bytes;
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, server::TcpIncoming},
};

/// Everything here ends within this time.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for `what` or fails, naming it.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {DEADLINE:?}"),
    }
}

/// Asks again and again until there is an answer.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// 16 bytes never given before.
pub fn fresh_id() -> Bytes {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    Bytes::copy_from_slice(&id.to_be_bytes())
}

/// Name and code of a refusal.
pub fn cause(status: &Status) -> (String, Code) {
    let refused = v1::Refused::decode(status.details()).expect("details carry the cause");
    (refused.name, status.code())
}

/// Servers 1 to n.
pub struct Cluster {
    pub servers: Vec<Option<Server>>,
    pub dirs: tempfile::TempDir,
    /// While set, whoever a server dials takes the connection and never says a word.
    pub mute: Arc<AtomicBool>,
    _mute: TcpListener,
}

pub type Admin = AdminClient<Channel>;

pub fn channel(endpoint: &str) -> Channel {
    Channel::from_shared(format!("http://{endpoint}"))
        .expect("an endpoint")
        .connect_timeout(Duration::from_secs(2))
        .connect_lazy()
}

impl Cluster {
    /// Starts servers that belong to no cluster yet; `bend` changes each one's settings.
    pub async fn start(count: u64, bend: impl Fn(&mut Config)) -> Self {
        let dirs = tempfile::tempdir().expect("a folder");
        let mute = Arc::new(AtomicBool::new(false));
        let silence = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let nobody = silence.local_addr().expect("an address").to_string();
        let mut servers = Vec::new();
        for id in 1..=count {
            let id = NonZeroU64::new(id).expect("from 1");
            let listen = "127.0.0.1:0".parse().expect("an address");
            let mut config = Config::new(id, listen, dirs.path().join(id.to_string()));
            let ms = |value| NonZeroU32::new(value).expect("not 0");
            config.watch.progress_ms = ms(200);
            config.watch.ahead_ms = ms(400);
            // A loaded machine may take long for an election; no test waits for this by default.
            config.watch.behind_ms = ms(15_000);
            bend(&mut config);
            let (muted, nobody) = (Arc::clone(&mute), nobody.clone());
            let dial = Dial::new(move |address| {
                let muted = muted.load(Ordering::Relaxed);
                Dial::tcp().dial(if muted { &nobody } else { address })
            });
            let listener = TcpListener::bind(config.listen).await.expect("a listener");
            let local = listener.local_addr().expect("an address");
            let wiring = Wiring {
                dial,
                ..Wiring::default()
            };
            let incoming = TcpIncoming::from(listener);
            let server = Server::start_with(config, wiring, incoming, local).await;
            servers.push(Some(server.expect("the server starts")));
        }
        Self {
            servers,
            dirs,
            mute,
            _mute: silence,
        }
    }

    /// Starts and initialises three.
    pub async fn three() -> Self {
        let cluster = Self::start(3, |_| {}).await;
        cluster.init().await;
        cluster
    }

    pub fn server(&self, id: usize) -> &Server {
        self.servers[id - 1].as_ref().expect("the server runs")
    }

    pub fn endpoint(&self, id: usize) -> String {
        self.server(id).local_addr().to_string()
    }

    pub fn admin(&self, id: usize) -> Admin {
        AdminClient::new(channel(&self.endpoint(id)))
    }

    pub fn named(&self) -> Vec<v1::init_cluster_request::Server> {
        (1..=self.servers.len())
            .map(|id| v1::init_cluster_request::Server {
                id: id as u64,
                endpoint: self.endpoint(id),
            })
            .collect()
    }

    pub async fn init(&self) -> Bytes {
        let request = v1::InitClusterRequest {
            servers: self.named(),
        };
        let answer = within("init", self.admin(1).init_cluster(request)).await;
        answer
            .expect("the cluster is initialised")
            .into_inner()
            .cluster_id
    }

    /// The leader's number, as all running servers agree.
    pub async fn leader(&self) -> usize {
        until("a leader that all know", || async {
            let mut leaders = self.servers.iter().flatten().map(|server| {
                let leader = server.node().standing().leader;
                leader.map(|leader| leader.id)
            });
            let first = leaders.next()??;
            let agreed = leaders.all(|leader| leader == Some(first));
            let leads = self.servers[first as usize - 1]
                .as_ref()?
                .node()
                .standing()
                .is_leader();
            (agreed && leads).then_some(first as usize)
        })
        .await
    }

    /// A running server that does not lead.
    pub async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (1..=self.servers.len())
            .find(|id| *id != leader && self.servers[id - 1].is_some())
            .expect("a follower")
    }

    /// Creates ring "r" with 16 slots, rf 3.
    pub async fn create(&self, at: usize) -> v1::MutationResponse {
        let answer = within("create", self.admin(at).create_ring(create("r"))).await;
        answer.expect("the ring is created").into_inner()
    }

    /// A founded ring "r" of three nodes in three zones; the agents stay linked.
    pub async fn founded(&self) -> Vec<Agent> {
        self.create(1).await;
        let mut agents = Vec::new();
        for name in ["a", "b", "c"] {
            let agent = Agent::start(self, hello(name)).await;
            agent.welcomed().await;
            let joined = within("join", self.admin(1).join_node(join(name))).await;
            joined.expect("the join is collected");
            agents.push(agent);
        }
        let found = within("found", self.admin(1).found_ring(found(&[]))).await;
        found.expect("the ring is founded");
        agents
    }

    pub async fn watch(
        &self,
        at: usize,
        have: Option<v1::EpochRef>,
    ) -> Result<Streaming<v1::WatchEvent>, Status> {
        let request = v1::WatchRequest {
            ring: "r".to_owned(),
            have,
            watcher: "test".to_owned(),
        };
        let mut client = WatchClient::new(channel(&self.endpoint(at)));
        Ok(within("watch", client.watch(request)).await?.into_inner())
    }

    pub async fn stop(&mut self, id: usize) {
        let server = self.servers[id - 1].take().expect("the server runs");
        within("shutdown", server.shutdown()).await;
    }
}

pub fn create(ring: &str) -> v1::CreateRingRequest {
    v1::CreateRingRequest {
        request_id: fresh_id(),
        ring: ring.to_owned(),
        slot_bits: 4,
        soak_ms: Some(0),
        grace_ms: Some(0),
        ..v1::CreateRingRequest::default()
    }
}

pub fn join(node: &str) -> v1::JoinNodeRequest {
    v1::JoinNodeRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        node: node.to_owned(),
        ..v1::JoinNodeRequest::default()
    }
}

pub fn found(nodes: &[&str]) -> v1::FoundRingRequest {
    v1::FoundRingRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
        accept: false,
    }
}

/// The next event of a stream; none at its end.
pub async fn next(stream: &mut Streaming<v1::WatchEvent>) -> Option<Event> {
    let event = within("an event", stream.message())
        .await
        .expect("the stream is whole")?;
    Some(event.event.expect("an event says something"))
}

/// The next full snapshot's header and checksum; progress in between is passed over.
pub async fn next_full(stream: &mut Streaming<v1::WatchEvent>) -> (v1::SnapshotHeader, Bytes) {
    loop {
        match next(stream).await {
            Some(Event::Full(bytes)) => {
                let header = v1::SnapshotHeader::decode(bytes.sections[0].clone());
                return (header.expect("a header"), bytes.checksum);
            }
            Some(Event::Progress(_)) => {}
            other => panic!("expected a snapshot, got {other:?}"),
        }
    }
}

/// A node with an empty directory, in a zone of its own.
pub fn hello(node: &str) -> v1::Hello {
    v1::Hello {
        ring: "r".to_owned(),
        node_id: node.to_owned(),
        birth: fresh_id(),
        incarnation: 0,
        boot: fresh_id(),
        endpoint: format!("{node}.example:7000"),
        zone: format!("zone-{node}"),
        weight: 1,
        empty: true,
        adopted_epoch: 0,
    }
}

/// What an agent has heard so far.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub welcome: Option<v1::Welcome>,
    /// Epochs of views, in the order received, with their last changes.
    pub views: Vec<(u64, v1::View)>,
    pub directives: Vec<v1::Directive>,
    pub refused: Option<v1::LinkRefused>,
    /// Where it was told that the leader is, by order.
    pub leaders: Vec<String>,
    pub acks: u64,
}

/// A data node without data: it adopts every view at once, reports at once what is wanted,
/// follows the leader, and renews.
pub struct Agent {
    heard: watch::Receiver<Heard>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agent {
    pub async fn start(cluster: &Cluster, hello: v1::Hello) -> Self {
        let leader = cluster.leader().await;
        Self::start_at(cluster.endpoint(leader), hello)
    }

    pub fn start_at(endpoint: String, hello: v1::Hello) -> Self {
        let (tell, heard) = watch::channel(Heard::default());
        Self {
            heard,
            task: tokio::spawn(link(endpoint, hello, tell)),
        }
    }

    /// Waits until `ready` is so.
    pub async fn wait(&self, what: &str, ready: impl Fn(&Heard) -> bool) -> Heard {
        let mut heard = self.heard.clone();
        let found = within(what, heard.wait_for(|heard| ready(heard))).await;
        found.expect("the agent runs").clone()
    }

    pub async fn welcomed(&self) -> v1::Welcome {
        let heard = self
            .wait("a welcome", |heard| heard.welcome.is_some())
            .await;
        heard.welcome.expect("waited for")
    }

    pub async fn refused(&self) -> v1::LinkRefused {
        let heard = self
            .wait("a refusal", |heard| heard.refused.is_some())
            .await;
        heard.refused.expect("waited for")
    }

    pub async fn sees(&self, epoch: u64) -> Heard {
        self.wait("a view", |heard| {
            heard.views.last().is_some_and(|view| view.0 >= epoch)
        })
        .await
    }
}

async fn link(mut endpoint: String, mut hello: v1::Hello, tell: watch::Sender<Heard>) {
    let mut work = work::Work::default();
    loop {
        let leader = one_link(&endpoint, &mut hello, &mut work, &tell).await;
        if tell.borrow().refused.is_some() {
            return std::future::pending().await;
        }
        if let Some(leader) = leader.filter(|leader| !leader.is_empty()) {
            endpoint = leader;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn one_link(
    endpoint: &str,
    hello: &mut v1::Hello,
    work: &mut work::Work,
    tell: &watch::Sender<Heard>,
) -> Option<String> {
    let (say, said) = mpsc::channel(16);
    let message = |message| v1::FromAgent {
        message: Some(message),
    };
    say.send(message(from_agent::Message::Hello(hello.clone())))
        .await
        .ok()?;
    let node = hello.node_id.clone();
    let mut client = LinkClient::new(channel(endpoint));
    let mut stream = client
        .open(ReceiverStream::new(said))
        .await
        .ok()?
        .into_inner();
    let mut renew = tokio::time::interval(Duration::from_millis(200));
    let mut seq = 0;
    loop {
        let heard = tokio::select! {
            heard = stream.message() => heard.ok()??.message?,
            _ = renew.tick() => {
                seq += 1;
                say.send(message(from_agent::Message::Renew(v1::Renew { seq }))).await.ok()?;
                continue;
            }
        };
        match heard {
            to_agent::Message::Welcome(welcome) => {
                hello.incarnation = welcome.incarnation;
                tell.send_modify(|heard| heard.welcome = Some(welcome));
            }
            to_agent::Message::View(view) => {
                let epoch = work.view(&node, &view);
                hello.adopted_epoch = epoch;
                let report = work.report(&node);
                say.send(message(from_agent::Message::Report(report)))
                    .await
                    .ok()?;
                tell.send_modify(|heard| heard.views.push((epoch, view)));
            }
            to_agent::Message::Directive(directive) => {
                work.directive(directive.clone());
                let report = work.report(&node);
                say.send(message(from_agent::Message::Report(report)))
                    .await
                    .ok()?;
                tell.send_modify(|heard| heard.directives.push(directive));
            }
            to_agent::Message::Leader(leader) => {
                tell.send_modify(|heard| heard.leaders.push(leader.endpoint.clone()));
                return Some(leader.endpoint);
            }
            to_agent::Message::Refused(refused) => {
                tell.send_modify(|heard| heard.refused = Some(refused));
                return None;
            }
            to_agent::Message::RenewAck(_) => tell.send_modify(|heard| heard.acks += 1),
        }
    }
}
