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
        let grace = [300, 1_500, 6_000][chance.usize(..3)];
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
    /// A new zone comes, one range is left as it is, and somebody would delete a copy of it.
    fn thins_out(&mut self) {
        ["hold", "drain n3"].iter().for_each(|line| self.say(line));
        (0..40).for_each(|_| self.say("goes"));
        for line in [
            "unhold",
            "tick 9000",
            "join n4",
            "forges target-that-is-lazy 0",
        ] {
            self.say(line);
        }
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
