//! The language of the model: a move is one line of text, so that a run is a list of lines that can
//! be printed, pasted, shortened and replayed.
//!
//! A new command, or a new way to fail, comes in by one [`Verb`] in one of the tables of `moves`.

use std::{fmt, sync::OnceLock};

use annulus_membership::{ChangeId, ChangePhase, ChangeRecord};
use annulus_ring::{NodeId, Step, Weight, Zone};
use fastrand::Rng;

use super::{moves, world::World};

/// One kind of move.
pub struct Verb {
    /// The first word of its line.
    pub name: &'static str,
    /// How often it is drawn, against the sum of all; 0: only where an episode says so.
    pub weight: u32,
    /// The other words, for the world as it is; none: there is nothing to do this to.
    pub draw: fn(&World, &mut Rng) -> Option<String>,
    /// Does it. What no longer fits the world (a move before it was left out) does nothing.
    pub act: fn(&mut World, Words<'_>),
}

/// One move of a run.
#[derive(Clone)]
pub struct Move {
    verb: &'static Verb,
    words: String,
}

impl Move {
    pub fn new(verb: &'static Verb, words: String) -> Self {
        Self { verb, words }
    }

    /// A move by its line.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (name, words) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let verb = by_name(name).ok_or_else(|| format!("there is no move {name:?}"))?;
        Ok(Self::new(verb, words.trim().to_owned()))
    }

    pub fn verb(&self) -> &'static Verb {
        self.verb
    }

    pub fn act(&self, world: &mut World) {
        (self.verb.act)(world, Words(&self.words));
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb.name)?;
        if self.words.is_empty() {
            return Ok(());
        }
        write!(f, " {}", self.words)
    }
}

/// A scenario: one move a line; empty lines and lines with `#` are for people.
pub fn parse(text: &str) -> Result<Vec<Move>, String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Move::parse)
        .collect()
}

/// All verbs of all tables.
pub fn verbs() -> impl Iterator<Item = &'static Verb> {
    moves::TABLES.iter().flat_map(|table| table.iter())
}

pub fn by_name(name: &str) -> Option<&'static Verb> {
    verbs().find(|verb| verb.name == name)
}

/// Draws a move that can be made now.
pub fn draw(world: &World, chance: &mut Rng) -> Move {
    static SUMS: OnceLock<Vec<(u32, &'static Verb)>> = OnceLock::new();
    let sums = SUMS.get_or_init(|| {
        let mut sum = 0;
        // To find out which of them breaks a promise.
        let without = std::env::var("ANNULUS_MODEL_WITHOUT").unwrap_or_default();
        let wanted = |verb: &&Verb| !without.split(',').any(|name| name == verb.name);
        let weighty = verbs().filter(|verb| verb.weight > 0).filter(wanted);
        weighty
            .map(|verb| {
                sum += verb.weight;
                (sum, verb)
            })
            .collect()
    });
    let total = sums.last().expect("some verb has weight").0;
    loop {
        let at = chance.u32(..total);
        let (_, verb) = sums[sums.partition_point(|(sum, _)| *sum <= at)];
        if ["goes", "leads"].contains(&verb.name) && chance.u8(..lingers(world)) > 0 {
            continue;
        }
        if let Some(words) = (verb.draw)(world, chance) {
            return Move::new(verb, words);
        }
    }
}

/// How many times longer this moment lasts than it would: some pass too fast for failures and
/// forgeries to hit them often.
fn lingers(world: &World) -> u8 {
    let Some(ring) = world.ring_state() else {
        return 1;
    };
    if ring.wave.as_ref().is_some_and(|wave| wave.intent.is_some()) {
        return 4;
    }
    let waits = |record: &ChangeRecord| record.phase == ChangePhase::Queued;
    match &ring.transition {
        Some(one) => match one.step {
            Step::FlippingBack => 10,
            Step::Copying | Step::CatchingUp | Step::Verified => 4,
            Step::Joint => 2,
            Step::Prepared | Step::Writing | Step::Switched => 1,
        },
        None if ring.changes.values().any(waits) => 4,
        None => 1,
    }
}

/// The words of a move, after its verb.
#[derive(Clone, Copy)]
pub struct Words<'a>(pub &'a str);

impl<'a> Words<'a> {
    pub fn all(self) -> &'a str {
        self.0
    }

    pub fn get(self, at: usize) -> Option<&'a str> {
        self.0.split_whitespace().nth(at)
    }

    pub fn number(self, at: usize) -> Option<u64> {
        self.get(at)?.parse().ok()
    }

    pub fn node(self, at: usize) -> Option<NodeId> {
        NodeId::new(self.get(at)?).ok()
    }

    pub fn weight(self, at: usize) -> Option<Weight> {
        Weight::new(u32::try_from(self.number(at)?).ok()?)
    }

    pub fn zone(self, at: usize) -> Option<Zone> {
        Zone::new(self.get(at)?).ok()
    }

    pub fn change(self, at: usize) -> Option<ChangeId> {
        self.number(at).map(ChangeId)
    }

    /// The value of `name=value`.
    pub fn option(self, name: &str) -> Option<&'a str> {
        let mut words = self.0.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A verb of which nothing is to be drawn but its name.
pub fn plain(_: &World, _: &mut Rng) -> Option<String> {
    Some(String::new())
}

/// One of `from`.
pub fn one_of<'a, T>(from: &'a [T], chance: &mut Rng) -> Option<&'a T> {
    (!from.is_empty()).then(|| &from[chance.usize(..from.len())])
}
