//! Balance, movement, churn and planning time of the `slots` assigner.

use annulus_ring::{
    Candidate, Handle, SlotTable, Weight, Zone,
    place::{assign, even_owners},
    placement::movement,
};

use crate::{
    bound::{self, Share, Spec},
    report::{Goal, Report},
    setup::{candidates, equal, next},
    timing::{median, on_core_ms},
};

const RF: u64 = 3;

/// How a table of `specs` is held: replicas and owners per node, in the order of `specs`.
fn counts(table: &SlotTable, specs: &[Spec]) -> (Vec<u64>, Vec<u64>) {
    let mut at = vec![usize::MAX; 1 << 16];
    for (place, spec) in specs.iter().enumerate() {
        at[usize::from(spec.0)] = place;
    }
    let (mut replicas, mut owners) = (vec![0; specs.len()], vec![0; specs.len()]);
    for slot in table.slots() {
        for (place, handle) in table.list(slot).iter().enumerate() {
            if let Some(count) = replicas.get_mut(at[handle.index()]) {
                *count += 1;
                if place == 0 {
                    owners[at[handle.index()]] += 1;
                }
            }
        }
    }
    (replicas, owners)
}

/// Largest count over its share.
fn worst(counts: &[u64], shares: &[Share]) -> f64 {
    let ratio = |(count, share): (&u64, &Share)| *count as f64 / share.value();
    counts.iter().zip(shares).map(ratio).fold(0.0, f64::max)
}

/// Largest relative distance of a count from its share, either way.
fn off(counts: &[u64], shares: &[Share]) -> f64 {
    let ratio = |(count, share): (&u64, &Share)| (*count as f64 / share.value() - 1.0).abs();
    counts.iter().zip(shares).map(ratio).fold(0.0, f64::max)
}

/// Hands over until owners are even; how many hand-overs that took.
fn even(table: &mut SlotTable, candidates: &[Candidate]) -> u64 {
    let hand_overs = even_owners(table, candidates);
    for (slot, successor) in &hand_overs {
        let (slot, successor) = (*slot, *successor);
        let mut list = table.list(slot).to_vec();
        if let Some(at) = list.iter().position(|handle| *handle == successor) {
            list[..=at].rotate_right(1);
            table.set(slot, &list);
        }
    }
    hand_overs.len() as u64
}

/// Founds a ring and evens its owners out.
pub fn founded(bits: u8, specs: &[Spec]) -> SlotTable {
    let candidates = candidates(specs);
    let mut table =
        assign(&SlotTable::empty(bits, RF as u8), &candidates).expect("nodes have weight");
    even(&mut table, &candidates);
    table
}

/// What one change of members came to.
struct Change {
    copied: u64,
    least_copied: u64,
    handed: u64,
    least_handed: u64,
    needless: u64,
    plan_ms: f64,
    even_ms: f64,
}

impl Change {
    /// Moves over the least; 1 where nothing had to move and nothing did.
    fn copied_ratio(&self) -> f64 {
        ratio(self.copied, self.least_copied)
    }
    fn handed_ratio(&self) -> f64 {
        ratio(self.handed, self.least_handed)
    }
}

fn ratio(found: u64, least: u64) -> f64 {
    if least == 0 {
        1.0 + found as f64
    } else {
        found as f64 / least as f64
    }
}

/// Changes members, evens owners out, and compares with the bounds.
fn change(table: &mut SlotTable, specs: &[Spec]) -> Change {
    let slots = table.slot_count() as u64;
    let candidates = candidates(specs);
    let (held, _) = counts(table, specs);
    let (mut after, plan_ms) =
        on_core_ms(|| assign(table, &candidates).expect("nodes have weight"));
    let (replicas, owned) = counts(&after, specs);
    let owner_shares = bound::owners(specs, slots, &replicas);
    let least_handed = bound::least_hand_overs(specs, &owner_shares, &owned, slots);
    let (handed, even_ms) = on_core_ms(|| even(&mut after, &candidates));

    let shares = bound::replicas(specs, slots, RF);
    let mut within = vec![None; 1 << 16];
    for (at, spec) in specs.iter().enumerate() {
        let ceiling = shares[at].whole + u64::from(shares[at].fraction);
        within[usize::from(spec.0)] = Some((held[at] >= shares[at].whole, held[at] <= ceiling));
    }
    let (mut copied, mut needless) = (0, 0);
    for slot in table.slots() {
        let (old, new) = (table.list(slot), after.list(slot));
        let moved = movement(slot, old, new);
        copied += moved.gainers.len() as u64;
        let calm = |handle: &Handle| within[handle.index()].is_some_and(|(low, high)| low && high);
        if !moved.gainers.is_empty()
            && moved.gainers.iter().all(calm)
            && moved.losers.iter().all(calm)
        {
            needless += 1;
        }
    }
    let change = Change {
        copied,
        least_copied: bound::least_gain(&shares, &held, slots * RF),
        handed,
        least_handed,
        needless,
        plan_ms,
        even_ms,
    };
    *table = after;
    change
}

fn movement_rows(report: &mut Report, name: &str, change: &Change) {
    report.row(
        format!("movement: {name}, copies / least possible"),
        change.copied_ratio(),
        "x",
        Goal::AtMost(1.01),
        format!("{} copied, {} must", change.copied, change.least_copied),
    );
    report.row(
        format!("movement: {name}, hand-overs / least possible"),
        change.handed_ratio(),
        "x",
        Goal::AtMost(1.2),
        format!(
            "{} handed over, {} must",
            change.handed, change.least_handed
        ),
    );
    report.row(
        format!("movement: {name}, moves between nodes within quota"),
        change.needless as f64,
        "slots",
        Goal::AtMost(0.0),
        "",
    );
}

fn balance_rows(report: &mut Report, name: &str, table: &SlotTable, specs: &[Spec], goal: f64) {
    let slots = table.slot_count() as u64;
    let (replicas, owners) = counts(table, specs);
    let shares = bound::replicas(specs, slots, RF);
    let owner_shares = bound::owners(specs, slots, &replicas);
    for (what, counts, shares) in [
        ("replicas", &replicas, &shares),
        ("owners", &owners, &owner_shares),
    ] {
        report.row(
            format!("balance: {what}, {name}, max / share"),
            worst(counts, shares),
            "x",
            Goal::AtMost(goal),
            format!("off by {:.2} % at most", off(counts, shares) * 100.0),
        );
    }
}

fn weight_rows(report: &mut Report, name: &str, specs: &[Spec]) {
    let table = founded(14, specs);
    let slots = table.slot_count() as u64;
    let (replicas, owners) = counts(&table, specs);
    let shares = bound::replicas(specs, slots, RF);
    let owner_shares = bound::owners(specs, slots, &replicas);
    let (replicas, owners) = (off(&replicas, &shares), off(&owners, &owner_shares));
    report.row(
        format!("balance: weights {name}, furthest from share"),
        100.0 * replicas.max(owners),
        "%",
        Goal::AtMost(1.0),
        format!(
            "replicas {:.2} %, owners {:.2} %",
            replicas * 100.0,
            owners * 100.0
        ),
    );
}

pub fn balance(report: &mut Report, quick: bool) {
    let specs = equal(3, 120);
    balance_rows(report, "120 x 2^14", &founded(14, &specs), &specs, 1.01);
    let specs = equal(3, 1_000);
    let (bits, name) = if quick {
        (14, "1,000 x 2^14 (quick)")
    } else {
        (16, "1,000 x 2^16")
    };
    balance_rows(report, name, &founded(bits, &specs), &specs, 1.03);
    let specs: Vec<Spec> = (0..12)
        .map(|at| (at, (at % 3) as u8, [1, 2, 4, 1][usize::from(at / 3)]))
        .collect();
    weight_rows(report, "1:2:4:1 in 3 zones", &specs);
    let specs: Vec<Spec> = (0..36)
        .map(|at| (at, (at % 3) as u8, [1, 2, 4][usize::from(at / 3 % 3)]))
        .collect();
    weight_rows(report, "1:2:4, 36 in 3 zones", &specs);
    let specs: Vec<Spec> = (0..24)
        .map(|at| (at, (at % 6) as u8, [4, 4, 1, 1][usize::from(at / 6)]))
        .collect();
    weight_rows(report, "4:4:1:1, 24 in 6 zones", &specs);
    let specs: Vec<Spec> = (0..12)
        .map(|at| (at, (at % 3) as u8, [4, 4, 1, 1][usize::from(at / 3)]))
        .collect();
    weight_rows(report, "4:4:1:1, 12 in 3 zones", &specs);
}

pub fn movement_of_changes(report: &mut Report, _quick: bool) {
    let specs = equal(3, 120);
    let table = founded(14, &specs);
    let mut joined = specs.clone();
    joined.push((120, 0, 1));
    movement_rows(
        report,
        "join of 121st",
        &change(&mut table.clone(), &joined),
    );
    let mut drained = specs.clone();
    drained.remove(17);
    movement_rows(
        report,
        "drain of 1 of 120",
        &change(&mut table.clone(), &drained),
    );
    let mut heavier = specs.clone();
    heavier[17].2 = 2;
    movement_rows(
        report,
        "weight 1 to 2",
        &change(&mut table.clone(), &heavier),
    );
    // Five zones: who gains depends on whole lists, not on one zone alone.
    let five = equal(5, 120);
    let table = founded(14, &five);
    let mut joined = five.clone();
    joined.push((120, 0, 1));
    movement_rows(
        report,
        "join, 5 zones",
        &change(&mut table.clone(), &joined),
    );
    let mut drained = five.clone();
    drained.remove(17);
    movement_rows(
        report,
        "drain, 5 zones",
        &change(&mut table.clone(), &drained),
    );
    let mut eight = equal(3, 9);
    let table = founded(14, &eight);
    eight.extend([(9, 0, 1), (10, 1, 1), (11, 2, 1)]);
    movement_rows(
        report,
        "join of 3 at once, 9 to 12",
        &change(&mut table.clone(), &eight),
    );
}

/// 1,000 random joins, drains and weight changes; owners are evened out after each.
pub fn churn(report: &mut Report, quick: bool) {
    let (rounds, bits) = if quick { (100, 12) } else { (1_000, 14) };
    for zones in [3_u8, 5] {
        let mut specs = equal(zones, 120);
        let mut table = founded(bits, &specs);
        let mut seed = 3;
        let (mut copied, mut least_copied, mut handed, mut least_handed, mut needless) =
            (0, 0, 0, 0, 0);
        let mut worst_plan = 0.0_f64;
        for _ in 0..rounds {
            let draw = next(&mut seed);
            let at = (draw >> 8) as usize % specs.len();
            match draw % 3 {
                0 => {
                    let free = (0..)
                        .find(|handle| specs.iter().all(|spec| spec.0 != *handle))
                        .expect("2^16 handles");
                    specs.push((
                        free,
                        (draw >> 16) as u8 % zones,
                        1 + (draw >> 40) as u32 % 4,
                    ));
                }
                1 if specs.len() > 100 => drop(specs.remove(at)),
                _ => specs[at].2 = 1 + (draw >> 40) as u32 % 4,
            }
            let change = change(&mut table, &specs);
            copied += change.copied;
            least_copied += change.least_copied;
            handed += change.handed;
            least_handed += change.least_handed;
            needless += change.needless;
            worst_plan = worst_plan.max(change.plan_ms);
        }
        let all = Change {
            copied,
            least_copied,
            handed,
            least_handed,
            needless,
            plan_ms: worst_plan,
            even_ms: 0.0,
        };
        let name = format!("{rounds} changes, {zones} zones");
        let slots = table.slot_count() as u64;
        let (replicas, owners) = counts(&table, &specs);
        let shares = bound::replicas(&specs, slots, RF);
        let owner_shares = bound::owners(&specs, slots, &replicas);
        // One slot is more than 1 % of a light node's share among heavy ones.
        let within = |counts: &[u64], shares: &[Share]| {
            let slot = |(count, share): (&u64, &Share)| {
                count.saturating_sub(share.whole + u64::from(share.fraction))
            };
            counts.iter().zip(shares).map(slot).max().unwrap_or(0)
        };
        report.row(
            format!("churn: {name}, replicas above rounded share"),
            within(&replicas, &shares) as f64,
            "slots",
            Goal::AtMost(0.0),
            format!(
                "max / share {:.4}, {} nodes",
                worst(&replicas, &shares),
                specs.len()
            ),
        );
        report.row(
            format!("churn: {name}, owners above rounded share"),
            within(&owners, &owner_shares) as f64,
            "slots",
            Goal::AtMost(0.0),
            format!("max / share {:.4}", worst(&owners, &owner_shares)),
        );
        movement_rows(report, &format!("churn of {name}"), &all);
        report.row(
            format!("churn: {name}, longest plan"),
            worst_plan,
            "ms",
            Goal::None,
            "",
        );
        // And one more change at the end, by itself.
        specs.push((9_999, 0, 2));
        movement_rows(
            report,
            &format!("join after {name}"),
            &change(&mut table, &specs),
        );
    }
}

/// Planning time on a core, the median of five runs.
pub fn planning(report: &mut Report, quick: bool) {
    let mut plan = |name: &str, nodes: u16, bits: u8, goal: f64| {
        let specs = equal(3, nodes);
        let (table, found_ms) = on_core_ms(|| founded(bits, &specs));
        let mut joined = specs.clone();
        joined.push((nodes, 0, 1));
        let plans: Vec<_> = (0..5)
            .map(|_| change(&mut table.clone(), &joined))
            .collect();
        let even_ms = median(plans.iter().map(|plan| plan.even_ms).collect());
        report.row(
            format!("plan: join at {name}"),
            median(plans.iter().map(|plan| plan.plan_ms).collect()),
            "ms",
            Goal::AtMost(goal),
            format!("time on a core; evening owners {even_ms:.1} ms, founding with evening {found_ms:.0} ms"),
        );
    };
    plan("120 x 2^14", 120, 14, 50.0);
    if quick {
        plan("1,000 x 2^16 (quick)", 1_000, 16, 500.0);
    } else {
        plan("1,000 x 2^18", 1_000, 18, 2_000.0);
    }
}

/// A node of the ring in the words of the assigner.
pub fn candidate((handle, zone, weight): Spec) -> Candidate {
    Candidate {
        handle: Handle(handle),
        zone: Zone::new(format!("z{zone}")).expect("a short name"),
        weight: Weight::new(weight).expect("a small weight"),
    }
}
