//! Cargo as a child process, and steps with their time.

use std::{ffi::OsString, process::Command, time::Instant};

use anyhow::{Context, Result, ensure};

/// One call of the cargo that runs this.
pub struct Cargo {
    command: Command,
    shown: Vec<String>,
}

/// What a captured call gave.
pub struct Output {
    /// It ended with exit code 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cargo {
    /// `cargo ARGS..`.
    pub fn new<const N: usize>(args: [&str; N]) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        Self {
            command: Command::new(cargo),
            shown: vec!["cargo".to_owned()],
        }
        .args(args)
    }

    /// One more argument.
    pub fn arg(mut self, arg: &str) -> Self {
        self.command.arg(arg);
        self.shown.push(arg.to_owned());
        self
    }

    /// More arguments.
    pub fn args<const N: usize>(self, args: [&str; N]) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// One environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self.shown.insert(0, format!("{name}={value}"));
        self
    }

    /// Runs it in the open; an exit code other than 0 is an error.
    pub fn run(mut self) -> Result<()> {
        let shown = self.shown.join(" ");
        eprintln!("   {shown}");
        let status = self
            .command
            .status()
            .with_context(|| format!("{shown}: cannot start"))?;
        ensure!(status.success(), "{shown}: ended with {status}");
        Ok(())
    }

    /// Runs it and keeps what it printed.
    pub fn output(mut self) -> Result<Output> {
        let shown = self.shown.join(" ");
        let output = self
            .command
            .output()
            .with_context(|| format!("{shown}: cannot start"))?;
        Ok(Output {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// Runs a step and says how long it took.
pub fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    eprintln!("== {name}");
    let result = run();
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    eprintln!(
        "== {name}: {word} in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    result
}
