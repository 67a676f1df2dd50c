//! `annulus node`: joining, draining and showing data nodes.

use std::io::{self, Write};

use annulus_ring::{NodeId, RingName};
use serde::Serialize;

use crate::{
    args::{ChangeArgs, Global, NodeCommand},
    connect::{Accepted, Admin, Read},
    exit::{Failure, Result},
    progress,
    render::{self, Render, Wide},
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
            follow(
                global,
                &admin,
                Asked {
                    ring,
                    node,
                    by: None,
                    kind: "join",
                },
                accepted,
                &change,
            )
            .await
        }
        NodeCommand::Drain { ring, node, change } => {
            let accepted = admin.drain(&ring, &node, change.expect_layout).await?;
            follow(
                global,
                &admin,
                Asked {
                    ring,
                    node,
                    by: None,
                    kind: "drain",
                },
                accepted,
                &change,
            )
            .await
        }
        NodeCommand::Replace {
            ring,
            node,
            by,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.replace(&ring, &node, &by, expected).await?;
            let asked = Asked {
                ring,
                node,
                by: Some(by),
                kind: "replace",
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        NodeCommand::Weight {
            ring,
            node,
            weight,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.weight(&ring, &node, weight, expected).await?;
            let asked = Asked {
                ring,
                node,
                by: None,
                kind: "weight",
            };
            follow(global, &admin, asked, accepted, &change).await
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

struct Asked {
    ring: RingName,
    node: NodeId,
    /// Who comes in its place.
    by: Option<NodeId>,
    kind: &'static str,
}

/// Those of the nodes that the leader does not hear: the change waits for them. Without an answer
/// nothing is said; the change does not depend on it.
async fn unheard(
    admin: &Admin,
    ring: &RingName,
    nodes: impl Iterator<Item = &NodeId>,
) -> Vec<String> {
    let Ok(status) = admin.ring_quietly(ring).await else {
        return Vec::new();
    };
    let note = |node: &NodeId| {
        let known = status
            .nodes
            .iter()
            .find(|known| known.node == node.as_str() && known.linked == Some(false))?;
        let heard = known.heard();
        Some(format!(
            "{node} is not linked, last heard {heard}: the change waits until its agent runs"
        ))
    };
    nodes.filter_map(note).collect()
}

async fn follow(
    global: &Global,
    admin: &Admin,
    asked: Asked,
    accepted: Accepted,
    how: &ChangeArgs,
) -> Result {
    let Asked {
        ring,
        node,
        by,
        kind,
    } = asked;
    let mut accepted = accepted;
    let Accepted { change_id, .. } = accepted;
    let nodes = [Some(&node), by.as_ref()];
    let unheard = unheard(admin, &ring, nodes.into_iter().flatten()).await;
    accepted.notes.extend(unheard);
    if change_id == 0 {
        // Before founding a join only collects.
        let what = format!("{kind} of {node} is noted");
        return render::print(global.output, &Done::new(&ring, what, &accepted));
    }
    if how.detach {
        let what = format!("change {change_id}, {kind} {node}, is accepted");
        let next = progress::how_to_go_on(global, &ring, change_id);
        render::print(global.output, &Done::new(&ring, what, &accepted))?;
        eprintln!("{next}");
        return Ok(());
    }
    let sentence = format!("change {change_id}, {kind} {node}, is accepted");
    progress::say_accepted(global, &sentence, &accepted.notes);
    progress::wait(global, admin, &ring, change_id).await?;
    let epoch = admin
        .ring(&ring, Read::Leader)
        .await
        .map_or(accepted.epoch, |r| r.epoch.0);
    if kind == "drain" || kind == "replace" {
        accepted.notes.push(format!(
            "keep {node} running while `annulus status` lists it; its log says when it can be stopped"
        ));
    }
    let what = format!("change {change_id}, {kind} {node}, is done");
    render::print(
        global.output,
        &Done::new(&ring, what, &Accepted { epoch, ..accepted }),
    )
}

#[derive(Serialize)]
struct Done {
    ring: String,
    change_id: Wide,
    epoch: Wide,
    what: String,
    notes: Vec<String>,
}

impl Done {
    fn new(ring: &RingName, what: String, accepted: &Accepted) -> Self {
        let Accepted {
            change_id,
            epoch,
            notes,
            ..
        } = accepted;
        let (change_id, epoch, notes) = (Wide(*change_id), Wide(*epoch), notes.clone());
        Self {
            ring: ring.to_string(),
            change_id,
            epoch,
            what,
            notes,
        }
    }
}

impl Render for Done {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "ring {}: {}, epoch {}",
            self.ring, self.what, self.epoch
        )?;
        self.notes
            .iter()
            .try_for_each(|note| writeln!(out, "note: {note}"))
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
