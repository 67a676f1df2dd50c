//! `annulus node`: joining, draining and showing data nodes.

use std::io::{self, Write};

use annulus_proto::v1;
use serde::Serialize;

use crate::{
    args::{BurialArgs, Global, NodeCommand},
    connect::{Accepted, Admin, Read},
    exit::{Failure, Result},
    follow::{Asked, Done, follow},
    render::{self, Render},
    restart,
    views::{NodeView, write_nodes},
};

/// Runs `annulus node ..`.
pub async fn run(global: &Global, command: NodeCommand) -> Result {
    let admin = Admin::new(global)?;
    match command {
        NodeCommand::Join {
            ring,
            node,
            zone,
            weight,
            change,
        } => {
            let accepted = admin
                .join(&ring, &node, zone, weight, change.expect_layout)
                .await?;
            let asked = Asked::of(ring, "join", node);
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Drain {
            ring,
            node,
            steps,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.drain(&ring, &node, steps, expected).await?;
            let asked = Asked {
                leaves: vec![node.clone()],
                ..Asked::of(ring, "drain", node)
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Replace {
            ring,
            node,
            by,
            dead,
            burial,
            change,
        } => {
            let expected = change.expect_layout;
            let burial = dead.then(|| said(burial));
            let accepted = admin.replace(&ring, &node, &by, burial, expected).await?;
            let what = format!("replace {node}");
            // Nothing waits for the dead, and nobody needs it to go on.
            let asked = if dead {
                Asked {
                    what,
                    ..Asked::of(ring, "replace", by)
                }
            } else {
                Asked {
                    ring,
                    what,
                    nodes: vec![node.clone(), by],
                    leaves: vec![node],
                }
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Remove {
            ring,
            node,
            dead: _,
            burial,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.remove(&ring, &node, said(burial), expected).await?;
            let asked = Asked {
                nodes: Vec::new(),
                ..Asked::of(ring, "remove", node)
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Weight {
            ring,
            node,
            weight,
            steps,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.weight(&ring, &node, weight, steps, expected).await?;
            let asked = Asked::of(ring, "weight", node);
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Zone {
            ring,
            node,
            zone,
            accept,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.zone(&ring, &node, &zone, accept, expected).await?;
            let asked = Asked {
                what: format!("zone {node} to {zone}"),
                ..Asked::of(ring, "zone", node)
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Maintain {
            ring,
            node,
            time,
            end: _,
            accept,
        } => {
            let answer = admin.maintain(&ring, &node, time, accept).await?;
            let what = match time {
                Some(time) => {
                    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                    format!("{node} is in maintenance for {}", render::span(ms))
                }
                None => format!("{node} is no longer in maintenance"),
            };
            render::print(global.output, &Done::new(&ring, what, &answer))
        }
        NodeCommand::OkToRestart { ring, nodes } => {
            restart::run(global, &admin, &ring, &nodes).await
        }
        NodeCommand::Abort { ring, change } => {
            let aborted = admin.abort(&ring, change).await?;
            // The answer to an abort accepts no new change; what it is about is the old one.
            let aborted = Accepted {
                change_id: change,
                ..aborted
            };
            let done = Done::new(&ring, format!("change {change} is withdrawn"), &aborted);
            render::print(global.output, &done)
        }
        NodeCommand::Settle { ring } => {
            let settled = admin.settle(&ring).await?;
            render::print(
                global.output,
                &Done::new(&ring, "the soak is over".to_owned(), &settled),
            )
        }
        NodeCommand::List { ring, local } => {
            let nodes = admin.ring(&ring, Read::from(local)).await?.nodes;
            render::print(global.output, &NodeList { nodes })
        }
        NodeCommand::Show { ring, node, local } => {
            let nodes = admin.ring(&ring, Read::from(local)).await?.nodes;
            let found = nodes.into_iter().find(|known| known.node == node.as_str());
            let node = found.ok_or_else(|| {
                Failure::refused(
                    format!("ring {ring} knows no node {node}"),
                    format!("`annulus node list {ring}` shows those it knows"),
                )
            })?;
            render::print(global.output, &node)
        }
    }
}

#[derive(Serialize)]
struct NodeList {
    nodes: Vec<NodeView>,
}

impl Render for NodeList {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        write_nodes(out, &self.nodes)
    }
}

impl Render for NodeView {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        write_nodes(out, std::slice::from_ref(self))
    }
}

fn said(burial: BurialArgs) -> v1::Burial {
    v1::Burial {
        lost: burial.lost.unwrap_or_default().0,
        stopped: burial.stopped,
    }
}
