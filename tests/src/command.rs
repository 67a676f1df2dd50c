//! The command line as an operator uses it: run a command, look at exit code, output and time.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

/// No command may take longer, whatever is wrong with the cluster.
const HARD_LIMIT: Duration = Duration::from_secs(90);

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// As it was given.
    pub line: String,
    /// Its exit code.
    pub code: i32,
    /// What it printed as data.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Ran {
    /// It did what was asked.
    ///
    /// # Panics
    /// If its exit code is not 0.
    #[must_use = "its output, or nothing: `let _ =`"]
    pub fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// It was refused (exit code 3) with a message that has all of `words`.
    ///
    /// # Panics
    /// If it was not.
    pub fn refused(self, words: &[&str]) -> Self {
        self.ended_with(3, words)
    }

    /// It ended with this exit code and a message that has all of `words`, in whatever case.
    ///
    /// # Panics
    /// If it did not.
    pub fn ended_with(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        let said = self.stderr.to_lowercase();
        for word in words {
            assert!(
                said.contains(&word.to_lowercase()),
                "expected {word:?} in {self:#?}"
            );
        }
        self
    }

    /// It ended within `limit`.
    ///
    /// # Panics
    /// If it did not.
    pub fn within(self, limit: Duration) -> Self {
        assert!(
            self.took <= limit,
            "expected an end within {limit:?}: {self:#?}"
        );
        self
    }

    /// What it printed, as JSON.
    ///
    /// # Panics
    /// If it is none, or the command failed.
    #[must_use]
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// Runs `BINARY ARGS..` against `endpoints`.
///
/// # Panics
/// If it cannot be started or does not end.
pub async fn run(binary: &Path, endpoints: &[String], args: &[&str]) -> Ran {
    run_with_input(binary, endpoints, args, b"").await
}

/// [`run`] with something on its standard input.
///
/// # Panics
/// If it cannot be started or does not end.
pub async fn run_with_input(
    binary: &Path,
    endpoints: &[String],
    args: &[&str],
    input: &[u8],
) -> Ran {
    let line = format!("annulus {}", args.join(" "));
    let start = Instant::now();
    let mut child = Command::new(binary)
        .args(args)
        .env("ANNULUS_ENDPOINTS", endpoints.join(","))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let mut stdin = child
        .stdin
        .take()
        .expect("standard input was asked to be a pipe");
    // A command that reads no input may have ended already; then the pipe is broken, which is fine.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    let output = match timeout(HARD_LIMIT, child.wait_with_output()).await {
        Ok(output) => output.unwrap_or_else(|error| panic!("{line}: {error}")),
        Err(_) => panic!("{line}: no end after {HARD_LIMIT:?}"),
    };
    Ran {
        line,
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: start.elapsed(),
    }
}
