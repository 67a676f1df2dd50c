//! A plan for people.

use std::io::{self, Write};

use serde::Serialize;

use super::view::{Amount, BeforeAfter, Export, Head, Load, Node, Outlook, PlanView};
use crate::render::{self, Render, Wide, ago, grouped, size, span};

/// Pairs shown in a table; all are in JSON.
const PAIRS: usize = 40;

impl Head {
    /// One line: what is planned, and whether that still holds.
    pub(super) fn line(&self) -> String {
        let state = match self.state {
            "committed" => {
                let ids: Vec<String> = self.committed.iter().map(ToString::to_string).collect();
                format!("committed as change {}", ids.join(", "))
            }
            "stale" => format!(
                "STALE: made on layout epoch {}, the ring is at {}",
                self.base_layout_epoch, self.layout_epoch
            ),
            _ => format!("open, on layout epoch {}", self.base_layout_epoch),
        };
        format!(
            "plan {} of ring {}: {}\n  {state}, made {}",
            self.plan,
            self.ring,
            self.changes.join(", "),
            ago(self.created_at_ms.0)
        )
    }
}

/// An amount, or that nothing is known.
pub(super) fn amount(amount: Option<Amount>) -> String {
    amount.map_or("?".to_owned(), |amount| size(amount.bytes.0))
}

fn keys(amount: Option<Amount>) -> String {
    amount.map_or("?".to_owned(), |amount| grouped(amount.keys.0))
}

fn arrow(before: impl ToString, after: impl ToString) -> String {
    let (before, after) = (before.to_string(), after.to_string());
    if before == after {
        before
    } else {
        format!("{before} -> {after}")
    }
}

fn both(pair: BeforeAfter) -> String {
    arrow(pair.before, pair.after)
}

fn share(load: &Load) -> String {
    format!(
        "{}.{:02} %",
        load.share_ppm / 10_000,
        load.share_ppm % 10_000 / 100
    )
}

fn wide(value: Option<Wide>, show: impl Fn(u64) -> String) -> String {
    value.map_or("?".to_owned(), |value| show(value.0))
}

impl Render for PlanView {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.head.line())?;
        let Some(outlook) = &self.outlook else {
            return writeln!(
                out,
                "  {} range(s) change; the layout that it was made on is no longer kept",
                self.head.changed_ranges
            );
        };
        outlook.summary(out, self.head.changed_ranges)?;
        outlook.pairs(out)?;
        outlook.nodes(out)?;
        outlook.zones(out)?;
        outlook.ways_back(out)?;
        if !outlook.warnings.is_empty() {
            writeln!(out)?;
        }
        outlook
            .warnings
            .iter()
            .try_for_each(|warning| writeln!(out, "WARNING: {warning}"))
    }
}

impl Outlook {
    fn summary(&self, out: &mut dyn Write, changed_ranges: u32) -> io::Result<()> {
        writeln!(
            out,
            "  copies      {} of {changed_ranges} range(s), about {} and {} keys (estimated from \
             what nodes report)",
            self.copies,
            amount(self.copied),
            keys(self.copied)
        )?;
        let time = match self.copy_ms {
            Some(ms) => format!("at least {} of copying", span(ms.0)),
            None => "as long as copying takes without a limit (--throttle foretells it)".to_owned(),
        };
        let (soak, grace) = (span(self.soak_ms.0), span(self.grace_ms.0));
        writeln!(
            out,
            "  time        {time}, then a soak of {soak}; copies given up are kept for {grace}"
        )?;
        writeln!(
            out,
            "  hand-overs  {} before copying, in {} wave(s); {} afterwards to even the owners out",
            self.leaving_hand_overs, self.leaving_waves, self.evening_hand_overs
        )?;
        writeln!(
            out,
            "  spread      too few replicas: {} range(s); too few zones: {} range(s)",
            both(self.short_ranges),
            both(self.unspread_ranges)
        )
    }

    fn pairs(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let mut table = render::columns(&["FROM", "TO", "RANGES", "BYTES", "KEYS", "ZONES"]);
        for pair in self.pairs.iter().take(PAIRS) {
            let zones = if pair.crosses_zones { "across" } else { "same" };
            table.add_row([
                pair.source.clone(),
                pair.gainer.clone(),
                pair.ranges.to_string(),
                amount(pair.amount),
                keys(pair.amount),
                zones.to_owned(),
            ]);
        }
        render::write_table(out, &table)?;
        match self.pairs.len().checked_sub(PAIRS) {
            None | Some(0) => Ok(()),
            Some(more) => writeln!(out, "and {more} more pairs; -o json shows all"),
        }
    }

    fn nodes(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        let mut table = render::columns(&[
            "NODE", "ZONE", "WEIGHT", "HOLDS", "OWNS", "SHARE", "BYTES", "KEYS", "GAINS", "GIVES",
            "PEAK", "FREE", "TIME",
        ]);
        self.nodes.iter().for_each(|node| {
            table.add_row(node_row(node));
        });
        render::write_table(out, &table)
    }

    fn zones(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        let mut table = render::columns(&["ZONE", "NODES", "WEIGHT", "REPLICAS", "COPIED IN"]);
        for zone in &self.zones {
            table.add_row([
                zone.zone.clone(),
                both(zone.nodes),
                arrow(zone.weight_before, zone.weight_after),
                both(zone.ranges),
                zone.copies_in.to_string(),
            ]);
        }
        render::write_table(out, &table)
    }

    fn ways_back(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        let mut table = render::columns(&["UNDONE AT", "BY", "IN VAIN", "COST"]);
        for undo in &self.undo {
            let at = match undo.step {
                0 => undo.step_name.to_owned(),
                step => format!("{step} {}", undo.step_name),
            };
            table.add_row([
                at,
                undo.way.clone(),
                amount(undo.wasted),
                undo.words.clone(),
            ]);
        }
        render::write_table(out, &table)
    }
}

fn node_row(node: &Node) -> [String; 13] {
    let weight = |weight: Option<u32>| weight.map_or("-".to_owned(), |weight| weight.to_string());
    let free = match node.lacking_bytes.0 {
        0 => wide(node.free_bytes, size),
        lacking => format!("{}, LACKS {}", wide(node.free_bytes, size), size(lacking)),
    };
    let time = match (node.gained, node.copy_ms) {
        (0, _) => "-".to_owned(),
        (_, ms) => wide(ms, span),
    };
    [
        node.node.clone(),
        node.zone.clone(),
        arrow(weight(node.weight_before), weight(node.weight_after)),
        arrow(node.before.ranges, node.after.ranges),
        arrow(node.before.owned, node.after.owned),
        arrow(share(&node.before), share(&node.after)),
        arrow(amount(node.before.held), amount(node.after.held)),
        arrow(keys(node.before.held), keys(node.after.held)),
        node.gained.to_string(),
        node.lost.to_string(),
        wide(node.peak_bytes, size),
        free,
        time,
    ]
}

/// All plans of a ring.
#[derive(Serialize)]
pub(super) struct PlanList {
    pub ring: String,
    pub plans: Vec<Head>,
}

impl Render for PlanList {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = render::columns(&["PLAN", "STATE", "LAYOUT", "RANGES", "MADE", "CHANGES"]);
        for plan in &self.plans {
            table.add_row([
                plan.plan.to_string(),
                plan.state.to_owned(),
                plan.base_layout_epoch.to_string(),
                plan.changed_ranges.to_string(),
                ago(plan.created_at_ms.0),
                plan.changes.join(", "),
            ]);
        }
        render::write_table(out, &table)
    }
}

impl Render for Export {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        // An export is for programs, whatever the rest of the command line says.
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use annulus_proto::v1;

    use super::*;

    fn amount(bytes: u64, keys: u64) -> Option<v1::Amount> {
        Some(v1::Amount { bytes, keys })
    }

    fn status() -> v1::PlanStatus {
        let load = |ranges, owned, share_ppm, held| v1::PlanLoad {
            ranges,
            owned,
            share_ppm,
            held,
        };
        let join = v1::planned_change::Change::Join(v1::PlannedJoin {
            node: "x".to_owned(),
            ..v1::PlannedJoin::default()
        });
        v1::PlanStatus {
            id: 3,
            changes: vec![v1::PlannedChange { change: Some(join) }],
            base_layout_epoch: (1 << 53) + 1,
            layout_epoch: (1 << 53) + 1,
            changed_ranges: 5,
            slot_bits: 4,
            lists: vec![v1::PlannedList {
                slot: 15,
                before: vec!["a".to_owned(), "b".to_owned()],
                after: vec!["a".to_owned(), "x".to_owned()],
            }],
            outlook: Some(v1::PlanOutlook {
                changed_ranges: 5,
                copies: 5,
                copied: amount(u64::MAX, 50),
                pairs: vec![v1::PlanPair {
                    source: "a".to_owned(),
                    gainer: "x".to_owned(),
                    ranges: 5,
                    amount: amount(5 << 20, 50),
                    crosses_zones: true,
                }],
                nodes: vec![v1::PlanNode {
                    node: "x".to_owned(),
                    zone: "z1".to_owned(),
                    weight_after: Some(100),
                    before: Some(load(0, 0, 0, amount(0, 0))),
                    after: Some(load(5, 0, 104_166, amount(5 << 20, 50))),
                    gained: 5,
                    free_bytes: Some(1 << 20),
                    lacking_bytes: 4 << 20,
                    copy_ms: Some(61_000),
                    ..v1::PlanNode::default()
                }],
                copy_ms: Some(61_000),
                soak_ms: 1_000,
                undo: vec![v1::PlanUndo {
                    step: 7,
                    way: "flip back".to_owned(),
                    words: "nothing is copied".to_owned(),
                    ..v1::PlanUndo::default()
                }],
                warnings: vec!["look out".to_owned()],
                ..v1::PlanOutlook::default()
            }),
            ..v1::PlanStatus::default()
        }
    }

    fn text(value: &impl Render) -> String {
        let mut out = Vec::new();
        value.table(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_plan_is_told_with_its_load_its_disks_and_its_ways_back() {
        let told = text(&PlanView::new("users", status()));
        for part in [
            "plan 3 of ring users: join x",
            "open, on layout epoch 9007199254740993",
            "copies      5 of 5 range(s), about 15.9 EiB and 50 keys",
            "at least 1 min 1 s of copying, then a soak of 1.0 s",
            "a     x   5       5.0 MiB  50    across",
            "0.00 % -> 10.41 %",
            "1.0 MiB, LACKS 4.0 MiB",
            "7 switched  flip back",
            "WARNING: look out",
        ] {
            assert!(told.contains(part), "{part} is missing in\n{told}");
        }
    }

    #[test]
    fn a_plan_says_when_it_no_longer_holds() {
        let mut stale = status();
        stale.layout_epoch += 1;
        stale.outlook = None;
        let told = text(&PlanView::new("users", stale));
        assert!(told.contains("STALE: made on layout epoch"), "{told}");
        assert!(told.contains("no longer kept"), "{told}");
        let mut committed = status();
        committed.layout_epoch += 1;
        committed.committed = vec![7, 8];
        let told = text(&PlanView::new("users", committed));
        assert!(told.contains("committed as change 7, 8"), "{told}");
    }

    /// Case C10: what may exceed 2^53 goes through readers that know only doubles.
    #[test]
    fn c10_an_export_survives_readers_that_know_only_doubles() {
        let export = text(&Export::new("users", status()));
        let json: serde_json::Value = serde_json::from_str(&export).expect("json");
        fn small(value: &serde_json::Value) -> bool {
            match value {
                serde_json::Value::Number(number) => {
                    number.as_u64().is_some_and(|number| number < 1 << 53)
                }
                serde_json::Value::Array(items) => items.iter().all(small),
                serde_json::Value::Object(fields) => fields.values().all(small),
                _ => true,
            }
        }
        assert!(small(&json), "{export}");
        assert_eq!(json["format"], 1);
        assert_eq!(json["base_layout_epoch"], "9007199254740993");
        assert_eq!(json["outlook"]["copied"]["bytes"], u64::MAX.to_string());
        assert_eq!(json["lists"][0]["end"], "ffffffffffffffff");
        assert_eq!(json["lists"][0]["after"][1], "x");
    }
}
