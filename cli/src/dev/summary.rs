//! The end of a run: its figures, and whether the promise was kept.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use annulus_kv::load::{Filled, Report};

use super::story::{ChangeFigures, Figures};
use crate::{
    exit::{Failure, Result},
    render::{Render, Wide, grouped},
};

/// Everything that is said at the end.
pub struct Summary {
    /// From the start until a first write was read back.
    pub ready: Duration,
    /// From the start until every key was read back.
    pub run: Duration,
    /// How loading went.
    pub filled: Filled,
    /// Reads and acknowledged writes a second, of the steady load.
    pub ops_per_s: u64,
    /// How long reading every key back took.
    pub read_back: Duration,
    /// What the story has.
    pub figures: Figures,
    /// The changes are done.
    pub finished: bool,
    /// What the load and its judge have.
    pub report: Report,
}

impl Summary {
    /// The promise was kept, or a failure that says how not.
    pub fn verdict(&self) -> Result {
        let Report {
            counts,
            unread,
            violations,
        } = &self.report;
        if self.report.is_clean() {
            return Ok(());
        }
        let (lost, wrong) = (counts.lost, counts.wrong_reads);
        let mut message = format!("{lost} acknowledged writes lost, {wrong} wrong reads");
        if *unread > 0 {
            message.push_str(&format!(", {unread} keys that no node would read"));
        }
        for violation in violations {
            message.push_str(&format!("\n    {violation}"));
        }
        Err(Failure::failed(
            message,
            "this must not happen: keep the logs and report it",
        ))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

impl Render for Summary {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let counts = &self.report.counts;
        let mut row = |name: &str, value: String| writeln!(out, "{name:<26} {value}");
        row("ready in", seconds(self.ready))?;
        row("run took", seconds(self.run))?;
        let keys = grouped(self.filled.keys as u64);
        row(
            "keys loaded",
            format!("{keys} in {}", seconds(self.filled.elapsed)),
        )?;
        let (writes, deletes) = (grouped(counts.acknowledged()), grouped(counts.deletes));
        row(
            "writes acknowledged",
            format!("{writes}, deletes among them {deletes}"),
        )?;
        row("reads judged", grouped(counts.reads))?;
        row(
            "steady load",
            format!("{} operations/s", grouped(self.ops_per_s)),
        )?;
        let (refused, unknown) = (grouped(counts.refused), grouped(counts.unknown));
        row(
            "given up by their callers",
            format!("{refused} not done, {unknown} of unknown outcome"),
        )?;
        for (kind, change) in [("join", &self.figures.join), ("drain", &self.figures.drain)] {
            let Some(ChangeFigures {
                node,
                took,
                ranges,
                copies,
            }) = change
            else {
                row(kind, "NOT DONE".to_owned())?;
                continue;
            };
            let took = seconds(*took);
            row(
                kind,
                format!("{node} in {took}: {ranges} ranges moved, {copies} copies"),
            )?;
        }
        match &self.figures.kill {
            Some(kill) => row(
                "leader killed",
                format!(
                    "server {} at {}/{} copies; another led after {}",
                    kill.server,
                    kill.copied.0,
                    kill.copied.1,
                    seconds(kill.leaderless)
                ),
            )?,
            None => row("leader killed", "NO".to_owned())?,
        }
        row("newest epoch", self.figures.epoch.to_string())?;
        row("every key read back in", seconds(self.read_back))?;
        row("acknowledged writes lost", grouped(counts.lost))?;
        row("wrong reads", grouped(counts.wrong_reads))
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let counts = &self.report.counts;
        let ms = |duration: Duration| Wide(duration.as_millis() as u64);
        let moved = |change: &Option<ChangeFigures>| change.as_ref().map(|change| change.ranges);
        let took = |change: &Option<ChangeFigures>| change.as_ref().map(|change| ms(change.took));
        let mut fields = to.serialize_struct("Summary", 18)?;
        fields.serialize_field("finished", &self.finished)?;
        fields.serialize_field("lost", &Wide(counts.lost))?;
        fields.serialize_field("wrong_reads", &Wide(counts.wrong_reads))?;
        fields.serialize_field("unread", &Wide(self.report.unread))?;
        fields.serialize_field("ready_ms", &ms(self.ready))?;
        fields.serialize_field("run_ms", &ms(self.run))?;
        fields.serialize_field("keys", &Wide(self.filled.keys as u64))?;
        fields.serialize_field("load_ms", &ms(self.filled.elapsed))?;
        fields.serialize_field("writes_acknowledged", &Wide(counts.acknowledged()))?;
        fields.serialize_field("deletes_acknowledged", &Wide(counts.deletes))?;
        fields.serialize_field("reads_judged", &Wide(counts.reads))?;
        fields.serialize_field("refused", &Wide(counts.refused))?;
        fields.serialize_field("unknown", &Wide(counts.unknown))?;
        fields.serialize_field("ops_per_s", &Wide(self.ops_per_s))?;
        fields.serialize_field("join_ranges", &moved(&self.figures.join))?;
        fields.serialize_field("join_ms", &took(&self.figures.join))?;
        fields.serialize_field("drain_ranges", &moved(&self.figures.drain))?;
        fields.serialize_field("drain_ms", &took(&self.figures.drain))?;
        fields.end()
    }
}
