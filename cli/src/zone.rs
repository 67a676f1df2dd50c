//! `annulus zone`: what is done to all members of a zone at once.

use annulus_ring::NodeId;

use crate::{
    args::{Global, ZoneCommand},
    connect::{Admin, Read},
    exit::Result,
    follow::{Asked, follow},
};

/// Runs `annulus zone ..`.
pub async fn run(global: &Global, command: ZoneCommand) -> Result {
    let admin = Admin::new(global)?;
    match command {
        ZoneCommand::Drain {
            ring,
            zone,
            accept,
            change,
        } => {
            let status = admin.ring(&ring, Read::Leader).await?;
            let inside = status
                .nodes
                .iter()
                .filter(|node| node.member && node.zone == zone.as_str());
            let leaves: Vec<NodeId> = inside.filter_map(|node| node.node.parse().ok()).collect();
            let expected = change.expect_layout;
            let accepted = admin.drain_zone(&ring, &zone, accept, expected).await?;
            let asked = Asked {
                ring,
                what: format!("drain zone {zone}"),
                nodes: leaves.clone(),
                leaves,
            };
            follow(global, &admin, asked, accepted, &change).await
        }
    }
}
