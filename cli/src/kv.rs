//! `annulus kv get|put|delete|load`: keys of the reference data plane, through the client library.

use std::{
    io::{self, IsTerminal, Read, Write},
    path::Path,
    time::Duration,
};

use annulus_client::{Client, LookupError};
use annulus_kv::{
    Error, KvClient, KvClientConfig,
    load::{Load, LoadConfig, Report, Snapshot},
};
use annulus_ring::RingName;
use bytes::Bytes;
use serde::Serialize;

use crate::{
    args::{Global, KvCommand, KvLoadArgs},
    exit::{Failure, Result},
    key,
    render::{self, Render, Wide, grouped, span},
};

/// How long a filling or a final reading may take for each second of `--timeout`.
const PATIENCE: u32 = 12;

/// A client of one ring's `kv` nodes that holds its first snapshot.
///
/// # Errors
/// Usage for a bad name or endpoint; unavailable if no snapshot comes in time.
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
    client.ready(limit).await.map_err(|error| {
        let next = "check --endpoints, and that the ring exists: `annulus ring list`";
        Failure::unavailable(error, next)
    })?;
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
        Error::Refused(annulus_client::Error::Failed { .. }) => {
            Failure::refused(error, "the message says why")
        }
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
    value_hex: String,
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
    let Some(value) = found.value else {
        return Err(Failure::failed(
            format!("key {} does not exist", key::show(key)),
            "keys are bytes, taken exactly as given; is a newline missing or too much?",
        ));
    };
    let got = Got {
        key_hex: hex::encode(key),
        value_hex: hex::encode(&value),
        epoch: Wide(found.epoch.0),
        version: found.version.map(|version| version.to_string()),
        value,
    };
    render::print(global.output, &got)
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
    keys: Wide,
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
        writeln!(
            out,
            "{keys} keys written in {}, {rate} a second",
            span(self.took_ms.0)
        )?;
        let Some(run) = &self.run else { return Ok(()) };
        writeln!(
            out,
            "{} reads, {} puts, {} deletes, {} a second; 99 of 100 reads within {} us, writes {} us",
            grouped(run.reads.0),
            grouped(run.puts.0),
            grouped(run.deletes.0),
            grouped(run.per_second.0),
            grouped(run.read_p99_us.0),
            grouped(run.write_p99_us.0)
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

async fn load(global: &Global, args: &KvLoadArgs) -> Result {
    let keys = match &args.keys {
        Some(path) => keys_of(path)?,
        None => LoadConfig::synthetic_keys(args.count),
    };
    let config = LoadConfig {
        value_bytes: args.value_bytes,
        ops_per_second: args.rate,
        ..LoadConfig::new(keys)
    };
    let client = of(global, &args.ring).await?;
    let mut load = Load::new(client, config)
        .map_err(|error| Failure::usage(error, "correct the keys or --value-bytes"))?;
    let filled = load
        .fill(global.timeout * PATIENCE)
        .await
        .map_err(failure)?;
    let mut loaded = Loaded {
        keys: Wide(filled.keys as u64),
        took_ms: Wide(filled.elapsed.as_millis() as u64),
        per_second: Wide((filled.keys as f64 / filled.elapsed.as_secs_f64().max(0.001)) as u64),
        run: None,
    };
    let Some(how_long) = args.run else {
        return render::print(global.output, &loaded);
    };
    let running = load.start();
    tokio::select! {
        () = tokio::time::sleep(how_long) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    let report = running.stop().await.check(global.timeout * PATIENCE).await;
    loaded.run = Some(Ran::from(&report));
    render::print(global.output, &loaded)?;
    if report.is_clean() {
        return Ok(());
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
