//! Seeded shuffles: commands, late and repeated reports, new leaders, in any order. Every promise
//! of the state is checked after every entry; then the world is left alone and must come to rest.

use super::support::World;
use annulus_membership::{Change, ChangePhase, PinKind, Report, RingCommand, Spans};
use annulus_ring::{NodeId, Replication, Slot, Step, Weight, Zone};

/// How many seeds; `ANNULUS_SEEDS` runs more, `ANNULUS_SEED` exactly one (`cargo x sim SEED`).
const SEEDS: u64 = 60;
const STEPS: usize = 400;

struct Shuffle {
    world: World,
    chance: fastrand::Rng,
    /// Reports on their way: they may come late, twice or never.
    late: Vec<(NodeId, Report)>,
    /// Plans committed.
    commits: u32,
}

impl Shuffle {
    fn new(seed: u64) -> Self {
        let mut world = World::new(World::config(3, 3));
        for (at, id) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
            world.agent(id, ["z1", "z2", "z3"][at % 3], 100);
        }
        world.found(&["a", "b", "c", "d", "e", "f"], false).unwrap();
        Self {
            world,
            chance: fastrand::Rng::with_seed(seed),
            late: Vec::new(),
            commits: 0,
        }
    }

    fn any_node(&mut self) -> NodeId {
        let at = self.chance.usize(..self.world.nodes.len());
        self.world.nodes.keys().nth(at).unwrap().clone()
    }

    fn step(&mut self) {
        self.world.now_ms += self.chance.u64(..400);
        match self.chance.u32(..100) {
            0..=1 => {
                let id = format!("n{}", self.world.nodes.len());
                if self.world.nodes.len() < 12 {
                    self.world
                        .agent(&id, ["z1", "z2", "z3"][self.chance.usize(..3)], 100);
                }
            }
            2..=5 => {
                let id = self.any_node();
                let _ = self.world.join(id.as_str());
            }
            6..=7 => {
                let id = self.any_node();
                let _ = self.world.drain(id.as_str());
            }
            8 => {
                let (node, by) = (self.any_node(), self.any_node());
                let _ = self.world.change(Change::Replace {
                    node,
                    by,
                    burial: None,
                });
            }
            9 => {
                let change = self.other_change();
                let _ = self.world.change(change);
            }
            10..=11 => {
                let waiting: Vec<_> = self.world.ring_state().changes.keys().copied().collect();
                if !waiting.is_empty() {
                    let change = waiting[self.chance.usize(..waiting.len())];
                    let _ = self.world.ring_command(RingCommand::Abort { change });
                }
            }
            12 => self.world.new_leader(),
            13..=17 => self.end_or_brake(),
            18..=19 => {
                let id = self.any_node();
                let _ = self.world.link(&id);
            }
            20..=42 => {
                self.world.leader_acts();
            }
            43..=45 => self.plan_or_commit(),
            46..=60 => {
                let id = self.any_node();
                self.world.node_adopts(&id);
                let report = self.world.node_report(&id);
                self.late.push((id, report));
            }
            61..=70 => self.deliver(false),
            71..=75 => self.deliver(true),
            _ => {
                let id = self.any_node();
                self.world.node_acts(&id);
            }
        }
    }

    /// What makes nobody come or go by itself: weights, zones, pins, quorums; now and then a whole
    /// zone goes.
    fn other_change(&mut self) -> Change {
        let node = self.any_node();
        let zone = Zone::new(["z1", "z2", "z3", "z4"][self.chance.usize(..4)]).unwrap();
        let accept = self.chance.bool();
        match self.chance.u8(..9) {
            0..=2 => {
                let weight = Weight::new([0, 50, 100, 200][self.chance.usize(..4)]).unwrap();
                Change::Weight { node, weight }
            }
            3 => Change::Zone { node, zone, accept },
            4 => Change::DrainZone { zone, accept },
            5 => {
                let (first, kinds) = (self.chance.u32(..8), [PinKind::Member, PinKind::Owner]);
                let last = self.chance.u32(first..8);
                let slots = Spans(vec![(Slot(first), Slot(last))]);
                let kind = kinds[self.chance.usize(..2)];
                Change::Pin { node, slots, kind }
            }
            6 => Change::Unpin { node, slots: None },
            _ => {
                // Back to three more often than not, or most drains would be refused.
                let rf = [3, 3, 2, 4, 5][self.chance.usize(..5)];
                let w = self.chance.u8(rf / 2 + 1..=rf);
                let r = rf + 1 - w;
                let to = Replication { rf, w, r };
                Change::Replication { to, accept: false }
            }
        }
    }

    /// Settles or withdraws what was switched on; else pauses, holds, or lets go again.
    fn end_or_brake(&mut self) {
        let switched = self
            .world
            .ring_state()
            .transition
            .as_ref()
            .filter(|transition| transition.step == Step::Switched)
            .map(|transition| transition.changes[0]);
        let reason = self.chance.bool().then(|| "a look".to_owned());
        let command = match switched {
            Some(change) if self.chance.u8(..3) > 0 => RingCommand::Abort { change },
            Some(_) => RingCommand::Settle,
            None if self.chance.u8(..6) == 0 => RingCommand::Maintain {
                node: self.any_node(),
                for_ms: self.chance.bool().then_some(2_000),
                accept: self.chance.bool(),
            },
            None if self.chance.u8(..8) > 0 => RingCommand::Pause { reason: None },
            None if self.chance.bool() => RingCommand::Pause { reason },
            None => RingCommand::Hold { reason },
        };
        let _ = self.world.ring_command(command);
    }

    /// Commits the last plan, or makes one of a change or two.
    fn plan_or_commit(&mut self) {
        let last = self.world.ring_state().plans.keys().next_back().copied();
        if let Some(plan) = last.filter(|_| self.chance.bool()) {
            let command = RingCommand::CommitPlan { plan };
            if self.world.ring_command(command).is_ok() {
                self.commits += 1;
            }
            return;
        }
        let join = Change::Join {
            node: self.any_node(),
            zone: None,
            weight: None,
        };
        let drain = Change::Drain {
            node: self.any_node(),
        };
        let changes = match self.chance.u8(..3) {
            0 => vec![join],
            1 => vec![drain],
            _ => vec![join, drain],
        };
        if let Ok(plan) = self.world.plan(&changes) {
            self.world.told_plan(plan, Some(1_000));
            // At once, or whenever it is tried again: then mostly too late.
            if self.chance.bool() && self.world.commit(plan).is_ok() {
                self.commits += 1;
            }
        }
    }

    /// A report arrives; `again`: and stays on its way for another time.
    fn deliver(&mut self, again: bool) {
        if self.late.is_empty() {
            return;
        }
        let at = self.chance.usize(..self.late.len());
        let (id, report) = if again {
            self.late[at].clone()
        } else {
            self.late.swap_remove(at)
        };
        self.world.reports.take(&id, report, self.world.now_ms);
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match (number("ANNULUS_SEED"), number("ANNULUS_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => 0..count,
        (None, None) => 0..SEEDS,
    }
}

/// Names the seed when a promise breaks inside.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: replay with `cargo x sim {}`", self.0, self.0);
        }
    }
}

#[test]
fn promises_hold_under_shuffled_commands_and_reports() {
    let (mut switches, mut aborts, mut flips_back, mut commits) = (0, 0, 0, 0);
    let (mut hand_overs, mut permits, mut removals) = (0, 0, 0);
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let _named = Named(seed);
        let mut shuffle = Shuffle::new(seed);
        (0..STEPS).for_each(|_| shuffle.step());
        let world = &mut shuffle.world;
        world.new_leader();
        let _ = world.ring_command(RingCommand::Pause { reason: None });
        let _ = world.ring_command(RingCommand::Hold { reason: None });
        world.run_to_rest();
        world.replicas_are_equal();
        let ring = world.ring_state();
        assert!(
            ring.changes.values().all(|record| record.phase.ended()),
            "seed {seed}: a change never ended"
        );
        assert!(
            !ring
                .changes
                .values()
                .any(|record| matches!(record.phase, ChangePhase::Running(_)))
        );
        commits += shuffle.commits;
        let world = &mut shuffle.world;
        switches += world.promises.switches;
        aborts += world.promises.aborts;
        flips_back += world.promises.flips_back;
        hand_overs += world.promises.hand_overs;
        permits += world.promises.permits;
        removals += world.promises.removals;
    }
    if count < SEEDS {
        return;
    }
    // A run that moved nothing proves nothing.
    for (what, times, least) in [
        ("switches", switches, 10),
        ("aborts", aborts, 10),
        ("flips back", flips_back, 5),
        ("commits of plans", commits, 10),
        ("hand-overs", hand_overs, 10),
        ("permits", permits, 10),
        ("removals", removals, 10),
    ] {
        assert!(times >= least, "only {times} {what} in {count} seeds");
    }
}
