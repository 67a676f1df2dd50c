//! A counterexample made short: moves are left out, in halves, quarters and so on, as long as the
//! same promise still breaks (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
//! input", 2002, greedily).

use super::{episode, promises::Violation, verb::Move, world::Planted};

/// Moves replayed at most, so that a red run ends soon.
const BUDGET: usize = 200_000;

/// A scenario that breaks a promise.
pub struct Counterexample {
    pub moves: Vec<Move>,
    pub violation: Violation,
}

impl Counterexample {
    /// To be pasted into a file under `membership/tests/model/found`.
    pub fn scenario(&self) -> String {
        let mut text = format!("# {}\n", self.violation.to_string().replace('\n', " "));
        for next in &self.moves {
            text.push_str(&next.to_string());
            text.push('\n');
        }
        text
    }
}

/// The shortest list of these moves that was found to break `violation`'s promise.
pub fn shrink(moves: Vec<Move>, violation: Violation, planted: Option<Planted>) -> Counterexample {
    let mut best = Counterexample { moves, violation };
    let mut spent = 0;
    let mut size = best.moves.len().div_ceil(2);
    loop {
        let mut at = 0;
        let mut is_shorter = false;
        while at < best.moves.len() {
            let end = (at + size).min(best.moves.len());
            let rest: Vec<Move> = best.moves[..at]
                .iter()
                .chain(&best.moves[end..])
                .cloned()
                .collect();
            spent += rest.len();
            if spent > BUDGET {
                return best;
            }
            let (world, violation) = episode::replay(&rest, planted);
            match violation.filter(|one| one.promise == best.violation.promise) {
                Some(violation) => {
                    // Whatever comes after the break tells nothing.
                    let made = world.coverage.moves as usize;
                    let mut rest = rest;
                    rest.truncate(made.max(1));
                    best = Counterexample {
                        moves: rest,
                        violation,
                    };
                    is_shorter = true;
                }
                None => at = end,
            }
        }
        if size == 1 && !is_shorter {
            return best;
        }
        if !is_shorter {
            size = (size / 2).max(1);
        }
    }
}
