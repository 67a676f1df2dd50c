//! Runs: an episode is a world drawn from (seed, number), moved at random, then left alone until it
//! rests. Nothing else goes into it, so the two numbers replay it exactly.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use super::{
    coverage::Coverage,
    promises::Violation,
    verb::{self, Move},
    world::{Planted, World},
};

/// Random moves of one episode.
const MOVES: usize = 500;
/// Moves of a world at its limits.
const CROWDED_MOVES: usize = 45;
/// Each kind of rare world comes once in so many episodes.
const CROWDS: u64 = 600;
/// What every move costs, in ms of everybody's clock.
const MOVE_MS: u64 = 100;

/// What became of an episode.
pub struct Run {
    pub moves: Vec<Move>,
    pub violation: Option<Violation>,
    pub coverage: Coverage,
}

struct Episode {
    world: World,
    moves: Vec<Move>,
    chance: Rng,
}

impl Episode {
    fn go(&mut self, next: Move) {
        if self.world.violation.is_none() {
            self.moves.push(next.clone());
            self.world.step(&next);
        }
    }

    fn say(&mut self, line: &str) {
        self.go(Move::parse(line).expect("it is a move"));
    }

    fn draw(&mut self, moves: usize) {
        for _ in 0..moves {
            if self.world.violation.is_some() {
                return;
            }
            let next = verb::draw(&self.world, &mut self.chance);
            self.go(next);
        }
    }

    /// Moves of the one verb that its words can be drawn for.
    fn draw_only(&mut self, name: &str, moves: usize) {
        let verb = verb::by_name(name).expect("it is a verb");
        for _ in 0..moves {
            if let Some(words) = (verb.draw)(&self.world, &mut self.chance) {
                self.go(Move::new(verb, words));
            }
        }
    }

    /// A ring and its agents; mostly it is founded at once.
    fn begins(&mut self) {
        let chance = &mut self.chance;
        let rf: u8 = [3, 3, 3, 3, 3, 3, 2, 2, 2, 1, 5][chance.usize(..11)];
        let bits = [2, 2, 3, 3, 3, 4, 5, 1][chance.usize(..8)];
        let (w, r) = match chance.u8(..4) {
            0 => (rf, 1),
            _ => (rf / 2 + 1, rf / 2 + 1),
        };
        let soak = [500, 2_000, 4_000][chance.usize(..3)];
        let grace = [300, 2_500, 8_000][chance.usize(..3)];
        let nodes = chance.usize(4..9);
        let zones = [3, 3, 2, 1][chance.usize(..4)];
        let weightless = chance.u8(..5) == 0;
        let early = chance.u8(..3) == 0;
        let is_founded = chance.u8(..4) > 0;
        let founders = chance.usize(3..=nodes.min(6));

        let ring = format!("bits={bits} rf={rf} w={w} r={r} soak={soak} grace={grace}");
        if early {
            self.say(&format!("early {ring}"));
        }
        self.say(&format!("ring {ring}"));
        for at in 0..nodes {
            let weight = if weightless && at < 2 { 0 } else { 100 };
            self.say(&format!("agent n{at} z{} {weight}", at % zones + 1));
        }
        if weightless {
            self.say("found accept n0 n1");
        }
        if !is_founded {
            self.say("found strict n0 n1");
            self.draw(40);
        }
        if weightless && is_founded {
            // Joins are collected, and taken by a founding that names nobody.
            self.say("join n2");
            self.say("join n3");
            self.say("found strict");
        }
        let names: Vec<String> = (0..founders).map(|at| format!("n{at}")).collect();
        if zones < usize::from(rf) {
            self.say(&format!("found strict {}", names.join(" ")));
        }
        self.say(&format!("found accept {}", names.join(" ")));
    }

    fn crowds(&mut self, kind: u64) {
        self.say("ring bits=2 rf=3 soak=500 grace=500");
        let zones = if kind == 3 { 2 } else { 3 };
        for at in 0..4 {
            self.say(&format!("agent n{at} z{} 100", at % zones + 1));
        }
        self.say("found accept n0 n1 n2 n3");
        self.say("agent n4 z3 100");
        match kind {
            0 => {
                self.say("crowds-members");
                self.draw_only("join", CROWDED_MOVES);
            }
            1 => {
                self.say("crowds-queue");
                self.draw_only("weight", CROWDED_MOVES);
            }
            2 => {
                self.say("crowds-rings");
                self.draw_only("another-ring", CROWDED_MOVES);
            }
            _ => self.thins_out(),
        }
    }
}

impl Episode {
    /// Plans that are committed, too late, twice, or after who they name has begun another life.
    fn plans(&mut self) {
        self.say("ring bits=3 rf=3 soak=300 grace=300");
        (0..6).for_each(|at| self.say(&format!("agent n{at} z{} 100", at % 3 + 1)));
        self.say("found accept n0 n1 n2 n3");
        for round in 0..24_usize {
            let other = format!("n{}", 4 + self.chance.usize(..2));
            let weight = [50, 100, 200][self.chance.usize(..3)];
            let member = format!("n{}", self.chance.usize(..4));
            match round % 6 {
                0 | 3 => self.say(&format!("plans join {other}, weight {member} {weight}")),
                1 | 4 => self.say(&format!("plans drain {other}")),
                _ => self.say(&format!("plans weight {member} {weight}")),
            }
            self.say("forges plan-that-splits 0");
            self.draw_only("plans", 1);
            match self.chance.u8(..4) {
                0 => self.say(&format!("empties {other}")),
                1 => self.draw_only("drops-plan", 1),
                _ => {}
            }
            self.draw_only("commits-plan", 3);
            (0..30).for_each(|_| self.say("goes"));
            self.say("tick 400");
            (0..6).for_each(|_| self.say("goes"));
            self.say(&format!("renews {other}"));
            self.draw_only("commits-plan", 2);
        }
        self.say("rests");
    }

    /// One node has everything, and somebody else would take its place.
    fn replaces_the_only_one(&mut self) {
        self.say("ring bits=2 rf=3 soak=500 grace=500");
        (0..4).for_each(|at| self.say(&format!("agent n{at} z1 100")));
        self.say("found accept n0");
        (0..CROWDED_MOVES).for_each(|at| self.say(&format!("replace n0 n{}", at % 3 + 1)));
    }

    /// More pins than a ring has room for.
    fn pins_all(&mut self) {
        self.say("ring bits=14 rf=3 soak=500 grace=500");
        (0..3).for_each(|at| self.say(&format!("agent n{at} z{} 100", at + 1)));
        self.say("found accept n0 n1 n2");
        (0..CROWDED_MOVES).for_each(|at| self.say(&format!("pins-all n{}", at % 3)));
    }

    /// Owners fall silent one after the other, and their failovers are forged.
    fn fails_over(&mut self) {
        self.say("ring bits=3 rf=3 soak=300 grace=300");
        (0..4).for_each(|at| self.say(&format!("agent n{at} z{} 100", at % 3 + 1)));
        self.say("found accept n0 n1 n2 n3");
        for round in 0..16 {
            let node = format!("n{}", round % 4);
            self.say(&format!("dies {node}"));
            self.say("waits");
            for pick in 0..4 {
                self.say("leads");
                self.say(&format!("forges failover-on-too-few {pick}"));
                self.say(&format!("forges failover-of-the-living {pick}"));
                self.say("everybody");
            }
            self.say(&format!("returns {node}"));
            (0..12).for_each(|_| self.say("goes"));
        }
    }

    /// Pins that a forged target passes over.
    fn pins_and_unpins(&mut self) {
        self.say("ring bits=3 rf=2 soak=300 grace=300");
        (0..6).for_each(|at| self.say(&format!("agent n{at} z{} 100", at % 2 + 1)));
        self.say("found accept n0 n1 n2 n3 n4 n5");
        for round in 0..12 {
            let node = format!("n{}", self.chance.usize(..6));
            self.say(&format!(
                "pin {node} member {}+{}",
                round % 8,
                (round + 3) % 8
            ));
            (0..4)
                .for_each(|pick| self.say(&format!("forges target-that-passes-over-a-pin {pick}")));
            (0..30).for_each(|_| self.say("goes"));
            self.say("tick 400");
            (0..6).for_each(|_| self.say("goes"));
            self.say(&format!("unpin {node}"));
        }
    }

    /// Lists are as short as no rule leaves them, and somebody would delete another copy.
    fn thins_out(&mut self) {
        ["hold", "drain n3"].iter().for_each(|line| self.say(line));
        (0..40).for_each(|_| self.say("goes"));
        ["unhold", "tick 9000", "thins"]
            .iter()
            .for_each(|line| self.say(line));
        (0..CROWDED_MOVES).for_each(|pick| self.say(&format!("forges permit-of-the-last {pick}")));
    }
}

impl World {
    /// One move, and what it costs in time.
    pub fn step(&mut self, next: &Move) {
        let accepted = self.coverage.accepted;
        self.now_ms += MOVE_MS;
        next.act(self);
        let is_accepted = self.coverage.accepted > accepted;
        self.coverage.moves += 1;
        self.coverage.accepted_moves += u64::from(is_accepted);
        let verb = self.coverage.verbs.entry(next.verb().name).or_default();
        verb.0 += 1;
        verb.1 += u64::from(is_accepted);
    }
}

/// One whole episode.
pub fn play(seed: u64, number: u64, planted: Option<Planted>) -> Run {
    let mut episode = Episode {
        world: World::new(),
        moves: Vec::new(),
        chance: Rng::with_seed(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(number),
        ),
    };
    episode.world.planted = planted;
    let panicked = catch_unwind(AssertUnwindSafe(|| match number % CROWDS {
        kind @ 11..15 => episode.crowds(kind - 11),
        115 => episode.replaces_the_only_one(),
        116 => episode.pins_all(),
        118 => episode.pins_and_unpins(),
        119..124 => episode.fails_over(),
        kind if kind % 24 == 17 => episode.plans(),
        _ => {
            episode.begins();
            episode.draw(MOVES);
            episode.say("rests");
        }
    }));
    Run {
        moves: episode.moves,
        violation: broken(episode.world.violation, panicked),
        coverage: episode.world.coverage,
    }
}

/// The same moves again, or some of them.
pub fn replay(moves: &[Move], planted: Option<Planted>) -> (World, Option<Violation>) {
    let mut world = World::new();
    world.planted = planted;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        for next in moves {
            if world.violation.is_some() {
                return;
            }
            world.step(next);
        }
    }));
    let violation = broken(world.violation.take(), panicked);
    (world, violation)
}

fn broken(
    violation: Option<Violation>,
    panicked: Result<(), Box<dyn std::any::Any + Send>>,
) -> Option<Violation> {
    let Err(panic) = panicked else {
        return violation;
    };
    let text = panic.downcast_ref::<String>().cloned();
    let what = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(Violation {
        promise: "NO-PANIC",
        what: what.unwrap_or_default(),
    })
}
