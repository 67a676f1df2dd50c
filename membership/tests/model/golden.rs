//! The golden tables: every legal edge that the model has seen, and what each command gives at each
//! step. `cargo x golden` (`UPDATE_GOLDEN=1`) writes them anew; a changed line is a changed lifecycle.

use std::{collections::BTreeSet, fs, path::PathBuf};

use annulus_membership::Outcome;
use annulus_ring::Step;

use super::{
    coverage::{Coverage, Edge, rejection_name},
    episode, moves, verb,
    world::World,
};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/model/golden")
        .join(name)
}

/// Compares with what is checked in, or writes it.
fn compare(name: &str, text: &str) {
    let path = path(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "{} differs; it is now:\n{text}\n(`cargo x golden` writes it)",
        path.display()
    );
}

/// The edges of a run are those of `golden/edges.txt`: none more, and after a long run none fewer.
pub fn edges_are_as_written(coverage: &Coverage, is_long: bool) {
    let line = |(from, by, to): &Edge| format!("{from:<14} {by:<10} {to}");
    let mut nodes: BTreeSet<String> = coverage.node_edges.keys().map(line).collect();
    let mut steps: BTreeSet<String> = coverage.step_edges.keys().map(line).collect();
    if !is_long {
        // A short run may miss what is rare.
        let written = fs::read_to_string(path("edges.txt")).unwrap_or_default();
        let (of_nodes, of_steps) = written.split_once("# steps\n").unwrap_or_default();
        let lines = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter(|line| !line.is_empty());
            lines
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect()
        };
        nodes.extend(lines(of_nodes));
        steps.extend(lines(of_steps));
    }
    let joined =
        |lines: BTreeSet<String>| -> String { lines.into_iter().map(|line| line + "\n").collect() };
    let text = format!(
        "# Every way in which a node's state and a transition's step change, and the command that\n\
         # does it: `-` is no member or no transition; `gone` leaves nothing, `removed` is final for\n\
         # the incarnation. Written anew, and shortened, by `UPDATE_GOLDEN=1 cargo x model`.\n\n\
         # node states\n{}\n# steps\n{}",
        joined(nodes),
        joined(steps)
    );
    compare("edges.txt", &text);
}

/// One join and one drain, by which every step has gainers, losers and an owner that leaves.
const STORY: &str = "
ring bits=2 rf=3
agent n0 z1 100
agent n1 z2 100
agent n2 z3 100
agent n3 z2 100
agent n4 z3 100
agent n5 z1 0
found accept n0 n1 n2
join n3
drain n1
";

/// What is tried at each step, besides every forgery.
const TRIED: &[&str] = &[
    "leads",
    "join n4",
    "join n3",
    "join nobody",
    "drain n2",
    "drain n1",
    "weight n2 50",
    "weight n2 0",
    "replace n2 n4",
    "replace n2 n5",
    "abort 1",
    "abort 2",
    "abort 7",
    "settle",
    "pause a look",
    "resume",
    "hold an audit",
    "unhold",
];

/// The world of the story at a step, everybody having said everything; 0: nothing moves yet.
fn at(step: Option<Step>) -> World {
    let mut moves = verb::parse(STORY).unwrap();
    if step.is_none() {
        moves.retain(|next| !["join", "drain"].contains(&next.verb().name));
    }
    let (mut world, violation) = episode::replay(&moves, None);
    assert_eq!(violation, None);
    let running = |world: &World| {
        let one = world.ring_state()?.transition.as_ref()?;
        Some(one.step)
    };
    let soon = if step == Some(Step::FlippingBack) {
        Some(Step::Switched)
    } else {
        step
    };
    for _ in 0..60 {
        world.everybody_acts();
        if soon.is_none() || running(&world) == soon {
            break;
        }
        world.leader_acts();
        world.now_ms += 500;
    }
    if step == Some(Step::FlippingBack) {
        verb::Move::parse("abort 2").unwrap().act(&mut world);
        world.everybody_acts();
    }
    assert_eq!(running(&world), step, "the story does not get there");
    assert_eq!(world.violation, None);
    world
}

/// "-> joint", "yes" where nothing moves on, or the rejection.
fn tried(step: Option<Step>, line: &str) -> String {
    let mut world = at(step);
    world.last = None;
    verb::Move::parse(line).unwrap().act(&mut world);
    match &world.last {
        None => "-".to_owned(),
        Some(Outcome::Rejected(rejection)) => rejection_name(rejection),
        Some(Outcome::Applied(_)) => {
            let now = world
                .ring_state()
                .unwrap()
                .transition
                .as_ref()
                .map(|one| one.step);
            match now {
                now if now == step => "yes".to_owned(),
                Some(now) => format!("-> {now}"),
                None if step == Some(Step::Switched) => "-> settled".to_owned(),
                None => "-> aborted".to_owned(),
            }
        }
    }
}

#[test]
fn commands_give_at_each_step_what_is_written() {
    let steps: Vec<Option<Step>> = std::iter::once(None)
        .chain(Step::ALL.into_iter().map(Some))
        .collect();
    let mut text = String::from(
        "# What each command gives at each step (0: nothing moves; 9: flipping back), everybody\n\
         # having reported: `yes` leaves the step, `-` has nothing to be said of.\n",
    );
    let forged = moves::forgeries::all().map(|(name, _)| format!("forges {name} 0"));
    let lines = TRIED.iter().map(|line| (*line).to_owned()).chain(forged);
    for line in lines {
        let mut given: Vec<(String, u8, u8)> = Vec::new();
        for step in &steps {
            let (answer, number) = (tried(*step, &line), step.map_or(0, Step::number));
            match given.last_mut().filter(|(last, ..)| *last == answer) {
                Some((_, _, to)) => *to = number,
                None => given.push((answer, number, number)),
            }
        }
        text.push_str(&format!("\n{line}\n"));
        for (answer, from, to) in given {
            let range = if from == to {
                from.to_string()
            } else {
                format!("{from}-{to}")
            };
            text.push_str(&format!("    {range:<4} {answer}\n"));
        }
    }
    compare("steps.txt", &text);
}
