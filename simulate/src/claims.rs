//! `annulus compare --claims`: figures that are told elsewhere, measured again.
//!
//! Those that cannot be right are named with the floor that they break. Rings are measured by the
//! circle itself over many seeds, as one ring is one draw: what a single ring showed may be true
//! of it and yet be no rule.

use std::path::Path;

use annulus_ring::HashName;
use serde::Serialize;

use crate::{
    InputError,
    cluster::{Nodes, regular},
    fair,
    hash::Hash,
    hashes::{Drawn, draw},
    keys::{Popularity, Sizes, Source, Synthetic},
    layout::{Layout, Settings},
    measure::{Balance, Stage, measure},
    progress::Progress,
    report::{Extras, Simulation, simulate},
    scenario::{Cache, Plan},
    table::{Report, Table},
    text::{grouped, percent},
};

const XXH3: Hash = Hash::Named(HashName::Xxh3_64);

/// How a claim fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured again, within chance.
    Holds,
    /// It can be so, but is the luck of one ring.
    OneDraw,
    /// It cannot be.
    Wrong,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::OneDraw => "one draw",
            Self::Wrong => "WRONG",
        }
    }
}

/// One claim.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What it is about.
    pub name: String,
    /// What is said.
    pub said: String,
    /// What was measured, in words.
    pub found: String,
    /// What was measured; the unit is that of `said`.
    pub value: f64,
    /// How it fares.
    pub verdict: Verdict,
}

/// All claims.
#[derive(Clone, Debug, Serialize)]
pub struct Claims {
    /// Keys that movement is measured with.
    pub keys: u64,
    /// Rings that chance is measured with.
    pub rings: u32,
    /// One by one.
    pub claims: Vec<Claim>,
}

impl Claims {
    /// The claim of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.name == name)
    }
}

/// Measures all of them, with so many keys and rings.
///
/// # Errors
/// [`InputError`]; none with sensible numbers.
pub fn check(keys: u64, rings: u32, progress: &dyn Progress) -> Result<Claims, InputError> {
    let mut checker = Checker {
        keys,
        rings,
        claims: Vec::new(),
        progress,
    };
    checker.movement()?;
    checker.impossible()?;
    checker.one_point()?;
    checker.many_points()?;
    checker.weights()?;
    checker.one_in_nine()?;
    checker.reference_deployment()?;
    checker.reference_cache()?;
    checker.lost_nodes()?;
    checker.hot_key()?;
    Ok(Claims {
        keys,
        rings,
        claims: checker.claims,
    })
}

struct Checker<'a> {
    keys: u64,
    rings: u32,
    claims: Vec<Claim>,
    progress: &'a dyn Progress,
}

const SLOTS: Layout = Layout::Slots { bits: 14 };
const RING: Layout = Layout::Tokens { per_weight: 160 };

impl Checker<'_> {
    fn add(&mut self, name: &str, said: &str, value: f64, found: String, verdict: Verdict) {
        let (name, said) = (name.to_owned(), said.to_owned());
        self.claims.push(Claim {
            name,
            said,
            found,
            value,
            verdict,
        });
    }

    /// `said` is a share of 1; it holds within `within` of it and what chance among the keys adds.
    fn share(&mut self, name: &str, said: f64, value: f64, within: f64) {
        let chance = 4.0 * (said * (1.0 - said) / self.keys as f64).sqrt();
        let verdict = if (value - said).abs() <= within + chance {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(name, &percent(said), value, percent(value), verdict);
    }

    fn source(&self, popularity: Popularity) -> Source {
        Source::Synthetic(Synthetic {
            count: self.keys,
            seed: 1,
            popularity,
            requests: self.keys * 10,
            sizes: Sizes { least: 1, most: 1 },
            sequential: false,
        })
    }

    fn plan(
        &self,
        nodes: Nodes,
        layout: Layout,
        rf: u8,
        events: &[String],
    ) -> Result<Plan, InputError> {
        Ok(Plan {
            nodes,
            settings: Settings {
                layout,
                hash: XXH3,
                seed: 0,
                rf,
            },
            events: events
                .iter()
                .map(|event| event.parse())
                .collect::<Result<_, _>>()?,
            source: self.source(Popularity::Uniform),
            cache: None,
        })
    }

    fn run(&self, plan: &Plan) -> Result<Simulation, InputError> {
        let extras = Extras {
            sweep: false,
            timing: false,
        };
        simulate(plan, extras, self.progress)
    }

    /// Part of the keys with another owner after one event.
    fn moved(&self, layout: Layout, nodes: usize, event: &str) -> Result<f64, InputError> {
        let plan = self.plan(regular(nodes, 1, &[1])?, layout, 1, &[event.to_owned()])?;
        Ok(self.run(&plan)?.events[0].keys)
    }

    fn movement(&mut self) -> Result<(), InputError> {
        for (nodes, said) in [(8, 8.0 / 9.0), (120, 120.0 / 121.0)] {
            let found = self.moved(Layout::Modulo, nodes, "join +1")?;
            self.share(
                &format!("modulo, {nodes} -> {} moves", nodes + 1),
                said,
                found,
                0.005,
            );
        }
        // Names are hashed, so rings and rendezvous give a newcomer its share only nearly.
        let layouts = [
            ("ring of 160", RING, 0.25),
            ("rendezvous", Layout::Rendezvous, 0.05),
            ("jump", Layout::Jump, 0.05),
            ("slots", SLOTS, 0.05),
        ];
        for (nodes, event, said, what) in [
            (8, "join +1", 1.0 / 9.0, "8 -> 9 moves"),
            (120, "join +1", 1.0 / 121.0, "120 -> 121 moves"),
            (8, "drain n8", 1.0 / 8.0, "one of 8 leaving moves"),
        ] {
            for (name, layout, within) in layouts {
                let found = self.moved(layout, nodes, event)?;
                self.share(&format!("{name}, {what}"), said, found, said * within);
            }
        }
        Ok(())
    }

    fn impossible(&mut self) -> Result<(), InputError> {
        for (from, to, said) in [(3, 4, 0.048), (12, 14, 0.08)] {
            let (before, after) = (regular(from, 1, &[1])?, regular(to, 1, &[1])?);
            let least = fair::least(
                (&before, &fair::owners(&before)),
                (&after, &fair::owners(&after)),
            );
            let found = self.moved(RING, from, &format!("join +{}", to - from))?;
            let verdict = if said < least {
                Verdict::Wrong
            } else {
                Verdict::Holds
            };
            let text = format!(
                "{} at least; a ring of 160 moves {}",
                percent(least),
                percent(found)
            );
            self.add(
                &format!("ring, {from} -> {to} moves"),
                &percent(said),
                least,
                text,
                verdict,
            );
        }
        Ok(())
    }

    fn one_point(&mut self) -> Result<(), InputError> {
        let drawn = draw(&regular(8, 1, &[1])?, XXH3, 1, self.rings)?;
        let (full, empty) = (
            drawn.mean(|b| b.max_over_mean),
            drawn.mean(|b| b.min_over_mean),
        );
        let as_full = drawn.part(|balance| balance.max_over_mean >= 4.3);
        let as_empty = drawn.part(|balance| balance.min_over_mean <= 0.04);
        let text = format!(
            "{full:.2} x in the mean of {} rings; {} are as bad or worse",
            grouped(self.rings.into()),
            percent(as_full)
        );
        self.add(
            "one point, 8 nodes: the fullest",
            "4.3 x its share",
            full,
            text,
            draw_verdict(as_full),
        );
        let text = format!(
            "{empty:.3} x in the mean; {} are as bad or worse",
            percent(as_empty)
        );
        self.add(
            "one point, 8 nodes: the emptiest",
            "0.04 x its share",
            empty,
            text,
            draw_verdict(as_empty),
        );
        Ok(())
    }

    fn many_points(&mut self) -> Result<(), InputError> {
        let nodes = regular(8, 1, &[1])?;
        let rings = self.rings.min(200);
        let deviation = |drawn: &Drawn| {
            drawn.mean(|balance| (balance.max_over_mean - 1.0).max(1.0 - balance.min_over_mean))
        };
        let good = draw(&nodes, XXH3, 160, rings)?;
        let bad = draw(&nodes, Hash::Fnv1a, 160, rings)?;
        let (far, worse) = (deviation(&good), deviation(&bad));
        let cv = |drawn: &Drawn| drawn.mean(|balance| balance.cv);
        let text = format!(
            "{} the largest, {} as CV, in the mean",
            percent(far),
            percent(cv(&good))
        );
        let verdict = if (0.07..=0.14).contains(&far) {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(
            "160 points, 8 nodes: deviation",
            "about 10 %",
            far,
            text,
            verdict,
        );
        let times = cv(&bad) / cv(&good);
        let text = format!(
            "more: {times:.1} x as CV ({} the largest, {} as CV)",
            percent(worse),
            percent(cv(&bad))
        );
        let verdict = if times >= 2.5 {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(
            "160 points by bare FNV-1a",
            "three times that",
            times,
            text,
            verdict,
        );
        Ok(())
    }

    fn weights(&mut self) -> Result<(), InputError> {
        let nodes = regular(4, 1, &[4, 4, 1, 1])?;
        let drawn = draw(&nodes, XXH3, 160, self.rings.min(200))?;
        let mean = |at: usize| {
            drawn.shares.iter().map(|ring| ring[at]).sum::<f64>() / drawn.shares.len() as f64
        };
        let spread = |at: usize| {
            let centre = mean(at);
            let squares = drawn.shares.iter().map(|ring| (ring[at] - centre).powi(2));
            (squares.sum::<f64>() / drawn.shares.len() as f64).sqrt()
        };
        let said = [0.406, 0.411, 0.094, 0.090];
        let inside = (0..4).all(|at| (said[at] - mean(at)).abs() <= 3.0 * spread(at));
        let text = format!(
            "{:.1} / {:.1} / {:.1} / {:.1} %, give or take {:.1} and {:.1}",
            mean(0) * 100.0,
            mean(1) * 100.0,
            mean(2) * 100.0,
            mean(3) * 100.0,
            spread(0) * 100.0,
            spread(2) * 100.0
        );
        let verdict = if inside {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(
            "weights 4:4:1:1, 160 points a unit",
            "40.6 / 41.1 / 9.4 / 9.0 %",
            mean(0),
            text,
            verdict,
        );
        // Ours: what the table says, without the chance of keys.
        let settings = Settings {
            layout: SLOTS,
            hash: XXH3,
            seed: 0,
            rf: 1,
        };
        let crate::layout::Map::Slots { table, .. } =
            crate::layout::Map::build(settings, &nodes, None)?
        else {
            return Ok(());
        };
        let mut counts = vec![0_u64; nodes.len()];
        for slot in table.slots() {
            counts[table.list(slot)[0].index()] += 1;
        }
        let balance = Balance::of(&counts, &nodes, &fair::owners(&nodes));
        let shares: Vec<_> = counts
            .iter()
            .map(|count| format!("{:.2}", *count as f64 / table.slot_count() as f64 * 100.0))
            .collect();
        let verdict = if balance.max_over_mean <= 1.01 {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        let text = format!("{} %", shares.join(" / "));
        self.add(
            "weights 4:4:1:1, slots",
            "within 1 %",
            balance.max_over_mean,
            text,
            verdict,
        );
        Ok(())
    }

    fn one_in_nine(&mut self) -> Result<(), InputError> {
        let nodes = regular(120, 1, &[1])?;
        // 30,720 points a ring: fewer rings than elsewhere.
        let rings = self.rings.min(300);
        let drawn = draw(&nodes, XXH3, 256, rings)?;
        let part = drawn.part(|balance| balance.max_over_mean > 1.2);
        let text = format!(
            "{} of {rings} rings; the worst has {:.3} x",
            percent(part),
            drawn.highest(|b| b.max_over_mean)
        );
        let verdict = if (0.04..=0.20).contains(&part) {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(
            "256 tokens, 120 nodes: above 120 %",
            "one set in nine",
            part,
            text,
            verdict,
        );
        let plan = self.plan(nodes, SLOTS, 1, &[])?;
        let found = self.run(&plan)?.balance[0].owned_keys.max_over_mean;
        // The assigner's own share is within one slot; the rest is chance among the keys.
        let verdict = if found <= 1.2 {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(
            "slots, 120 nodes: the fullest",
            "at most 120 %",
            found,
            percent(found),
            verdict,
        );
        Ok(())
    }

    fn reference_deployment(&mut self) -> Result<(), InputError> {
        let nodes = regular(120, 3, &[1])?;
        let plan = self.plan(nodes, SLOTS, 3, &["join +1".to_owned()])?;
        let mut report = self.run(&plan)?;
        let event = report.events.swap_remove(0);
        let newcomer = report.nodes.pop().and_then(|node| node.after);
        // `after` is over the fair share, one of 121.
        let gib = 24.0 * 1024.0;
        let owned = newcomer.unwrap_or(0.0) / 121.0 * gib;
        let (changed, copied) = (event.keys * gib, event.copies * gib);
        let chance = 4.0 / (self.keys as f64 / 121.0).sqrt();
        let verdict = |value: f64, said: f64| {
            if (value / said - 1.0).abs() <= 0.05 + chance {
                Verdict::Holds
            } else {
                Verdict::Wrong
            }
        };
        let text = format!(
            "the newcomer owns {owned:.0} GiB; {changed:.0} GiB change owner, the rest by hand-overs that move no data"
        );
        self.add(
            "join to 120 nodes with 24 TiB",
            "203 GiB",
            owned,
            text,
            verdict(owned, 203.1),
        );
        let times = copied / owned;
        let text = format!("{copied:.0} GiB, {times:.2} times that");
        self.add(
            "the same in copies, rf 3, 3 zones",
            "three times that",
            times,
            text,
            verdict(times, 3.0),
        );
        Ok(())
    }

    fn reference_cache(&mut self) -> Result<(), InputError> {
        for (name, layout, said) in [
            ("slots, cache of 8 -> 12 nodes", SLOTS, 1.0 / 3.0),
            ("modulo, cache of 8 -> 12 nodes", Layout::Modulo, 2.0 / 3.0),
        ] {
            let mut plan = self.plan(regular(8, 1, &[1])?, layout, 1, &["join +4".to_owned()])?;
            plan.cache = Some(Cache {
                reads_per_second: 40_000.0,
                hit_ratio: 0.94,
            });
            let felt = self.run(&plan)?.cache.swap_remove(0);
            let text = format!(
                "{} cold; {} more misses/s beside 2,400: {:.1} x",
                percent(felt.cold_reads),
                grouped(felt.extra_misses_per_second.round() as u64),
                felt.factor
            );
            let verdict = if (felt.cold_reads - said).abs() < 0.01 {
                Verdict::Holds
            } else {
                Verdict::Wrong
            };
            self.add(name, "the store feels it", felt.factor, text, verdict);
        }
        Ok(())
    }

    fn lost_nodes(&mut self) -> Result<(), InputError> {
        for (nodes, said) in [(4, 0.25), (8, 0.125)] {
            let plan = self.plan(regular(nodes, 1, &[1])?, SLOTS, 1, &[])?;
            let losses = self.run(&plan)?.losses;
            let worst = losses
                .iter()
                .filter(|loss| loss.name.starts_with("node"))
                .map(|loss| loss.requests)
                .fold(0.0, f64::max);
            self.share(
                &format!("one of {nodes} cache nodes lost: misses"),
                said,
                worst,
                0.01,
            );
        }
        Ok(())
    }

    fn hot_key(&mut self) -> Result<(), InputError> {
        let nodes = regular(8, 1, &[1])?;
        let layouts = [1, 16, 160, 1_024].map(|per_weight| Layout::Tokens { per_weight });
        let mut stages = Vec::new();
        for layout in layouts {
            let settings = Settings {
                layout,
                hash: XXH3,
                seed: 0,
                rf: 1,
            };
            let map = crate::layout::Map::build(settings, &nodes, None)?;
            stages.push(Stage {
                nodes: nodes.clone(),
                map,
            });
        }
        let source = self.source(Popularity::Zipf(1.4));
        let measured = measure(&source, &[], &stages, 1, self.progress)?;
        let floor = measured.hottest.requests as f64 / measured.totals.requests as f64 * 8.0;
        let owners = fair::owners(&nodes);
        let busiest: Vec<f64> = measured
            .loads
            .iter()
            .map(|load| Balance::of(&load.requests, &nodes, &owners).max_over_mean)
            .collect();
        let lowest = busiest.iter().copied().fold(f64::INFINITY, f64::min);
        let figures: Vec<_> = busiest
            .iter()
            .map(|busiest| format!("{busiest:.2}"))
            .collect();
        let text = format!(
            "its share alone is {floor:.2} x a node's; busiest with 1, 16, 160, 1,024 tokens: {} x",
            figures.join(", ")
        );
        let verdict = if lowest >= floor {
            Verdict::Holds
        } else {
            Verdict::Wrong
        };
        self.add(
            "a hot key, 8 nodes (zipf 1.4)",
            "tokens do not help",
            lowest,
            text,
            verdict,
        );
        Ok(())
    }
}

/// Said of one ring; true as a rule only if at least a third of all rings are like that.
fn draw_verdict(part: f64) -> Verdict {
    match part {
        part if part >= 1.0 / 3.0 => Verdict::Holds,
        part if part > 0.0 => Verdict::OneDraw,
        _ => Verdict::Wrong,
    }
}

impl Report for Claims {
    fn tables(&self) -> Vec<Table> {
        let title = format!(
            "What is said, measured again with {} keys and up to {} rings",
            grouped(self.keys),
            grouped(self.rings.into())
        );
        let mut table = Table::new(title, &["CLAIM", "SAID", "VERDICT", "FOUND"]);
        for claim in &self.claims {
            table.row([
                claim.name.clone(),
                claim.said.clone(),
                claim.verdict.as_str().to_owned(),
                claim.found.clone(),
            ]);
        }
        table.note("one draw: true of some ring, but the luck of its names; the mean over rings is the rule.");
        table.note(
            "WRONG: below what must move for every node to have its share, whatever the layout.",
        );
        vec![table]
    }

    fn charts(&self, _: &Path) -> Result<Vec<String>, InputError> {
        Ok(Vec::new())
    }
}
