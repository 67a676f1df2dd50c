//! In what two plans of one ring differ.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use super::{
    table::amount,
    view::{Amount, Head, ListView, Outlook, PlanView},
};
use crate::render::{self, Hex64, Render, Wide, span};

/// Ranges shown in a table; all are in JSON.
const RANGES: usize = 20;

/// Two plans and their differences.
#[derive(Debug, Serialize)]
pub(super) struct Diff {
    one: Head,
    other: Head,
    /// They were made on one layout; else lists are compared as they are to be.
    same_base: bool,
    /// Changes of the first alone, and of the second alone.
    changes_only_in_one: Vec<String>,
    changes_only_in_other: Vec<String>,
    figures: Figures,
    /// Ranges that end up with another list.
    ranges: Vec<RangeDiff>,
}

#[derive(Debug, Serialize)]
struct Figures {
    one: Option<Figure>,
    other: Option<Figure>,
}

#[derive(Debug, Serialize)]
struct Figure {
    changed_ranges: u32,
    copies: u32,
    copied: Option<Amount>,
    copy_ms: Option<Wide>,
    leaving_hand_overs: u32,
    evening_hand_overs: u32,
}

/// A range's list after either plan; none: that plan leaves it as it is.
#[derive(Debug, Serialize)]
struct RangeDiff {
    slot: u32,
    start: Hex64,
    end: Hex64,
    one: Option<Vec<String>>,
    other: Option<Vec<String>>,
}

impl Figure {
    fn new(head: &Head, outlook: &Outlook) -> Self {
        Self {
            changed_ranges: head.changed_ranges,
            copies: outlook.copies,
            copied: outlook.copied,
            copy_ms: outlook.copy_ms,
            leaving_hand_overs: outlook.leaving_hand_overs,
            evening_hand_overs: outlook.evening_hand_overs,
        }
    }
}

impl Diff {
    pub(super) fn new(
        (one, one_lists): (PlanView, Vec<ListView>),
        (other, other_lists): (PlanView, Vec<ListView>),
    ) -> Self {
        let figure = |plan: &PlanView| {
            let outlook = plan.outlook.as_ref()?;
            Some(Figure::new(&plan.head, outlook))
        };
        let figures = Figures {
            one: figure(&one),
            other: figure(&other),
        };
        let without = |these: &Head, those: &Head| -> Vec<String> {
            let alone = these.changes.iter();
            alone
                .filter(|change| !those.changes.contains(change))
                .cloned()
                .collect()
        };
        Self {
            same_base: one.head.base_layout_epoch == other.head.base_layout_epoch,
            changes_only_in_one: without(&one.head, &other.head),
            changes_only_in_other: without(&other.head, &one.head),
            figures,
            ranges: ranges(&one_lists, &other_lists),
            one: one.head,
            other: other.head,
        }
    }

    fn is_equal(&self) -> bool {
        self.changes_only_in_one.is_empty()
            && self.changes_only_in_other.is_empty()
            && self.ranges.is_empty()
    }
}

fn ranges(one: &[ListView], other: &[ListView]) -> Vec<RangeDiff> {
    let by_slot = |lists: &[ListView]| -> BTreeMap<u32, ListView> {
        lists.iter().map(|list| (list.slot, list.clone())).collect()
    };
    let (one, other) = (by_slot(one), by_slot(other));
    let mut slots: Vec<&u32> = one.keys().chain(other.keys()).collect();
    slots.sort_unstable();
    slots.dedup();
    let differ = |slot: &u32| {
        let (first, second) = (one.get(slot), other.get(slot));
        let known = first.or(second)?;
        let after = |list: Option<&ListView>| list.map(|list| list.after.clone());
        let (one, other) = (after(first), after(second));
        (one != other).then_some(RangeDiff {
            slot: *slot,
            start: known.start,
            end: known.end,
            one,
            other,
        })
    };
    slots.into_iter().filter_map(differ).collect()
}

impl Render for Diff {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.one.line())?;
        writeln!(out, "{}", self.other.line())?;
        if !self.same_base {
            writeln!(
                out,
                "made on different layouts: a range that one of them leaves as it is may have \
                 another list there"
            )?;
        }
        if self.is_equal() {
            return writeln!(out, "no difference: the same changes, the same lists");
        }
        let (one, other) = (self.one.plan, self.other.plan);
        for (plan, changes) in [
            (one, &self.changes_only_in_one),
            (other, &self.changes_only_in_other),
        ] {
            if !changes.is_empty() {
                writeln!(out, "only in plan {plan}: {}", changes.join(", "))?;
            }
        }
        if let (Some(first), Some(second)) = (&self.figures.one, &self.figures.other) {
            writeln!(out)?;
            let mut table = render::columns(&[
                "PLAN",
                "RANGES",
                "COPIES",
                "BYTES",
                "TIME",
                "HAND-OVERS",
                "EVENING",
            ]);
            for (plan, figure) in [(one, first), (other, second)] {
                table.add_row([
                    plan.to_string(),
                    figure.changed_ranges.to_string(),
                    figure.copies.to_string(),
                    amount(figure.copied),
                    figure.copy_ms.map_or("?".to_owned(), |ms| span(ms.0)),
                    figure.leaving_hand_overs.to_string(),
                    figure.evening_hand_overs.to_string(),
                ]);
            }
            render::write_table(out, &table)?;
        }
        writeln!(
            out,
            "\n{} range(s) end up with another list",
            self.ranges.len()
        )?;
        let list = |list: &Option<Vec<String>>| {
            list.as_ref()
                .map_or("as it is".to_owned(), |list| list.join(" "))
        };
        for range in self.ranges.iter().take(RANGES) {
            writeln!(
                out,
                "  slot {} ({},{}]  {}  |  {}",
                range.slot,
                range.start,
                range.end,
                list(&range.one),
                list(&range.other)
            )?;
        }
        match self.ranges.len().checked_sub(RANGES) {
            None | Some(0) => Ok(()),
            Some(more) => writeln!(out, "  and {more} more; -o json shows all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use annulus_proto::v1::{self, planned_change::Change};

    use super::*;
    use crate::plan::view;

    fn plan(id: u64, nodes: &[&str], lists: &[(u32, &[&str])]) -> (PlanView, Vec<ListView>) {
        let drain = |node: &&str| v1::PlannedChange {
            change: Some(Change::Drain(v1::PlannedDrain {
                node: (*node).to_owned(),
            })),
        };
        let status = v1::PlanStatus {
            id,
            changes: nodes.iter().map(drain).collect(),
            slot_bits: 2,
            lists: lists
                .iter()
                .map(|(slot, after)| v1::PlannedList {
                    slot: *slot,
                    before: Vec::new(),
                    after: after.iter().map(|&node| node.to_owned()).collect(),
                })
                .collect(),
            ..v1::PlanStatus::default()
        };
        let lists = view::lists(&status);
        (PlanView::new("users", status), lists)
    }

    fn told(one: (PlanView, Vec<ListView>), other: (PlanView, Vec<ListView>)) -> String {
        let mut out = Vec::new();
        Diff::new(one, other).table(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn plans_differ_in_changes_and_lists() {
        let one = plan(1, &["a", "b"], &[(0, &["c", "d"]), (1, &["c"])]);
        let other = plan(2, &["b", "c"], &[(1, &["c"]), (3, &["d"])]);
        let text = told(one, other);
        for part in [
            "only in plan 1: drain a\n",
            "only in plan 2: drain c\n",
            "2 range(s) end up with another list",
            "slot 0 (ffffffffffffffff,3fffffffffffffff]  c d  |  as it is",
            "as it is  |  d",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let same = || plan(1, &["a"], &[(0, &["c"])]);
        assert!(told(same(), same()).contains("no difference"));
    }
}
