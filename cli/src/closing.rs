//! When a long-running command ends: a signal, or its parent's end.

use std::io;

use tokio::io::AsyncReadExt;

use crate::exit::{Failure, Result};

/// Hears signals from the moment it is made: one that comes while nobody waits ends the next wait.
pub struct Closing {
    signals: Signals,
}

impl Closing {
    /// Begins to listen; before anybody is told that a signal ends this.
    pub fn listen() -> Result<Self> {
        let signals = Signals::listen().map_err(|error| {
            Failure::failed(format!("cannot wait for signals: {error}"), "try again")
        })?;
        Ok(Self { signals })
    }

    /// Waits for Ctrl-C or SIGTERM; with `until_stdin_closes` also for the end of standard input.
    pub async fn wait(&mut self, until_stdin_closes: bool) -> &'static str {
        tokio::select! {
            signal = self.signals.next() => signal,
            () = stdin_closed(), if until_stdin_closes => "standard input closed",
        }
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    // What is written there means nothing; an error is as good as the end.
    while matches!(stdin.read(&mut ignored).await, Ok(1..)) {}
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminate",
        }
    }
}

#[cfg(windows)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn listen() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) -> &'static str {
        self.0.recv().await;
        "interrupt"
    }
}
