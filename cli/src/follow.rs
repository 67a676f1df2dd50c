//! What follows on a change that was asked for: waiting for it, and saying how it went.

use std::io::{self, Write};

use annulus_ring::{NodeId, RingName};
use serde::Serialize;

use crate::{
    args::{ChangeArgs, Global},
    connect::{Accepted, Admin, Read},
    exit::Result,
    progress,
    render::{self, Render, Wide},
};

/// What was asked for.
pub struct Asked {
    /// Of which ring.
    pub ring: RingName,
    /// In words: "join n7".
    pub what: String,
    /// Without whom nothing goes on.
    pub nodes: Vec<NodeId>,
    /// Who leaves by it, and is part of the ring until the end.
    pub leaves: Vec<NodeId>,
}

impl Asked {
    /// A change of one node, which stays or comes.
    pub fn of(ring: RingName, kind: &str, node: NodeId) -> Self {
        Self {
            ring,
            what: format!("{kind} {node}"),
            nodes: vec![node],
            leaves: Vec::new(),
        }
    }
}

/// Those of the nodes that the leader does not hear: the change waits for them. Without an answer
/// nothing is said; the change does not depend on it.
async fn unheard(admin: &Admin, ring: &RingName, nodes: &[NodeId]) -> Vec<String> {
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
    nodes.iter().filter_map(note).collect()
}

/// Waits for an accepted change, unless told not to, and prints what became of it.
pub async fn follow(
    global: &Global,
    admin: &Admin,
    asked: Asked,
    accepted: Accepted,
    how: &ChangeArgs,
) -> Result {
    let Asked {
        ring,
        what,
        nodes,
        leaves,
    } = asked;
    let mut accepted = accepted;
    let Accepted { change_id, .. } = accepted;
    accepted.notes.extend(unheard(admin, &ring, &nodes).await);
    if change_id == 0 {
        // Before founding a join only collects.
        return render::print(
            global.output,
            &Done::new(&ring, format!("{what} is noted"), &accepted),
        );
    }
    if how.detach {
        let told = format!("change {change_id}, {what}, is accepted");
        let next = progress::how_to_go_on(global, &ring, change_id);
        render::print(global.output, &Done::new(&ring, told, &accepted))?;
        eprintln!("{next}");
        return Ok(());
    }
    let sentence = format!("change {change_id}, {what}, is accepted");
    progress::say_accepted(global, &sentence, &accepted.notes);
    progress::wait(global, admin, &ring, change_id).await?;
    let epoch = admin
        .ring(&ring, Read::Leader)
        .await
        .map_or(accepted.epoch, |r| r.epoch.0);
    for node in leaves {
        accepted.notes.push(format!(
            "keep {node} running while `annulus status` lists it; its log says when it can be stopped"
        ));
    }
    let told = format!("change {change_id}, {what}, is done");
    render::print(
        global.output,
        &Done::new(&ring, told, &Accepted { epoch, ..accepted }),
    )
}

/// What was done to a ring.
#[derive(Serialize)]
pub struct Done {
    ring: String,
    change_id: Wide,
    epoch: Wide,
    what: String,
    notes: Vec<String>,
}

impl Done {
    /// What, at which epoch, with what is to be known.
    pub fn new(ring: &RingName, what: String, accepted: &Accepted) -> Self {
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
