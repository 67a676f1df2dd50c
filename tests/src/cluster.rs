//! A control plane and data nodes as processes on loopback, in a directory of their own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use annulus_client::Client;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{self, Ran},
    ports,
    process::Process,
    wait::until,
};

/// How long an election, a start or a registration may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);
/// How long a whole change may take.
pub const CHANGE: Duration = Duration::from_secs(150);

/// Real processes; all end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    binary: PathBuf,
    /// Where each server listens; server `i` has the number `i + 1`.
    pub endpoints: Vec<String>,
    /// In the order of their numbers.
    pub servers: Vec<Process>,
    /// By name.
    pub nodes: BTreeMap<String, Node>,
    // Dropped last, after the processes that write into it.
    dir: TempDir,
}

/// A data node.
#[derive(Debug)]
pub struct Node {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub endpoint: String,
    /// Where its data lives.
    pub data_dir: PathBuf,
}

/// A data node to be started.
#[derive(Clone, Debug, Default)]
pub struct NodePlan<'a> {
    /// Which ring.
    pub ring: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its zone.
    pub zone: &'a str,
    /// Its weight, if not the default.
    pub weight: Option<u32>,
    /// Bytes a second that it copies from each source.
    pub throttle: Option<u64>,
    /// How much later it takes in what is replicated to it.
    pub replicate_delay_ms: Option<u64>,
}

/// A ring to be created.
#[derive(Clone, Copy, Debug)]
pub struct RingPlan<'a> {
    /// Its name.
    pub name: &'a str,
    /// k.
    pub slot_bits: u8,
    /// Soak, such as `1s`.
    pub soak: &'a str,
    /// Grace, such as `2s`.
    pub grace: &'a str,
}

impl<'a> RingPlan<'a> {
    /// A small ring of short times.
    #[must_use]
    pub fn small(name: &'a str) -> Self {
        Self {
            name,
            slot_bits: 5,
            soak: "200ms",
            grace: "1s",
        }
    }
}

impl Cluster {
    /// Three servers that belong together and have a leader.
    pub async fn start(binary: &str) -> Self {
        Self::found(Self::new(binary, 3, None)).await
    }

    /// [`Self::start`], with at least this long between two epochs of a ring: every step of a
    /// transition lasts so long.
    pub async fn start_paced(binary: &str, epoch_interval: Duration) -> Self {
        Self::found(Self::new(binary, 3, Some(epoch_interval))).await
    }

    async fn found(mut cluster: Self) -> Self {
        cluster.start_servers();
        let mut args = vec!["cluster".to_owned(), "init".to_owned()];
        args.extend(
            (1..)
                .zip(&cluster.endpoints)
                .map(|(id, at)| format!("{id}={at}")),
        );
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // The servers may not listen yet: nothing was changed then, and the same is asked again. If
        // an answer got lost, the next one says that it was done.
        until(SOON, "the control plane to be founded", || async {
            let ran = cluster.annulus(&args).await;
            let already = ran.code == 3 && ran.stderr.contains("already");
            if ran.code == 0 || already {
                Ok(())
            } else {
                Err(format!("{ran:?}"))
            }
        })
        .await;
        cluster.leader().await;
        cluster
    }

    /// Servers that are not started yet.
    ///
    /// # Panics
    /// If there is no place for their files.
    #[must_use]
    pub fn new(binary: &str, servers: usize, epoch_interval: Option<Duration>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("annulus-it-")
            .tempdir()
            .expect("a directory");
        let endpoints: Vec<String> = (0..servers).map(|_| ports::free_endpoint()).collect();
        let binary = PathBuf::from(binary);
        let mut options = Vec::new();
        if let Some(interval) = epoch_interval {
            let file = dir.path().join("server.toml");
            let text = format!("[limits]\nepoch_interval_ms = {}\n", interval.as_millis());
            std::fs::write(&file, text).expect("the directory takes a file");
            options.extend(["--config".to_owned(), file.display().to_string()]);
        }
        let servers = (1..)
            .zip(&endpoints)
            .map(|(id, endpoint): (u32, _)| {
                let name = format!("s{id}");
                let data = dir.path().join(&name).display().to_string();
                let args = [
                    "serve",
                    "--id",
                    &id.to_string(),
                    "--listen",
                    endpoint,
                    "--data-dir",
                    &data,
                ];
                let args = args
                    .map(str::to_owned)
                    .into_iter()
                    .chain(options.clone())
                    .collect();
                Process::new(&name, &binary, dir.path(), args)
            })
            .collect();
        Self {
            binary,
            endpoints,
            servers,
            nodes: BTreeMap::new(),
            dir,
        }
    }

    /// Starts all servers that do not run.
    pub fn start_servers(&mut self) {
        for server in &mut self.servers {
            if !server.is_running() {
                server.start();
            }
        }
    }

    /// SIGKILL to all servers at once.
    pub async fn kill_servers(&mut self) {
        futures::future::join_all(self.servers.iter_mut().map(Process::kill)).await;
    }

    /// A directory that goes with the cluster.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The binary under test.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs a command against all servers.
    pub async fn annulus(&self, args: &[&str]) -> Ran {
        command::run(&self.binary, &self.endpoints, args).await
    }

    /// Runs a command against these endpoints.
    pub async fn annulus_at(&self, endpoints: &[String], args: &[&str]) -> Ran {
        command::run(&self.binary, endpoints, args).await
    }

    /// Index into [`Self::servers`] of the leader that a linearizable answer names.
    pub async fn leader(&self) -> usize {
        until(SOON, "a leader", || async {
            let ran = self
                .annulus(&["cluster", "status", "-o", "json", "--timeout", "3s"])
                .await;
            let status: Option<Value> = serde_json::from_str(&ran.stdout).ok();
            let leader =
                status.and_then(|status| status["leader_id"].as_str()?.parse::<usize>().ok());
            match leader {
                Some(id) if ran.code == 0 => Ok(id - 1),
                _ => Err(format!("{ran:?}")),
            }
        })
        .await
    }

    /// Creates a ring.
    pub async fn create_ring(&self, plan: RingPlan<'_>) {
        let RingPlan {
            name,
            slot_bits,
            soak,
            grace,
        } = plan;
        let bits = slot_bits.to_string();
        let args = [
            "ring",
            "create",
            name,
            "--slot-bits",
            &bits,
            "--soak",
            soak,
            "--grace",
            grace,
        ];
        let _ = self.annulus(&args).await.done();
    }

    /// How a node would be started; nothing is started yet.
    #[must_use]
    pub fn plan(&self, plan: &NodePlan<'_>) -> Node {
        let NodePlan {
            ring,
            name,
            zone,
            weight,
            throttle,
            replicate_delay_ms,
        } = plan;
        let endpoint = ports::free_endpoint();
        let data_dir = self.dir.path().join(format!("{ring}-{name}"));
        let mut args: Vec<String> = [
            "kv", "serve", "--ring", ring, "--node", name, "--zone", zone,
        ]
        .map(str::to_owned)
        .to_vec();
        let mut option = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        option("--listen", endpoint.clone());
        option("--data-dir", data_dir.display().to_string());
        option("--endpoints", self.endpoints.join(","));
        if let Some(weight) = weight {
            option("--weight", weight.to_string());
        }
        if let Some(throttle) = throttle {
            option("--throttle", throttle.to_string());
        }
        if let Some(delay) = replicate_delay_ms {
            option("--replicate-delay-ms", delay.to_string());
        }
        let process = Process::new(
            &format!("{ring}-{name}"),
            &self.binary,
            self.dir.path(),
            args,
        );
        Node {
            process,
            endpoint,
            data_dir,
        }
    }

    /// Starts a data node with an empty directory. It is not registered yet when this returns.
    pub fn add_node(&mut self, plan: &NodePlan<'_>) {
        let mut node = self.plan(plan);
        node.process.start();
        self.nodes.insert(plan.name.to_owned(), node);
    }

    /// Starts one node per (name, zone) and waits until all are registered.
    pub async fn add_nodes(&mut self, ring: &str, nodes: &[(&str, &str)]) {
        for (name, zone) in nodes {
            self.add_node(&NodePlan {
                ring,
                name,
                zone,
                ..NodePlan::default()
            });
        }
        let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
        self.registered(ring, &names).await;
    }

    /// Waits until the leader hears all these nodes.
    pub async fn registered(&self, ring: &str, names: &[&str]) {
        until(
            SOON,
            format!("{names:?} of ring {ring} to register"),
            || async {
                let ran = self.annulus(&["node", "list", ring, "-o", "json"]).await;
                let list: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
                let linked = |name: &str| {
                    let nodes = list["nodes"].as_array();
                    nodes.is_some_and(|nodes| {
                        nodes
                            .iter()
                            .any(|node| node["node"] == name && node["linked"] == true)
                    })
                };
                match names.iter().find(|name| !linked(name)) {
                    None => Ok(()),
                    Some(missing) => Err(format!("{missing} is missing in {ran:?}")),
                }
            },
        )
        .await;
    }

    /// A ring founded with these (name, zone), all of whose nodes have adopted it.
    pub async fn founded_ring(&mut self, plan: RingPlan<'_>, nodes: &[(&str, &str)]) {
        self.create_ring(plan).await;
        self.add_nodes(plan.name, nodes).await;
        let mut args = vec!["ring", "found", plan.name];
        args.extend(nodes.iter().map(|(name, _)| *name));
        let _ = self.annulus(&args).await.done();
        self.adopted(plan.name).await;
    }

    /// Waits until every member acts by the newest epoch.
    pub async fn adopted(&self, ring: &str) {
        until(
            SOON,
            format!("all nodes of {ring} to adopt its epoch"),
            || async {
                let show = self.show(ring).await;
                let members = || {
                    show["nodes"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter(|n| n["member"] == true)
                };
                let all = members().all(|node| node["adopted_epoch"] == show["epoch"]);
                if all && members().next().is_some() {
                    Ok(())
                } else {
                    Err(show["nodes"].to_string())
                }
            },
        )
        .await;
    }

    /// `annulus ring show RING`, as JSON.
    pub async fn show(&self, ring: &str) -> Value {
        until(SOON, format!("an answer about ring {ring}"), || async {
            let ran = self.annulus(&["ring", "show", ring, "-o", "json"]).await;
            if ran.code == 0 {
                Ok(ran.json())
            } else {
                Err(format!("{ran:?}"))
            }
        })
        .await
    }

    /// The ring's epoch.
    pub async fn epoch(&self, ring: &str) -> u64 {
        let show = self.show(ring).await;
        wide(&show["epoch"])
    }

    /// The member's state, or `registered`, or nothing if the ring does not know it.
    pub async fn state_of(&self, ring: &str, node: &str) -> Option<String> {
        let show = self.show(ring).await;
        let nodes = show["nodes"].as_array()?;
        let found = nodes.iter().find(|known| known["node"] == node)?;
        found["state"].as_str().map(str::to_owned)
    }

    /// Asks for a change without waiting for it, and gives its number.
    pub async fn change(&self, kind: &str, ring: &str, node: &str) -> u64 {
        let ran = self
            .annulus(&["node", kind, ring, node, "--detach", "-o", "json"])
            .await;
        wide(&ran.json()["change_id"])
    }

    /// Waits until a change is in this state; the end that it must not have fails at once.
    pub async fn change_is(&self, ring: &str, change: u64, wanted: &str) {
        until(
            CHANGE,
            format!("change {change} of ring {ring} to be {wanted}"),
            || async {
                let show = self.show(ring).await;
                let id = change.to_string();
                let changes = show["changes"].as_array();
                let found = changes.and_then(|all| all.iter().find(|known| known["id"] == *id));
                let Some(found) = found else {
                    return Err(format!("not listed: {show}"));
                };
                match found["state"].as_str().unwrap_or_default() {
                    state if state == wanted => Ok(()),
                    state @ ("done" | "aborted" | "refused") => {
                        panic!("change {change} ended {state}, expected {wanted}: {found}")
                    }
                    _ => Err(format!("{found}, {}", show["transition"])),
                }
            },
        )
        .await;
    }

    /// Joins or drains a node and waits for the end.
    pub async fn change_to_its_end(&self, kind: &str, ring: &str, node: &str) {
        let change = self.change(kind, ring, node).await;
        self.change_is(ring, change, "done").await;
    }

    /// A client of a ring that holds a snapshot.
    ///
    /// # Panics
    /// If there is none soon.
    pub async fn client(&self, ring: &str) -> Client {
        let client = Client::builder(ring)
            .endpoints(&self.endpoints)
            .name("a test")
            .connect_lazy();
        let client = client.expect("the settings make sense");
        client.ready(SOON).await.expect("the ring is published");
        client
    }

    /// Where a data node listens.
    #[must_use]
    pub fn node_endpoint(&self, node: &str) -> String {
        self.nodes[node].endpoint.clone()
    }

    /// What nobody may ever write: every process's log is looked through.
    ///
    /// # Panics
    /// If some process panicked.
    pub fn nobody_panicked(&self) {
        for process in self.processes() {
            let log = process.log();
            assert!(
                !log.contains("panicked at"),
                "{} panicked\n{}",
                process.name,
                process.tail()
            );
        }
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.servers
            .iter()
            .chain(self.nodes.values().map(|node| &node.process))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.processes() {
                eprint!("{}", process.tail());
            }
            if std::env::var_os("ANNULUS_KEEP").is_some() {
                self.dir.disable_cleanup(true);
                eprintln!("kept: {}", self.dir.path().display());
            }
        }
    }
}

/// A 64-bit number of the JSON, where it is a string.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn wide(value: &Value) -> u64 {
    let text = value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no string"));
    text.parse()
        .unwrap_or_else(|error| panic!("{value}: {error}"))
}
