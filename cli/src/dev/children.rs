//! Child processes of `annulus dev`: this very binary, one process a server or node.
//!
//! Each child holds a pipe on its standard input and ends when the pipe closes, so that no
//! child outlives its parent, however the parent ends.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::{Child, ChildStdin, Command};

use crate::exit::{Failure, Result};

/// How long a child may take to end by itself once its pipe is closed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A server or node: how it is started, and its process while it runs.
pub struct Process {
    /// Its name, also that of its log file.
    pub name: String,
    args: Vec<String>,
    log: PathBuf,
    running: Option<(Child, ChildStdin)>,
}

impl Process {
    /// A child that is not started yet: `annulus ARGS.. --until-stdin-closes`.
    pub fn new(name: &str, log_dir: &Path, args: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            args,
            log: log_dir.join(format!("{name}.log")),
            running: None,
        }
    }

    /// Starts it; its output is appended to its log file.
    pub fn start(&mut self) -> Result {
        let failed = |what: &str, error: std::io::Error| {
            Failure::failed(
                format!("{}: {what}: {error}", self.name),
                "check the data directory and the limits on processes and files",
            )
        };
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|error| failed(&format!("log {}", self.log.display()), error))?;
        let both = log.try_clone().map_err(|error| failed("log", error))?;
        let binary = std::env::current_exe().map_err(|error| failed("own binary", error))?;
        let mut child = Command::new(binary)
            .args(&self.args)
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(both)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed("start", error))?;
        let stdin = child
            .stdin
            .take()
            .expect("standard input was asked to be a pipe");
        self.running = Some((child, stdin));
        Ok(())
    }

    /// Fails if it has ended by itself, with the last lines of its log.
    pub fn check(&mut self) -> Result {
        let Some((child, _)) = &mut self.running else {
            return Ok(());
        };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure::failed(
                format!("{} ended with {status}:\n{}", self.name, tail(&self.log)),
                format!("read {}", self.log.display()),
            )),
            Err(error) => Err(Failure::failed(
                format!("{}: {error}", self.name),
                "try again",
            )),
        }
    }

    /// SIGKILL: no chance to write, sync or say goodbye.
    pub async fn kill(&mut self) -> Result {
        if let Some((mut child, _stdin)) = self.running.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Closes its pipe.
    pub fn ask_to_stop(&mut self) -> Option<Child> {
        self.running.take().map(|(child, _stdin)| child)
    }
}

/// Closes every pipe, then waits for the ends; what does not end in time is killed.
pub async fn stop_all(processes: &mut [Process]) {
    let children: Vec<Child> = processes
        .iter_mut()
        .filter_map(Process::ask_to_stop)
        .collect();
    let deadline = tokio::time::Instant::now() + STOP_LIMIT;
    for mut child in children {
        if tokio::time::timeout_at(deadline, child.wait())
            .await
            .is_err()
        {
            // It may have ended this very moment; then there is nothing to kill.
            let _ = child.kill().await;
        }
    }
}

fn tail(log: &Path) -> String {
    let mut text = String::new();
    if File::open(log)
        .and_then(|mut file| file.read_to_string(&mut text))
        .is_err()
    {
        return String::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(8);
    lines[from..]
        .iter()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// `count` loopback ports that were free a moment ago, `wanted` first where those are free.
///
/// They lie below the ports that systems give to outgoing connections, so none is taken by chance
/// between now and the child's bind, nor while a killed server is down.
pub fn free_ports(count: usize, wanted: &[u16]) -> Result<Vec<u16>> {
    const RANGE: std::ops::Range<u16> = 17_000..32_000;
    const TRIES: usize = 2_000;
    // Held until all are found, so that none is found twice.
    let mut held = Vec::new();
    let random = std::iter::repeat_with(|| fastrand::u16(RANGE)).take(TRIES);
    for port in wanted.iter().copied().chain(random) {
        if held.len() == count {
            break;
        }
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push((port, listener));
        }
    }
    if held.len() < count {
        return Err(Failure::failed(
            format!("only {} of {count} loopback ports are free", held.len()),
            "see with `ss -ltn` what holds them",
        ));
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}
