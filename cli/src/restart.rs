//! `annulus node ok-to-restart`: who can be stopped together.

use std::io::{self, Write};

use annulus_proto::v1::OkToRestartResponse;
use annulus_ring::{NodeId, RingName};
use serde::Serialize;

use crate::{
    args::Global,
    connect::Admin,
    exit::{Failure, Result},
    render::{self, Render},
};

#[derive(Serialize)]
struct Answer {
    ring: String,
    /// All that were asked about can be stopped at the same time.
    together: bool,
    /// One after the other.
    batches: Vec<Vec<String>>,
    blocked: Vec<Blocked>,
}

#[derive(Serialize)]
struct Blocked {
    node: String,
    slot: u32,
    /// Members of the slot that would be up, and how many it needs.
    up: u32,
    need: u32,
}

impl Answer {
    fn new(ring: &RingName, answer: OkToRestartResponse) -> Self {
        let batches = answer.batches.into_iter().map(|batch| batch.nodes);
        let blocked = answer.blocked.into_iter().map(|one| Blocked {
            node: one.node,
            slot: one.slot,
            up: one.up,
            need: one.need,
        });
        Self {
            ring: ring.to_string(),
            together: answer.together,
            batches: batches.collect(),
            blocked: blocked.collect(),
        }
    }
}

impl Render for Answer {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        for (at, batch) in self.batches.iter().enumerate() {
            writeln!(out, "batch {}: {}", at + 1, batch.join(" "))?;
        }
        for Blocked {
            node,
            slot,
            up,
            need,
        } in &self.blocked
        {
            writeln!(
                out,
                "not {node}: slot {slot} would have {up} member(s) up, {need} are needed"
            )?;
        }
        Ok(())
    }
}

/// Prints the batches; whether the nodes can be stopped is the exit code.
pub async fn run(global: &Global, admin: &Admin, ring: &RingName, nodes: &[NodeId]) -> Result {
    let answer = Answer::new(ring, admin.ok_to_restart(ring, nodes).await?);
    render::print(global.output, &answer)?;
    let blocked: Vec<&str> = answer.blocked.iter().map(|one| one.node.as_str()).collect();
    if !blocked.is_empty() {
        return Err(Failure::refused(
            format!("{} cannot be stopped now", blocked.join(", ")),
            "wait until the others are back; `annulus status` shows who is missing",
        ));
    }
    if !nodes.is_empty() && !answer.together {
        return Err(Failure::refused(
            "not all of them at once",
            "stop one batch, wait until `annulus status` shows it up, then stop the next",
        ));
    }
    Ok(())
}
