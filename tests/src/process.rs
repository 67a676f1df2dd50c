//! One server or data node as a process: start, SIGKILL, pause, and what it wrote.
//!
//! Each child holds a pipe on its standard input and ends when the pipe closes: no child outlives
//! the test, however the test ends.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    process::{Child, ChildStdin, Command},
    time::timeout,
};

/// How long a child may take to end once its pipe is closed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Ticks of `/proc/PID/stat` in a second: `USER_HZ`, which is 100 on every Linux of today.
const TICKS_PER_SECOND: u64 = 100;

/// How a process is started, and the process itself while it runs.
#[derive(Debug)]
pub struct Process {
    /// Its name, also that of its log file.
    pub name: String,
    binary: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Held open for as long as the child shall live.
    stdin: ChildStdin,
    pid: u32,
}

impl Process {
    /// `BINARY ARGS.. --until-stdin-closes`, not started yet.
    #[must_use]
    pub fn new(name: &str, binary: &Path, log_dir: &Path, args: Vec<String>) -> Self {
        let log = log_dir.join(format!("{name}.log"));
        Self {
            name: name.to_owned(),
            binary: binary.to_owned(),
            args,
            log,
            running: None,
        }
    }

    /// Adds to, or replaces, what it is started with from the next start on.
    pub fn set_option(&mut self, flag: &str, value: &str) {
        match self.args.iter().position(|arg| arg == flag) {
            Some(at) => value.clone_into(&mut self.args[at + 1]),
            None => self.args.extend([flag.to_owned(), value.to_owned()]),
        }
    }

    /// Starts it. What it writes is appended to its log file.
    ///
    /// # Panics
    /// If it runs already or cannot be started.
    pub fn start(&mut self) {
        assert!(self.running.is_none(), "{} runs already", self.name);
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.unwrap_or_else(|error| panic!("log of {}: {error}", self.name));
        let both = log.try_clone().expect("a file descriptor is free");
        let mut child = Command::new(&self.binary)
            .args(&self.args)
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(both)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let stdin = child
            .stdin
            .take()
            .expect("standard input was asked to be a pipe");
        let pid = child.id().expect("it was not waited for yet");
        self.running = Some(Running { child, stdin, pid });
    }

    /// SIGKILL: no chance to write, sync or say goodbye. Works on a paused process too.
    pub async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running
                .child
                .kill()
                .await
                .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
    }

    /// Closes its pipe and waits for its end.
    ///
    /// # Panics
    /// If it does not end by itself.
    pub async fn stop(&mut self) -> ExitStatus {
        let Running {
            mut child, stdin, ..
        } = self.running.take().expect("it runs");
        drop(stdin);
        match timeout(STOP_LIMIT, child.wait()).await {
            Ok(status) => status.unwrap_or_else(|error| panic!("{}: {error}", self.name)),
            Err(_) => panic!(
                "{} did not end within {STOP_LIMIT:?} of its pipe",
                self.name
            ),
        }
    }

    /// Waits until it ends of its own will.
    ///
    /// # Panics
    /// If it does not within `limit`.
    pub async fn ends(&mut self, limit: Duration) -> ExitStatus {
        let running = self.running.as_mut().expect("it runs");
        match timeout(limit, running.child.wait()).await {
            Ok(status) => {
                self.running = None;
                status.unwrap_or_else(|error| panic!("{}: {error}", self.name))
            }
            Err(_) => panic!(
                "{} was expected to end within {limit:?}\n{}",
                self.name,
                self.tail()
            ),
        }
    }

    /// SIGSTOP: it stands still, its connections stay open.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// The shell's own `kill`: signals need no `unsafe` this way.
    fn signal(&self, signal: &str) {
        let sent = std::process::Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", self.pid())])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "SIG{signal} to {}",
            self.name
        );
    }

    /// Its number.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running
            .as_ref()
            .unwrap_or_else(|| panic!("{} does not run", self.name))
            .pid
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        self.running
            .as_mut()
            .is_some_and(|it| it.child.try_wait().is_ok_and(|end| end.is_none()))
    }

    /// Processor time used so far, in user and kernel.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        // The second field is the name in parentheses and may hold blanks: count after it.
        let fields: Vec<&str> = match stat.rsplit_once(')') {
            Some((_, rest)) => rest.split_whitespace().collect(),
            None => Vec::new(),
        };
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        match (ticks(11), ticks(12)) {
            (Some(user), Some(kernel)) => {
                Duration::from_millis((user + kernel) * 1_000 / TICKS_PER_SECOND)
            }
            _ => panic!("/proc/{}/stat reads {stat:?}", self.pid()),
        }
    }

    /// All it ever wrote.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines it wrote.
    #[must_use]
    pub fn tail(&self) -> String {
        const LINES: usize = 25;
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        format!("---- {}\n{}\n", self.name, last.join("\n"))
    }
}
