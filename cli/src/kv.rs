//! `annulus kv get|put|delete|load`: keys of the reference data plane, through the client library.

use std::{
    io::{self, IsTerminal, Read, Write},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use annulus_client::{Client, LookupError};
use annulus_kv::{
    Error, KvClient, KvClientConfig,
    load::{FillError, Filled, Limits, Load, LoadConfig, Report, Snapshot},
};
use annulus_ring::RingName;
use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    args::{Global, KvCommand, KvLoadArgs, Output},
    connect::Admin,
    exit::{Failure, Kind, Result},
    key,
    render::{self, Render, Wide, grouped, span},
};

/// How long a filling or a final reading may take that goes on: a bound against no end at all.
const WHOLE: Duration = Duration::from_secs(24 * 3_600);
/// How often a filling or a final reading says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// A client of one ring's `kv` nodes that holds its first snapshot.
///
/// # Errors
/// Usage for a bad name or endpoint; refused if there is no such ring; unavailable if no snapshot
/// comes in time.
pub async fn connect(
    ring: &str,
    endpoints: &[String],
    name: &str,
    limit: Duration,
) -> Result<KvClient> {
    let client = Client::builder(ring)
        .endpoints(endpoints)
        .name(name)
        .connect_lazy()
        .map_err(|error| Failure::usage(error, "correct the ring's name or --endpoints"))?;
    let admin = Admin::of(endpoints, limit)?;
    admin.first_snapshot(&client, limit).await?;
    let config = KvClientConfig {
        deadline: limit,
        ..KvClientConfig::default()
    };
    Ok(KvClient::with_config(client, config))
}

async fn of(global: &Global, ring: &RingName) -> Result<KvClient> {
    connect(
        ring.as_str(),
        &global.endpoints,
        "annulus kv",
        global.timeout,
    )
    .await
}

/// A data node's failure in an operator's words.
pub fn failure(error: Error) -> Failure {
    let look = "`annulus status` shows which nodes are up and what moves";
    match &error {
        Error::Limit(_) => Failure::usage(error, "README.md has the limits"),
        Error::Unknown(_) => Failure::unknown(error, "read the key to see whether it was written"),
        Error::Refused(annulus_client::Error::Failed { .. }) => Failure::refused(error, ""),
        Error::RefusedWrite { .. } if !error.is_retryable() => Failure::refused(error, ""),
        Error::Refused(annulus_client::Error::Lookup(LookupError::NoOwner(_))) => {
            Failure::refused(error, look)
        }
        _ => Failure::unavailable(error, look),
    }
}

/// Runs `annulus kv get|put|delete|load`.
pub async fn run(global: &Global, command: KvCommand) -> Result {
    match command {
        KvCommand::Serve(args) => crate::kv_node::run(global, &args).await,
        KvCommand::Get { ring, key, any } => get(global, &ring, &key::read(&key)?, any).await,
        KvCommand::Put {
            ring,
            key,
            value,
            hex,
        } => {
            let key = key::from_argument(&key, hex)?;
            let value = match value {
                Some(value) => value.into_encoded_bytes(),
                None => {
                    let mut value = Vec::new();
                    io::stdin().lock().read_to_end(&mut value)?;
                    value
                }
            };
            let written = of(global, &ring)
                .await?
                .put(&key, value)
                .await
                .map_err(failure)?;
            print_written(global, &key, written)
        }
        KvCommand::Delete { ring, key } => {
            let key = key::read(&key)?;
            let written = of(global, &ring)
                .await?
                .delete(&key)
                .await
                .map_err(failure)?;
            print_written(global, &key, written)
        }
        KvCommand::Load(args) => load(global, &args).await,
    }
}

#[derive(Serialize)]
struct Got {
    key_hex: String,
    /// The key exists.
    found: bool,
    value_hex: Option<String>,
    /// The epoch by which the node judged.
    epoch: Wide,
    /// (reign, seq) of the write.
    version: Option<String>,
    #[serde(skip)]
    value: Bytes,
}

impl Render for Got {
    /// The value's bytes as they are; on a terminal a newline after them.
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.value)?;
        if io::stdout().is_terminal() {
            writeln!(out)?;
        }
        Ok(())
    }
}

async fn get(global: &Global, ring: &RingName, key: &[u8], any: bool) -> Result {
    let kv = of(global, ring).await?;
    let found = if any {
        kv.get_any(key).await
    } else {
        kv.get(key).await
    }
    .map_err(failure)?;
    let got = Got {
        key_hex: hex::encode(key),
        found: found.value.is_some(),
        value_hex: found.value.as_ref().map(hex::encode),
        epoch: Wide(found.epoch.0),
        version: found.version.map(|version| version.to_string()),
        value: found.value.clone().unwrap_or_default(),
    };
    if got.found {
        return render::print(global.output, &got);
    }
    if global.output != Output::Table {
        render::print(global.output, &got)?;
    }
    Err(Failure::new(
        Kind::Absent,
        format!("key {} does not exist", key::show(key)),
        "keys are bytes, taken exactly as given; is a newline missing or too much?",
    ))
}

#[derive(Serialize)]
struct Written {
    key_hex: String,
    /// The epoch by which the node judged.
    epoch: Wide,
    /// (reign, seq) of the write.
    version: String,
    #[serde(skip)]
    shown_key: String,
}

impl Render for Written {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            shown_key,
            version,
            epoch,
            ..
        } = self;
        writeln!(
            out,
            "{shown_key} is acknowledged as version {version} at epoch {epoch}"
        )
    }
}

fn print_written(global: &Global, key: &[u8], written: annulus_kv::Written) -> Result {
    let written = Written {
        key_hex: hex::encode(key),
        epoch: Wide(written.epoch.0),
        version: written.version.to_string(),
        shown_key: key::show(key),
    };
    render::print(global.output, &written)
}

#[derive(Serialize)]
struct Loaded {
    /// Written and acknowledged.
    keys: Wide,
    /// To be written.
    keys_given: Wide,
    /// They may have been written.
    unknown: Wide,
    took_ms: Wide,
    per_second: Wide,
    /// What the mix after the filling came to.
    run: Option<Ran>,
}

#[derive(Serialize)]
struct Ran {
    reads: Wide,
    puts: Wide,
    deletes: Wide,
    unknown: Wide,
    refused: Wide,
    lost: Wide,
    wrong_reads: Wide,
    unread: Wide,
    per_second: Wide,
    read_p99_us: Wide,
    write_p99_us: Wide,
}

impl From<&Report> for Ran {
    fn from(report: &Report) -> Self {
        let counts @ Snapshot {
            reads,
            puts,
            deletes,
            unknown,
            refused,
            lost,
            ..
        } = report.counts;
        Self {
            reads: Wide(reads),
            puts: Wide(puts),
            deletes: Wide(deletes),
            unknown: Wide(unknown),
            refused: Wide(refused),
            lost: Wide(lost),
            wrong_reads: Wide(counts.wrong_reads),
            unread: Wide(report.unread),
            per_second: Wide(counts.ops_per_second() as u64),
            read_p99_us: Wide(counts.read_latency.p99_us),
            write_p99_us: Wide(counts.write_latency.p99_us),
        }
    }
}

impl Render for Loaded {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let (keys, rate) = (grouped(self.keys.0), grouped(self.per_second.0));
        let of = match self.keys_given.0 {
            given if given == self.keys.0 => String::new(),
            given => format!(" of {}", grouped(given)),
        };
        writeln!(
            out,
            "{keys}{of} keys written in {}, {rate} a second",
            span(self.took_ms.0)
        )?;
        let Some(run) = &self.run else { return Ok(()) };
        writeln!(
            out,
            "{} reads, {} puts, {} deletes, {} a second; 99 of 100 reads within {} ms, writes {} ms",
            grouped(run.reads.0),
            grouped(run.puts.0),
            grouped(run.deletes.0),
            grouped(run.per_second.0),
            in_ms(run.read_p99_us.0),
            in_ms(run.write_p99_us.0)
        )?;
        let Ran {
            refused,
            unknown,
            unread,
            ..
        } = run;
        writeln!(
            out,
            "{refused} refused, {unknown} of unknown outcome, {unread} keys not read back"
        )?;
        writeln!(
            out,
            "acknowledged writes lost {}, wrong reads {}",
            run.lost, run.wrong_reads
        )
    }
}

impl Loaded {
    fn new(given: usize, filled: &Result<Filled, FillError>) -> Self {
        let (written, unknown, elapsed) = match filled {
            Ok(filled) => (filled.keys, 0, filled.elapsed),
            Err(error) => (error.written, error.unknown, error.elapsed),
        };
        Self {
            keys: Wide(written as u64),
            keys_given: Wide(given as u64),
            unknown: Wide(unknown as u64),
            took_ms: Wide(elapsed.as_millis() as u64),
            per_second: Wide((written as f64 / elapsed.as_secs_f64().max(0.001)) as u64),
            run: None,
        }
    }
}

/// Says on standard error how far `work` is while it takes longer.
async fn saying<T>(work: impl Future<Output = T>, done: &AtomicUsize, all: usize, what: &str) -> T {
    let mut every = tokio::time::interval_at(Instant::now() + SAY_EVERY, SAY_EVERY);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            ended = &mut work => return ended,
            _ = every.tick() => {
                let done = grouped(done.load(Relaxed) as u64);
                eprintln!("{done} of {} keys {what}", grouped(all as u64));
            }
        }
    }
}

/// What was written stays written: only where nothing was can it be said that nothing happened.
pub fn not_filled(error: FillError) -> Failure {
    let next = "what was written stays written, and loading again writes every key anew; \
                `annulus status` shows which nodes are up and what moves";
    match (error.written, error.unknown) {
        (0, 0) => failure(error.first),
        (_, 0) => Failure::failed(error, next),
        (_, _) => Failure::unknown(error, next),
    }
}

fn in_ms(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

async fn load(global: &Global, args: &KvLoadArgs) -> Result {
    let keys = match &args.keys {
        Some(path) => keys_of(path)?,
        None => LoadConfig::synthetic_keys(args.count),
    };
    let count = keys.len();
    let config = LoadConfig {
        value_bytes: args.value_bytes,
        ops_per_second: args.rate.and_then(std::num::NonZeroU32::new),
        ..LoadConfig::new(keys)
    };
    let client = of(global, &args.ring).await?;
    let mut load = Load::new(client, config)
        .map_err(|error| Failure::usage(error, "correct the keys or --value-bytes"))?;
    let limits = Limits {
        deadline: WHOLE,
        patience: global.timeout,
    };
    let written = AtomicUsize::new(0);
    let filling = load.fill_counting(limits, &written);
    let filled = saying(filling, &written, count, "written").await;
    let mut loaded = Loaded::new(count, &filled);
    if let Err(error) = filled {
        render::print(global.output, &loaded)?;
        return Err(not_filled(error));
    }
    let Some(how_long) = args.run else {
        return render::print(global.output, &loaded);
    };
    let running = load.start();
    tokio::select! {
        () = tokio::time::sleep(how_long) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    let read = AtomicUsize::new(0);
    let mut load = running.stop().await;
    let checking = load.check_counting(limits, &read);
    let report = saying(checking, &read, count, "read back").await;
    loaded.run = Some(Ran::from(&report));
    render::print(global.output, &loaded)?;
    if report.is_clean() {
        return Ok(());
    }
    if report.counts.lost == 0 && report.counts.wrong_reads == 0 {
        return Err(Failure::failed(
            format!("{} keys could not be read back", report.unread),
            "`annulus status` shows which nodes are up and what moves",
        ));
    }
    Err(Failure::failed(
        format!(
            "not everything was read as written:\n    {}",
            report.violations.join("\n    ")
        ),
        "does another program write these keys? If not, report it",
    ))
}

fn keys_of(path: &Path) -> Result<Vec<Bytes>> {
    let file = key::read_file(path)?;
    if file.empty_lines + file.repeated_lines > 0 {
        let (empty, repeated) = (file.empty_lines, file.repeated_lines);
        eprintln!("note: {empty} empty line(s) and {repeated} repeated one(s) are left out");
    }
    Ok(file.keys.into_iter().map(Bytes::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(written: usize, unknown: usize) -> FillError {
        FillError {
            keys: 8,
            written,
            unknown,
            first: Error::NotReached {
                node: "n5".parse().expect("a name"),
                endpoint: "127.0.0.1:7105".parse().expect("an endpoint"),
                why: "connection refused".to_owned(),
            },
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_load_that_was_done_in_part_does_not_claim_that_nothing_was() {
        let failure = not_filled(left(7, 0));
        assert_eq!(failure.kind(), Kind::Failed);
        let text = failure.to_string();
        let expected = "7 of 8 keys written; n5 at 127.0.0.1:7105 is not reachable";
        assert!(text.contains(expected), "{text}");
        assert_eq!(not_filled(left(0, 0)).kind(), Kind::Unavailable);
        assert_eq!(not_filled(left(0, 1)).kind(), Kind::Unknown);
    }

    #[test]
    fn latencies_are_told_in_ms() {
        assert_eq!((in_ms(0), in_ms(1_260)), ("0.0".into(), "1.2".into()));
    }
}
