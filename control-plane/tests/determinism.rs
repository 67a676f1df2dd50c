//! The same seed gives the same trace: three servers, their raft over real tonic, on turmoil's
//! network and clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
// tokio's flag, which cargo does not know.
#![allow(unexpected_cfgs)]

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use annulus_control_plane::raft::{
    Dial, MemoryStorage, Node, NodeConfig, Storage, WallClock, dial, seed_this_thread,
};
use annulus_membership::{Command, Request, RequestId, RingCommand, RingConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

const PORT: u16 = 7000;

/// turmoil's stream, as tonic's server wants it.
struct Accepted(turmoil::net::TcpStream);

impl Connected for Accepted {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

fn dial() -> Dial {
    Dial::new(|address| {
        let connector = tower::service_fn(|uri: http::Uri| async move {
            let host = uri.host().unwrap_or_default().to_owned();
            let stream = turmoil::net::TcpStream::connect((host.as_str(), PORT)).await?;
            Ok::<_, io::Error>(hyper_util::rt::TokioIo::new(stream))
        });
        Ok(dial::endpoint(address)?.connect_with_connector_lazy(connector))
    })
}

type Trace = Arc<Mutex<Vec<String>>>;

fn say(trace: &Trace, line: String) {
    let at = turmoil::sim_elapsed().unwrap_or_default().as_micros();
    trace.lock().unwrap().push(format!("{at:>10} {line}"));
}

async fn serve(id: u64, disk: MemoryStorage, trace: Trace) -> turmoil::Result {
    let mut config = NodeConfig::new(id, Storage::Memory(disk));
    config.dial = dial();
    config.wall_clock = WallClock::new(|| {
        let elapsed = turmoil::sim_elapsed().unwrap_or_default();
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    });
    config.snapshot_every = 20;
    config.keep_log = 10;
    let node = Node::start(config).await?;
    let watched = node.clone();
    let noted = trace.clone();
    tokio::spawn(async move {
        let mut standings = watched.standings();
        while standings.changed().await.is_ok() {
            let standing = standings.borrow_and_update().clone();
            say(&noted, format!("{id} {standing:?}"));
        }
    });
    if id == 1 {
        tokio::spawn(found(node.clone(), trace.clone()));
    }
    tokio::spawn(ask(node.clone(), trace));
    let listener = turmoil::net::TcpListener::bind(("0.0.0.0", PORT)).await?;
    let incoming = futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| Accepted(stream));
        Some((accepted, listener))
    });
    let server = tonic::transport::Server::builder().add_service(node.service());
    server.serve_with_incoming(incoming).await?;
    Ok(())
}

async fn found(node: Node, trace: Trace) {
    let servers: BTreeMap<u64, String> = (1..=3)
        .map(|id| (id, format!("server-{id}:{PORT}")))
        .collect();
    loop {
        match node.init(servers.clone(), Duration::from_secs(5)).await {
            Ok(name) => return say(&trace, format!("founded {name:?}")),
            Err(error) => say(&trace, format!("not founded: {error}")),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Each server asks for something about every 200 ms, whoever leads.
async fn ask(node: Node, trace: Trace) {
    let id = node.server_id();
    for number in 0..200_u64 {
        tokio::time::sleep(Duration::from_millis(190 + id)).await;
        let command = if number % 10 == 3 {
            Command::Ring {
                ring: format!("ring-{id}-{number}").parse().unwrap(),
                command: RingCommand::Create {
                    config: RingConfig::default(),
                    accept: false,
                },
            }
        } else {
            Command::Tick { elapsed_ms: id }
        };
        let request_id = Some(RequestId(u128::from(id) << 64 | u128::from(number)));
        let request = Request {
            request_id,
            command,
        };
        let outcome = node.propose(request, Duration::from_secs(2)).await;
        let (index, time) = {
            let time = node
                .shared()
                .read(|state, _| (state.ring_time_ms, state.wall_ms));
            (node.applied().borrow().index, time)
        };
        say(
            &trace,
            format!("{id} asked {number}: {outcome:?}, at {index}, time {time:?}"),
        );
    }
}

/// A quarter of a minute with a server that is cut off, one that crashes and comes back.
fn trace(seed: u64) -> Vec<String> {
    seed_this_thread(seed);
    let mut sim = turmoil::Builder::new()
        .simulation_duration(Duration::from_secs(40))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(20))
        .tick_duration(Duration::from_millis(2))
        .enable_tokio_io()
        .rng_seed(seed)
        .build();
    let trace: Trace = Arc::default();
    for id in 1..=3 {
        let disk = MemoryStorage::default();
        let noted = trace.clone();
        sim.host(format!("server-{id}"), move || {
            serve(id, disk.clone(), noted.clone())
        });
    }
    run(&mut sim, 4);
    sim.crash("server-1");
    run(&mut sim, 7);
    sim.bounce("server-1");
    run(&mut sim, 10);
    sim.partition("server-2", "server-1");
    sim.partition("server-2", "server-3");
    run(&mut sim, 13);
    sim.repair("server-2", "server-1");
    sim.repair("server-2", "server-3");
    run(&mut sim, 16);
    drop(sim);
    trace.lock().unwrap().clone()
}

fn run(sim: &mut turmoil::Sim<'_>, until_seconds: u64) {
    while sim.elapsed() < Duration::from_secs(until_seconds) {
        sim.step().unwrap();
    }
}

#[test]
fn same_seed_same_trace() {
    assert!(
        std::hint::black_box(cfg!(tokio_unstable)),
        "tokio's own draws cannot be seeded in this build: pass --cfg tokio_unstable, as the \
         repository's .cargo/config.toml does (RUSTFLAGS in the environment replaces it)"
    );
    let mut firsts = Vec::new();
    for seed in [1, 2] {
        let began = std::time::Instant::now();
        let first = trace(seed);
        println!("seed {seed}: {} lines, {:?}", first.len(), began.elapsed());
        let second = trace(seed);
        let differs = first
            .iter()
            .zip(&second)
            .position(|(one, other)| one != other);
        if let Some(line) = differs {
            panic!(
                "seed {seed}, line {line}:\n  {}\n  {}",
                first[line], second[line]
            );
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
        assert!(
            first.iter().any(|line| line.contains("founded")),
            "seed {seed}: {first:#?}"
        );
        let decided = first
            .iter()
            .filter(|line| line.contains("Ok(Applied"))
            .count();
        assert!(decided > 50, "seed {seed}: {decided} decided");
        firsts.push(first);
    }
    assert_ne!(firsts[0], firsts[1], "the seed does not matter");
}
