//! `annulus dev`: a whole cluster on this machine, moved under load, its leader killed.
//!
//! ```text
//!   plan -> cluster (processes) -> load (fill, mix, judge) -> story (join, kill, drain)
//!                                    |                          |
//!                                    v                          +--> display
//!                                 summary: 0 lost, 0 wrong, or exit code 1
//! ```
//!
//! The load and its judge are `annulus_kv::load`.
//!
//! What it shows is the real thing: the same binary, real processes, real disks and sockets. Only
//! the copy throttle is set so that there is time to see (and to kill) something.

mod children;
mod cluster;
mod display;
mod plan;
mod story;
mod summary;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use annulus_kv::{
    KvClient,
    load::{Load, LoadConfig},
};

use self::{cluster::Cluster, display::Display, plan::Plan, summary::Summary};
use crate::{
    args::{DevArgs, Global},
    closing::Closing,
    exit::{Failure, Result},
    kv,
    render::{self, grouped},
};

/// How long one operation of the load may take before its caller gives up.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long loading, and reading everything back, may take.
const FILL_LIMIT: Duration = Duration::from_secs(180);
const CHECK_LIMIT: Duration = Duration::from_secs(180);
/// How long the founded ring may refuse its first write.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// Runs `annulus dev`.
pub async fn run(global: &Global, args: &DevArgs) -> Result {
    let start = Instant::now();
    let plan = Plan::new(args)?;
    let mut home = Home::new(args)?;
    let mut cluster = Cluster::prepare(&home.dir, &plan, args.serve)?;
    let display = Display::new();
    let mut closing = Closing::listen()?;
    let told = tokio::select! {
        told = tell(global, &mut home, &mut cluster, display, plan, start) => told,
        why = closing.wait(false) => {
            Err(Failure::failed(format!("stopped by {why} before the end"), "run it again"))
        }
    };
    // The run is over: from here on a signal is the end that was asked for.
    let told = match told {
        Ok(()) if args.serve => {
            serve(&cluster, &mut closing).await;
            Ok(())
        }
        told => told,
    };
    cluster.stop().await;
    if told.is_err() {
        home.keep();
    }
    told
}

async fn tell(
    global: &Global,
    home: &mut Home,
    cluster: &mut Cluster,
    mut display: Display,
    plan: Plan,
    start: Instant,
) -> Result {
    plan.notes
        .iter()
        .for_each(|note| display.say(format!("note: {note}")));
    display.say(format!(
        "starting {} servers and {} data nodes in {} zones, data and logs in {}",
        plan::SERVERS,
        plan::NODES,
        plan::ZONES,
        home.dir.display()
    ));
    cluster.found().await?;
    let client = kv::connect(plan::RING, &cluster.endpoints, "annulus dev", PATIENCE).await?;
    first_write(&client, &plan.keys[0]).await?;
    let ready = start.elapsed();
    display.say(format!(
        "ready in {:.2} s: ring founded, first write read back",
        ready.as_secs_f64()
    ));

    let config = LoadConfig {
        writers: plan::WRITERS,
        value_bytes: plan::VALUE_BYTES,
        ops_per_second: plan.ops_per_s,
        seed: fastrand::u64(..),
        ..LoadConfig::new(plan.keys.clone())
    };
    let mut load =
        Load::new(client, config).map_err(|error| Failure::usage(error, "correct the keys"))?;
    let filled = load.fill(FILL_LIMIT).await.map_err(kv::not_filled)?;
    let (keys, took) = (grouped(filled.keys as u64), filled.elapsed.as_secs_f64());
    display.say(format!("{keys} keys loaded in {took:.2} s"));

    let running = load.start();
    let (figures, ended) = story::run(cluster, &running, &plan, &mut display).await;
    // The story ends early if a change does; what was acknowledged counts all the same.
    let mut load = running.stop().await;
    let counts = load.counts();
    display.say("reading every key back");
    let reading = Instant::now();
    let report = load.check(CHECK_LIMIT).await;
    display.close();
    let summary = Summary {
        ready,
        run: start.elapsed(),
        filled,
        ops_per_s: counts.ops_per_second() as u64,
        read_back: reading.elapsed(),
        figures,
        finished: ended.is_ok(),
        report,
    };
    render::print(global.output, &summary)?;
    ended?;
    summary.verdict()
}

/// Writes one key and reads it back: the ring serves. (Nobody else writes keys yet, and loading
/// writes over it.)
async fn first_write(client: &KvClient, key: &[u8]) -> Result {
    let deadline = Instant::now() + READY_LIMIT;
    while let Err(error) = client.put(key, "ready").await {
        if Instant::now() >= deadline {
            return Err(kv::failure(error));
        }
    }
    match client.get(key).await.map_err(kv::failure)?.value {
        Some(value) if value == "ready" => Ok(()),
        found => Err(Failure::failed(
            format!("the first write was acknowledged and reads as {found:?}"),
            "this must not happen: keep the logs and report it",
        )),
    }
}

/// Stays up, and says what to try.
async fn serve(cluster: &Cluster, closing: &mut Closing) {
    let endpoints = cluster.endpoints.join(",");
    let ring = plan::RING;
    eprintln!(
        "\nThe cluster stays up until Ctrl-C. Try, in another terminal:\n\
         \n  export ANNULUS_ENDPOINTS={endpoints}\
         \n  annulus status\
         \n  annulus node list {ring}\
         \n  annulus lookup {ring} user:00000042\
         \n  annulus kv put {ring} greeting hello\
         \n  annulus kv get {ring} greeting\
         \n  annulus watch {ring}                  # leave it open while you\
         \n  annulus node drain {ring} n5\
         \n  kill -9 the process of a server, and ask again\n"
    );
    let why = closing.wait(false).await;
    eprintln!("{why}: stopping");
}

/// Where data and logs are kept.
struct Home {
    dir: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl Home {
    fn new(args: &DevArgs) -> Result<Self> {
        let Some(dir) = &args.data_dir else {
            let temporary = tempfile::Builder::new().prefix("annulus-dev-").tempdir()?;
            return Ok(Self {
                dir: temporary.path().to_owned(),
                temporary: Some(temporary),
            });
        };
        let unusable = |error: std::io::Error| {
            let next = "name a directory to write to";
            Failure::usage(format!("--data-dir {}: {error}", dir.display()), next)
        };
        std::fs::create_dir_all(dir).map_err(unusable)?;
        // Another run's data would be taken for this one's.
        if std::fs::read_dir(dir).map_err(unusable)?.next().is_some() {
            return Err(Failure::usage(
                format!("--data-dir {} is not empty", dir.display()),
                "name a new or empty directory",
            ));
        }
        // Children get it as an argument and must not depend on where they are started.
        let dir = std::path::absolute(dir).map_err(unusable)?;
        Ok(Self {
            dir,
            temporary: None,
        })
    }

    /// Leaves the directory where it is, for whoever wants to know what happened.
    fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let dir = temporary.keep();
            eprintln!("data and logs are kept in {}", dir.display());
        }
    }
}
