//! When a long-running command ends: a signal, or its parent's end.

use tokio::io::AsyncReadExt;

use crate::exit::{Failure, Result};

/// Waits for Ctrl-C or SIGTERM; with `until_stdin_closes` also for the end of standard input.
pub async fn wait(until_stdin_closes: bool) -> Result<&'static str> {
    let signal = |error: std::io::Error| {
        Failure::failed(format!("cannot wait for signals: {error}"), "try again")
    };
    let mut terminate = terminate().map_err(signal)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(signal).map(|()| "interrupt"),
        () = terminate.wait() => Ok("terminate"),
        () = stdin_closed(), if until_stdin_closes => Ok("standard input closed"),
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    // What is written there means nothing; an error is as good as the end.
    while matches!(stdin.read(&mut ignored).await, Ok(1..)) {}
}

#[cfg(unix)]
struct Terminate(tokio::signal::unix::Signal);

#[cfg(unix)]
fn terminate() -> std::io::Result<Terminate> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map(Terminate)
}

#[cfg(unix)]
impl Terminate {
    async fn wait(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(not(unix))]
struct Terminate;

#[cfg(not(unix))]
fn terminate() -> std::io::Result<Terminate> {
    Ok(Terminate)
}

#[cfg(not(unix))]
impl Terminate {
    async fn wait(&mut self) {
        std::future::pending::<()>().await;
    }
}
