//! `annulus watch`: each epoch of a ring as it is published, and what changed in it.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use annulus_client::{Client, EpochRef};
use annulus_ring::Snapshot;
use serde::Serialize;

use crate::{
    args::{Global, Output, WatchArgs},
    changes::{self, Change},
    connect::Admin,
    exit::{Failure, Result},
    render::{self, Render, Wide},
};

/// How often it looks whether the servers still answer.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Age of the last word from a server from which on it is said.
const QUIET: Duration = Duration::from_secs(8);

#[derive(Serialize)]
struct Seen {
    record: &'static str,
    ring: String,
    generation: Wide,
    epoch: Wide,
    checksum: String,
    created_at_ms: Wide,
    /// Epochs between the last one shown and this one, which a slow reader is not sent.
    skipped: Wide,
    step: Option<&'static str>,
    changes: Vec<Change>,
}

/// Where a ring stands when the watching begins: nothing of it is a change.
#[derive(Serialize)]
struct At {
    record: &'static str,
    ring: String,
    generation: Wide,
    epoch: Wide,
    checksum: String,
    created_at_ms: Wide,
    step: Option<&'static str>,
    /// By name.
    members: Vec<AtMember>,
    /// Ranges that have an owner.
    ranges: Wide,
}

#[derive(Serialize)]
struct AtMember {
    node: String,
    zone: String,
    weight: u32,
    state: &'static str,
}

impl At {
    fn new(held: EpochRef, now: &Snapshot) -> Self {
        let table = &now.layout.slots;
        let owned = table.slots().filter(|slot| !table.list(*slot).is_empty());
        let member = |member: &annulus_ring::Member| AtMember {
            node: member.node_id.to_string(),
            zone: member.zone.to_string(),
            weight: member.weight.get(),
            state: member.state.as_str(),
        };
        Self {
            record: "at",
            ring: now.ring.to_string(),
            generation: Wide(now.generation.0),
            epoch: Wide(now.epoch.0),
            checksum: held.checksum.to_string(),
            created_at_ms: Wide(now.created_at_ms),
            step: step_of(now),
            members: now.members.iter().map(member).collect(),
            ranges: Wide(owned.count() as u64),
        }
    }
}

impl Render for At {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let step = self
            .step
            .map_or(String::new(), |step| format!("  step {step}"));
        let (checksum, ranges) = (render::short(&self.checksum), self.ranges);
        writeln!(out, "at epoch {}  checksum {checksum}{step}", self.epoch)?;
        let members = self.members.iter();
        let members: Vec<String> = members
            .map(|member| format!("{} {}", member.node, member.state))
            .collect();
        let members = match members.len() {
            0 => "no members".to_owned(),
            _ => members.join(", "),
        };
        writeln!(out, "  {members}; {ranges} range(s)")
    }
}

fn step_of(snapshot: &Snapshot) -> Option<&'static str> {
    let transition = snapshot.transition.as_ref()?;
    Some(transition.step.as_str())
}

impl Seen {
    fn new(held: EpochRef, old: &Snapshot, new: &Snapshot) -> Self {
        let skipped = if old.generation == new.generation {
            new.epoch.0.saturating_sub(old.epoch.0 + 1)
        } else {
            0
        };
        Self {
            record: "epoch",
            ring: new.ring.to_string(),
            generation: Wide(new.generation.0),
            epoch: Wide(new.epoch.0),
            checksum: held.checksum.to_string(),
            created_at_ms: Wide(new.created_at_ms),
            skipped: Wide(skipped),
            step: step_of(new),
            changes: changes::between(old, new),
        }
    }
}

impl Render for Seen {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let step = self
            .step
            .map_or(String::new(), |step| format!("  step {step}"));
        let checksum = render::short(&self.checksum);
        writeln!(out, "epoch {}  checksum {checksum}{step}", self.epoch)?;
        if self.skipped.0 > 0 {
            writeln!(
                out,
                "  ({} epoch(s) in between were not sent)",
                self.skipped
            )?;
        }
        self.changes
            .iter()
            .try_for_each(|change| writeln!(out, "  {change}"))
    }
}

/// Runs `annulus watch`, until Ctrl-C or `--count`.
pub async fn run(global: &Global, args: &WatchArgs) -> Result {
    let client = Client::builder(&args.ring)
        .endpoints(&global.endpoints)
        .name("annulus watch")
        .connect_lazy()
        .map_err(|error| Failure::usage(error, "correct --endpoints"))?;
    let admin = Admin::new(global)?;
    admin.first_snapshot(&client, global.timeout).await?;
    tokio::select! {
        ended = follow(&client, global.output, args.count) => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}

async fn follow(client: &Client, output: Output, count: Option<u64>) -> Result {
    let mut epochs = client.epochs();
    epochs.mark_changed();
    let mut shown: Option<Arc<Snapshot>> = None;
    let mut left = count;
    let mut quiet = Quiet::default();
    let mut look = tokio::time::interval(LOOK_EVERY);
    while left != Some(0) {
        tokio::select! {
            changed = epochs.changed() => {
                // The sender lives in the client, which we hold.
                if changed.is_err() {
                    return Ok(());
                }
            }
            _ = look.tick() => {
                quiet.look(client);
                continue;
            }
        }
        epochs.mark_unchanged();
        // The table may be newer than the number that woke us: the held reference and the table
        // are compared, and another round follows if they differ.
        let (Some(lookup), Some(held)) = (client.current(), client.held()) else {
            continue;
        };
        let new = lookup.snapshot();
        if held.epoch != new.epoch || held.generation != new.generation {
            epochs.mark_changed();
            continue;
        }
        let is_shown =
            |old: &Arc<Snapshot>| old.epoch == new.epoch && old.generation == new.generation;
        if shown.as_ref().is_some_and(is_shown) {
            continue;
        }
        match &shown {
            None => render::print_item(output, &At::new(held, new))?,
            Some(old) => render::print_item(output, &Seen::new(held, old, new))?,
        }
        shown = Some(Arc::clone(new));
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Says once when no server is heard any more, and once when one is again.
#[derive(Default)]
struct Quiet {
    said: bool,
}

impl Quiet {
    fn look(&mut self, client: &Client) {
        let status = client.status();
        let quiet = status.age.is_none_or(|age| age > QUIET);
        if quiet && !self.said {
            let why = status.last_error.as_deref().unwrap_or("no answer");
            eprintln!("no server is heard ({why}); going on from the last epoch, still trying");
        } else if !quiet && self.said {
            eprintln!("a server is heard again");
        }
        self.said = quiet;
    }
}
