//! The run itself, and the scenarios that earlier runs have found.

#![allow(
    clippy::disallowed_types,
    reason = "how long a run took is printed, and nothing else"
)]

use std::{fs, path::Path, time::Instant};

use super::{coverage::Coverage, episode, golden, shrink, verb};

/// Steps of an ordinary `cargo test`; `ANNULUS_MODEL_STEPS` and `ANNULUS_MODEL_SEED` change both.
const STEPS: u64 = 20_000;
/// From so many steps on every row of the table must be full.
const LONG: u64 = 1_000_000;
/// How often each row is seen in the long form.
const OFTEN: u64 = 100;
/// Percent of the steps by which some entry is accepted.
const ACCEPTED_PERCENT: u64 = 30;

fn number(name: &str, or: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => or,
    }
}

#[test]
fn every_promise_holds_through_random_changes_and_failures() {
    let steps = number("ANNULUS_MODEL_STEPS", STEPS);
    let seed = number("ANNULUS_MODEL_SEED", 1);
    let started = Instant::now();
    let mut coverage = Coverage::default();
    let mut episodes = 0;
    while coverage.moves < steps {
        let run = episode::play(seed, episodes, None);
        if let Some(violation) = run.violation {
            let count = run.moves.len();
            // Shrinking takes minutes where each try must wait until nothing moves any more.
            println!(
                "seed {seed}, episode {episodes}, after {count} moves: {violation}; shrinking"
            );
            let short = shrink::shrink(run.moves, violation, None);
            panic!(
                "seed {seed}, episode {episodes}, after {count} moves; shrunk to {}:\n{}",
                short.moves.len(),
                short.scenario()
            );
        }
        coverage.add(run.coverage);
        episodes += 1;
    }
    println!("{}", coverage.table());
    println!(
        "seed {seed}: {episodes} episodes, {}, 0 violations, {:.1} s",
        coverage.sum(),
        started.elapsed().as_secs_f64()
    );
    let accepted = 100 * coverage.accepted_moves / coverage.moves;
    assert!(
        accepted >= ACCEPTED_PERCENT,
        "only {accepted} % of the steps were accepted"
    );
    let is_long = steps >= LONG;
    golden::edges_are_as_written(&coverage, is_long);
    let missing = coverage.missing(OFTEN);
    assert!(
        !is_long || missing.is_empty(),
        "seen fewer than {OFTEN} times in {} steps (a move in tests/model/moves reaches it):\n{}",
        coverage.moves,
        missing.join("\n")
    );
}

/// What once broke a promise is kept as a scenario, and replayed.
#[test]
fn scenarios_that_broke_a_promise_break_none_now() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model/found");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let name = file.display();
        let text = fs::read_to_string(&file).unwrap();
        let moves = verb::parse(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        let (world, violation) = episode::replay(&moves, None);
        assert_eq!(violation, None, "{name}");
        assert!(world.coverage.accepted > 3, "{name} does nothing any more");
    }
}
