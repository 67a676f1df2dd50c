
use std::time::Duration;
use super::cluster::Cluster;
use crate::load::{Load, LoadConfig};

fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_six() {
    let cluster = Cluster::start(6, 6).await;
    let client = cluster.client().await;
    let mut config = LoadConfig::new(LoadConfig::synthetic_keys(100_000));
    config.read_percent = 0;
    let mut load = Load::new(client, config).unwrap();
    let c = cpu();
    let filled = load.fill(Duration::from_secs(60)).await.unwrap();
    eprintln!("{filled:?} cpu {}", cpu() - c);
    let c = cpu();
    let running = load.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let load = running.stop().await;
    let counts = load.counts();
    eprintln!("cpu {} writes/s {} {counts:?}", cpu() - c, counts.writes_per_second());
    let mut commits = 0; let mut jobs = 0;
    for node in cluster.nodes.iter().flatten() { let stats = node.node.store.stats(); commits += stats.commits.get(); jobs += stats.jobs.get(); }
    eprintln!("commits {commits} jobs {jobs}");
    let mut load = load;
    let begun = std::time::Instant::now();
    let c = cpu();
    let report = load.check(Duration::from_secs(60)).await;
    eprintln!("check {:?} clean {} cpu {}", begun.elapsed(), report.is_clean(), cpu() - c);
}
