//! The processes of a run: three servers, six nodes and one more, and how they are started.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use annulus_ring::{NodeId, RingName};
use tokio::net::TcpStream;

use super::{
    children::{Process, free_ports, stop_all},
    plan::{self, Plan},
};
use crate::{
    args::{self, CreateArgs, Global, Output},
    connect::Admin,
    exit::{Failure, Kind, Result},
};

/// How long servers and nodes may take to come up.
const START_LIMIT: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(25);

/// All processes, and the way to ask them.
pub struct Cluster {
    servers: Vec<Process>,
    nodes: Vec<Process>,
    /// host:port of each server, by number from 1.
    pub endpoints: Vec<String>,
    /// Asks any server.
    pub admin: Admin,
    dir: PathBuf,
    node_ports: Vec<u16>,
    throttle_bytes_per_s: u64,
}

impl Cluster {
    /// Chooses ports and prepares directories; starts nothing.
    pub fn prepare(dir: &Path, plan: &Plan, well_known_ports: bool) -> Result<Self> {
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs).map_err(|error| {
            Failure::usage(
                format!("{}: {error}", logs.display()),
                "name a directory to write to",
            )
        })?;
        let wanted: &[u16] = if well_known_ports {
            &[7001, 7002, 7003]
        } else {
            &[]
        };
        let mut ports = free_ports(plan::SERVERS as usize + plan::JOINER, wanted)?;
        let node_ports = ports.split_off(plan::SERVERS as usize);
        let endpoints: Vec<String> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let servers = (1..)
            .zip(&endpoints)
            .map(|(id, endpoint)| server(id, endpoint, dir, &logs))
            .collect();
        let global = Global {
            endpoints: endpoints.clone(),
            output: Output::Table,
            timeout: Duration::from_secs(5),
        };
        let mut cluster = Self {
            servers,
            nodes: Vec::new(),
            endpoints,
            admin: Admin::new(&global)?,
            dir: dir.to_owned(),
            node_ports,
            throttle_bytes_per_s: plan.throttle_bytes_per_s,
        };
        cluster.nodes = (1..=plan::JOINER)
            .map(|number| cluster.node(number))
            .collect();
        Ok(cluster)
    }

    fn node(&self, number: usize) -> Process {
        let name = node_name(number);
        let args = [
            "kv".to_owned(),
            "serve".to_owned(),
            format!("--ring={}", plan::RING),
            format!("--node={name}"),
            format!("--zone={}", plan::zone(number)),
            format!("--listen=127.0.0.1:{}", self.node_ports[number - 1]),
            format!("--data-dir={}", self.dir.join(&name).display()),
            format!("--throttle={}", self.throttle_bytes_per_s),
            format!("--endpoints={}", self.endpoints.join(",")),
        ];
        Process::new(&name, &self.dir.join("logs"), args.to_vec())
    }

    /// Starts the servers and the first nodes, founds cluster and ring.
    pub async fn found(&mut self) -> Result {
        let deadline = Instant::now() + START_LIMIT;
        self.servers.iter_mut().try_for_each(Process::start)?;
        let servers: Vec<(u64, String)> = (1..).zip(self.endpoints.iter().cloned()).collect();
        for endpoint in self.endpoints.clone() {
            while TcpStream::connect(&endpoint).await.is_err() {
                let failure =
                    Failure::failed(format!("{endpoint} does not listen"), "read the logs");
                self.again(failure, deadline).await?;
            }
        }
        loop {
            match self.admin.init_cluster(&servers).await {
                Ok(_) => break,
                Err(failure) => self.again(failure, deadline).await?,
            }
        }
        let ring: RingName = plan::RING.parse().expect("a plain word is a name");
        let create = CreateArgs {
            ring: ring.clone(),
            slot_bits: plan::SLOT_BITS,
            rf: 3,
            w: None,
            r: None,
            hash: "xxh3-64".to_owned(),
            seed: 0,
            soak: Some(plan::SOAK),
            grace: Some(plan::GRACE),
            kind: args::Kind::Durable,
            warm_up: None,
            hit_ratio: None,
            stop_when_isolated: false,
            found_with: Vec::new(),
            accept: false,
        };
        loop {
            match self.admin.create_ring(&create).await {
                Ok(_) => break,
                Err(failure) => self.again(failure, deadline).await?,
            }
        }
        // Not before: a node of an unknown ring is refused, and asks again only after a pause.
        self.nodes[..plan::NODES]
            .iter_mut()
            .try_for_each(Process::start)?;
        let founders: Vec<NodeId> = (1..=plan::NODES)
            .map(|number| node_name(number).parse().expect("a plain word is a name"))
            .collect();
        // Refused as long as a node has not said hello.
        loop {
            match self.admin.found_ring(&ring, &founders, false).await {
                Ok(_) => return Ok(()),
                Err(failure) => self.again(failure, deadline).await?,
            }
        }
    }

    /// Waits a moment before the next try; fails for good at the deadline or if a child ended.
    async fn again(&mut self, failure: Failure, deadline: Instant) -> Result {
        self.check()?;
        if Instant::now() >= deadline || failure.kind() == Kind::Usage {
            return Err(failure);
        }
        tokio::time::sleep(ASK_EVERY).await;
        Ok(())
    }

    /// Fails if a process ended by itself.
    pub fn check(&mut self) -> Result {
        self.servers
            .iter_mut()
            .chain(&mut self.nodes)
            .try_for_each(Process::check)
    }

    /// Starts node `number`.
    pub fn start_node(&mut self, number: usize) -> Result {
        self.nodes[number - 1].start()
    }

    /// Starts server `id`, again.
    pub fn start_server(&mut self, id: u64) -> Result {
        self.servers[id as usize - 1].start()
    }

    /// SIGKILLs server `id`.
    pub async fn kill_server(&mut self, id: u64) -> Result {
        self.servers[id as usize - 1].kill().await
    }

    /// Ends node `number` as an operator would.
    pub async fn stop_node(&mut self, number: usize) {
        stop_all(&mut self.nodes[number - 1..number]).await;
    }

    /// Ends all processes.
    pub async fn stop(&mut self) {
        stop_all(&mut self.nodes).await;
        stop_all(&mut self.servers).await;
    }
}

fn server(id: u64, endpoint: &str, dir: &Path, logs: &Path) -> Process {
    let name = format!("s{id}");
    let args = [
        "serve".to_owned(),
        format!("--id={id}"),
        format!("--listen={endpoint}"),
        format!("--data-dir={}", dir.join(&name).display()),
    ];
    Process::new(&name, logs, args.to_vec())
}

/// The name of node `number`.
pub fn node_name(number: usize) -> String {
    format!("n{number}")
}
