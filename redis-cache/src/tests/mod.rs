//! Against real servers: Debian's `redis-server`, started here. Where that binary is missing a test
//! says that it is skipped, by name; CI has it.

#![allow(clippy::unwrap_used, reason = "an expectation of the test")]

mod entries;
mod ring;

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::server::Server;

/// Longest wait for anything here.
const DEADLINE: Duration = Duration::from_secs(90);

/// A redis-server of its own, in memory only. Ends when dropped.
struct Redis {
    process: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself; nothing of it is kept either way.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Redis {
    /// Starts one and waits until it answers. None, said aloud, where there is no such binary.
    fn start(test: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let started = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &port.to_string()])
            .arg("--dir")
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("{test}: SKIPPED, redis-server is not installed here");
                return None;
            }
            Err(error) => panic!("redis-server does not start: {error}"),
        };
        let redis = Self {
            process,
            address: format!("127.0.0.1:{port}"),
            _dir: dir,
        };
        let server = redis.server();
        wait_for("redis-server to answer", || server.lookups().is_ok());
        Some(redis)
    }

    fn server(&self) -> Server {
        Server::new(&self.address).unwrap()
    }
}

/// Looks until it holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
