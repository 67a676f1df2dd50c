//! Plans in the world without I/O: made, committed, told.

use std::fmt::Write;

use annulus_membership::{
    Change, ChangeId, Held, Outcome, PlanId, Rejection, RingCommand,
    plan::{Base, Facts, Load, Outlook, outlook},
    plan_command,
};

use super::World;

impl World {
    /// What the leader would store as a plan of these changes, stored.
    pub fn plan(&mut self, changes: &[Change]) -> Result<PlanId, Rejection> {
        let command = plan_command(&self.ring, self.ring_state(), changes)?;
        let before = self.ring_state().clone();
        let plan = match self.request(command) {
            Outcome::Applied(applied) => applied.plan.unwrap(),
            Outcome::Rejected(rejection) => return Err(rejection),
        };
        let mut ring = self.ring_state().clone();
        ring.plans.clone_from(&before.plans);
        ring.last_plan = before.last_plan;
        assert_eq!(ring, before, "a plan changed something");
        Ok(plan)
    }

    /// Commits a plan: all of it, to its very target, or nothing.
    pub fn commit(&mut self, plan: PlanId) -> Result<Vec<ChangeId>, Rejection> {
        let before = self.ring_state().clone();
        let applied = match self.request(RingCommand::CommitPlan { plan }) {
            Outcome::Applied(applied) => applied,
            Outcome::Rejected(rejection) => return Err(rejection),
        };
        let (planned, ring) = (&before.plans[&plan], self.ring_state());
        let running = ring.transition.as_ref().unwrap();
        let target: Vec<_> = running.target.iter().collect();
        let expected: Vec<_> = planned
            .target
            .iter()
            .map(|change| (&change.slot, &change.to))
            .collect();
        assert_eq!(target, expected, "the transition's target is the plan's");
        assert_eq!(running.changes, applied.changes);
        let became: Vec<_> = applied
            .changes
            .iter()
            .map(|id| &ring.changes[id].change)
            .collect();
        assert_eq!(became, planned.changes.iter().collect::<Vec<_>>());
        assert_eq!(ring.epoch.0, before.epoch.0 + 1, "one entry, one epoch");
        Ok(applied.changes)
    }

    /// A plan as an operator sees it.
    pub fn told_plan(&self, plan: PlanId, limit: Option<u64>) -> String {
        let ring = self.ring_state();
        let outlook = outlook(
            &Base::of(ring),
            &ring.plans[&plan],
            ring,
            Some(&Facts::of(&self.reports)),
            limit,
        );
        consistent(&outlook);
        let mut text = format!(
            "plan {plan}: {} ranges change, {} copies of {}, {}\n",
            outlook.changed_ranges,
            outlook.copies,
            amount(outlook.copied),
            outlook
                .copy_ms
                .map_or("time unknown".into(), |ms| format!("{ms} ms")),
        );
        for pair in &outlook.pairs {
            let zones = if pair.crosses_zones {
                ", another zone"
            } else {
                ""
            };
            let (source, gainer, ranges) = (&pair.source, &pair.gainer, pair.ranges);
            let what = amount(pair.estimate);
            writeln!(
                text,
                "  {source} -> {gainer}  {ranges} ranges, {what}{zones}"
            )
            .unwrap();
        }
        for node in outlook
            .nodes
            .iter()
            .filter(|node| node.before != node.after)
        {
            writeln!(
                text,
                "  {} {}  {} -> {}  peak {}{}",
                node.node,
                node.zone,
                load(&node.before),
                load(&node.after),
                node.peak_bytes
                    .map_or("?".into(), |bytes| format!("{bytes} B")),
                match node.lacking_bytes {
                    0 => String::new(),
                    lack => format!(", {lack} B too many"),
                }
            )
            .unwrap();
        }
        for zone in &outlook.zones {
            writeln!(
                text,
                "  zone {}: {} -> {} nodes, {} -> {} replicas, {} copies from other zones",
                zone.zone,
                zone.nodes_before,
                zone.nodes_after,
                zone.ranges_before,
                zone.ranges_after,
                zone.copies_in
            )
            .unwrap();
        }
        let hand_overs = outlook.hand_overs;
        writeln!(
            text,
            "  hand-overs: {} in {} waves before, {} after",
            hand_overs.leaving, hand_overs.leaving_waves, hand_overs.evening
        )
        .unwrap();
        // Steps of one way back are one line.
        let mut ways: Vec<(String, String)> = Vec::new();
        for undo in &outlook.undo {
            let step = undo.step.map_or("-".into(), |step| step.to_string());
            let (way, wasted) = (undo.way.as_str(), amount(undo.wasted));
            let told = format!("{way}, {wasted} in vain; {}", undo.words);
            match ways.last_mut() {
                Some((steps, last)) if *last == told => write!(steps, ", {step}").unwrap(),
                _ => ways.push((step, told)),
            }
        }
        for (steps, told) in ways {
            writeln!(text, "  undo at {steps}: {told}").unwrap();
        }
        for warning in &outlook.warnings {
            writeln!(text, "  note: {warning}").unwrap();
        }
        text
    }
}

/// Figures that must agree with each other, whatever the plan.
fn consistent(outlook: &Outlook) {
    let gained: u32 = outlook.nodes.iter().map(|node| node.gained).sum();
    assert_eq!(gained, outlook.copies);
    for node in &outlook.nodes {
        let after = node.before.ranges + node.gained - node.lost;
        assert_eq!(node.after.ranges, after, "{}", node.node);
        let mine = outlook.pairs.iter().filter(|pair| pair.gainer == node.node);
        assert_eq!(mine.map(|pair| pair.ranges).sum::<u32>(), node.gained);
    }
    let replicas: u32 = outlook.nodes.iter().map(|node| node.after.ranges).sum();
    let by_zone: u32 = outlook.zones.iter().map(|zone| zone.ranges_after).sum();
    assert_eq!(replicas, by_zone);
}

fn amount(held: Option<Held>) -> String {
    held.map_or("?".into(), |held| {
        format!("{} B {} keys", held.bytes, held.keys)
    })
}

fn load(load: &Load) -> String {
    let held = load
        .held
        .map_or("?".into(), |held| format!("{} B", held.bytes));
    format!(
        "{}/{} ranges {}.{} % {held}",
        load.owned,
        load.ranges,
        load.share_ppm / 10_000,
        load.share_ppm / 1_000 % 10
    )
}
