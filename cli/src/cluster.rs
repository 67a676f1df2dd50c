//! `annulus cluster`: founding the control plane, and its servers.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    args::{ClusterCommand, Global},
    connect::{Admin, Read},
    exit::Result,
    render::{self, Render},
    views::ClusterView,
};

/// Runs `annulus cluster ..`.
pub async fn run(global: &Global, command: ClusterCommand) -> Result {
    match command {
        ClusterCommand::Init { servers } => init(global, servers).await,
        ClusterCommand::Status { local } => {
            let cluster = Admin::new(global)?.cluster(Read::from(local)).await?;
            render::print(global.output, &Servers(cluster))
        }
    }
}

#[derive(Serialize)]
struct Founded {
    cluster_id: String,
    servers: Vec<FoundedServer>,
}

#[derive(Serialize)]
struct FoundedServer {
    id: render::Wide,
    endpoint: String,
}

impl Render for Founded {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "cluster {} has {} server(s)",
            self.cluster_id,
            self.servers.len()
        )
    }
}

async fn init(global: &Global, servers: Vec<(u64, String)>) -> Result {
    let servers = if servers.is_empty() {
        (1..).zip(global.endpoints.iter().cloned()).collect()
    } else {
        servers
    };
    // Any of them can found it, and they need not be the endpoints of later commands.
    let endpoints = servers
        .iter()
        .map(|(_, endpoint)| endpoint.clone())
        .collect();
    let admin = Admin::new(&Global {
        endpoints,
        ..global.clone()
    })?;
    let cluster_id = admin.init_cluster(&servers).await?;
    let server = |(id, endpoint): (u64, String)| FoundedServer {
        id: id.into(),
        endpoint,
    };
    let servers = servers.into_iter().map(server).collect();
    render::print(
        global.output,
        &Founded {
            cluster_id,
            servers,
        },
    )
}

/// The control plane without its rings.
#[derive(Serialize)]
#[serde(transparent)]
struct Servers(ClusterView);

impl Render for Servers {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0.servers_table(out)
    }
}
