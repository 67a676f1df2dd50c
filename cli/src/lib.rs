//! The `annulus` command: everything that a person does with Annulus from a terminal.
//!
//! Never decides anything: it asks a server or a node, prints what it is told, and ends with an
//! exit code that scripts can rely on ([`exit`]). Data goes to standard output, talk to standard
//! error; every error says what to do next.
//!
//! ```text
//!   args ----> run() ---> one file a command ---> connect ---> a server
//!                               |
//!                               +--> views, changes ---> render ---> standard output
//! ```
//!
//! Read on in [`args`] (every command and option), then in the file named after a command;
//! `dev` is a program of its own that starts the others as child processes.

mod answers;
pub mod args;
mod changes;
mod closing;
mod cluster;
mod config;
mod connect;
mod dev;
pub mod exit;
mod explain;
mod follow;
mod key;
mod kv;
mod kv_node;
mod lookup;
mod node;
mod plan;
mod progress;
pub mod render;
mod restart;
mod ring;
mod serve;
mod simulate;
mod status;
pub mod views;
mod watch;
mod why_kept;
mod zone;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Cli, Command},
    exit::{Failure, Result},
};

/// Reads the command line, does what it says, and gives the exit code.
///
/// # Panics
/// Never by input; only if the process can get no threads.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    start_logging(&cli.command);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let next = "raise the limit on threads (`ulimit -u`)";
            return end(Err(Failure::failed(
                format!("cannot start threads: {error}"),
                next,
            )));
        }
    };
    let result = runtime.block_on(command(cli));
    // A blocking read of standard input may still be waiting: it must not hold up the end.
    runtime.shutdown_background();
    end(result)
}

fn end(result: Result) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("annulus: {failure}");
            failure.exit_code()
        }
    }
}

async fn command(cli: Cli) -> Result {
    let global = &cli.global;
    match cli.command {
        Command::Dev(args) => dev::run(global, &args).await,
        Command::Serve(args) => serve::run(&args).await,
        Command::Cluster(command) => cluster::run(global, command).await,
        Command::Ring(command) => ring::run(global, command).await,
        Command::Node(command) => node::run(global, command).await,
        Command::Zone(command) => zone::run(global, command).await,
        Command::Plan(command) => plan::run(global, command).await,
        Command::Explain(command) => explain::run(global, command).await,
        Command::WhyKept(args) => why_kept::run(global, &args).await,
        Command::Status(args) => status::run(global, &args).await,
        Command::Watch(args) => watch::run(global, &args).await,
        Command::Lookup(args) => lookup::run(global, &args).await,
        Command::Kv(args::KvCommand::Serve(args)) => kv_node::run(global, &args).await,
        Command::Kv(command) => kv::run(global, command).await,
        Command::Simulate(args) => simulate::run(global, &args),
        Command::Compare(args) => simulate::compare(global, &args),
    }
}

/// Logs go to standard error: of long-running commands from `info` on, of others only what is
/// wrong. `ANNULUS_LOG` says otherwise, in the syntax of tracing's `EnvFilter`.
fn start_logging(command: &Command) {
    let long_running = matches!(
        command,
        Command::Serve(_) | Command::Kv(args::KvCommand::Serve(_))
    );
    // Raft tells of every vote and heartbeat that went astray, several times a second while a server
    // is alone; what it means for operators the servers say themselves.
    let level = if long_running {
        "info,openraft=error"
    } else {
        "error"
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("ANNULUS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // Fails only if a test has installed a subscriber already; then that one is meant.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .try_init();
}
