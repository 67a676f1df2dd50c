//! `annulus kv serve`: one data node of the reference data plane.

use std::{net::SocketAddr, path::PathBuf};

use annulus_kv::{CopyLimits, KvConfig, Server};
use annulus_ring::{NodeId, RingName, Weight, Zone};
use serde::Deserialize;

use crate::{
    args::{DEFAULT_WEIGHT, Global, KvServeArgs},
    closing::Closing,
    config::{self, required},
    exit::{Failure, Result},
};

/// Keys of the configuration file; README.md has them with their defaults.
pub const KEYS: &[&str] = &[
    "ring",
    "node",
    "zone",
    "weight",
    "listen",
    "advertise",
    "data_dir",
    "control",
    "metrics_listen",
    "copy_bytes_per_second",
    "serve_bytes_per_second",
    "zone_bytes_per_second",
    "ease_copies",
    "replicate_delay_ms",
    "insecure",
];

#[derive(Debug, Default, Deserialize)]
struct File {
    ring: Option<RingName>,
    node: Option<NodeId>,
    zone: Option<Zone>,
    weight: Option<u32>,
    listen: Option<SocketAddr>,
    advertise: Option<String>,
    data_dir: Option<PathBuf>,
    control: Option<Vec<String>>,
    metrics_listen: Option<SocketAddr>,
    copy_bytes_per_second: Option<u64>,
    serve_bytes_per_second: Option<u64>,
    zone_bytes_per_second: Option<u64>,
    ease_copies: Option<bool>,
    replicate_delay_ms: Option<u64>,
    insecure: Option<bool>,
}

/// Runs `annulus kv serve` until a signal comes.
pub async fn run(global: &Global, args: &KvServeArgs) -> Result {
    let file = match &args.config {
        Some(path) => {
            let keys = config::Keys {
                command: "annulus kv serve",
                known: KEYS,
                other: ("annulus serve", annulus_control_plane::config::KEYS),
            };
            config::load(path, keys)?
        }
        None => File::default(),
    };
    let config = settings(global, args, file)?;
    let server = Server::start(config).await.map_err(|error| {
        Failure::failed(
            format!("cannot start: {error}"),
            "correct what it names, and start it again",
        )
    })?;
    let mut closing = Closing::listen()?;
    eprintln!("listening on {}", server.local_addr());
    let why = tokio::select! {
        why = closing.wait(args.until_stdin_closes) => why,
        // What was not synced cannot be acknowledged: a supervisor starts it again.
        fault = server.failed() => {
            return Err(Failure::failed(fault, "start it again; it recovers from its data directory"));
        }
    };
    eprintln!("{why}: stopping");
    server.shutdown().await;
    Ok(())
}

fn limit(bytes_per_second: Option<u64>) -> Option<std::num::NonZeroU64> {
    bytes_per_second.and_then(std::num::NonZeroU64::new)
}

fn settings(global: &Global, args: &KvServeArgs, file: File) -> Result<KvConfig> {
    let listen = required(args.listen.or(file.listen), "--listen", "listen")?;
    let insecure = args.insecure || file.insecure.unwrap_or(false);
    config::loopback_unless(insecure, "--listen", listen)?;
    let metrics_listen = args.metrics.or(file.metrics_listen);
    if let Some(address) = metrics_listen {
        config::loopback_unless(insecure, "--metrics", address)?;
    }
    let control = file.control.unwrap_or_else(|| global.endpoints.clone());
    let control = control
        .iter()
        .map(|text| config::endpoint(text, "--endpoints"))
        .collect::<Result<Vec<_>>>()?;
    let weight = args.weight.or(file.weight).unwrap_or(DEFAULT_WEIGHT);
    let weight = Weight::new(weight).ok_or_else(|| {
        Failure::usage(
            format!("weight {weight} is too large"),
            "weights are relative: use smaller ones",
        )
    })?;
    let advertise = args.advertise.clone().or(file.advertise);
    let base = KvConfig::new(
        required(
            args.data_dir.clone().or(file.data_dir),
            "--data-dir",
            "data_dir",
        )?,
        listen,
        required(args.ring.clone().or(file.ring), "--ring", "ring")?,
        required(args.node.clone().or(file.node), "--node", "node")?,
        required(args.zone.clone().or(file.zone), "--zone", "zone")?,
        control,
    );
    Ok(KvConfig {
        advertise: advertise
            .map(|text| config::endpoint(&text, "--advertise"))
            .transpose()?,
        weight,
        metrics_listen,
        // 0 is no throttle at all, as everywhere.
        copy_limits: CopyLimits {
            bytes_in: limit(args.throttle.or(file.copy_bytes_per_second)),
            bytes_out: limit(args.throttle_out.or(file.serve_bytes_per_second)),
            bytes_between_zones: limit(args.throttle_zone.or(file.zone_bytes_per_second)),
            eases: !args.no_ease && file.ease_copies.unwrap_or(true),
        },
        replicate_delay_ms: args
            .replicate_delay_ms
            .or(file.replicate_delay_ms)
            .unwrap_or(0),
        ..base
    })
}
