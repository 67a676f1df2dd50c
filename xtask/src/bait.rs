//! Baits: known bugs built in under the feature `bait` and chosen by name at run time. A suite
//! that stays green with one of them proves nothing.

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use crate::run::Cargo;

/// Each bait, and the tests among which one must notice it (libtest filters).
const BAITS: &[Bait] = &[
    Bait {
        name: "switch-not-waiting-for-joint",
        what: "the switch does not wait until gainers hold everything up to J",
        filters: &["bait"],
    },
    Bait {
        name: "joint-after-switch",
        what: "owners acknowledge jointly only after the switch",
        filters: &["bait"],
    },
    Bait {
        name: "ack-before-sync",
        what: "an append is answered before it is on disk",
        filters: &["bait", "durable"],
    },
];

struct Bait {
    name: &'static str,
    what: &'static str,
    filters: &'static [&'static str],
}

struct Outcome {
    passed: usize,
    failed: Vec<String>,
    seconds: f64,
}

/// Runs the suites without a bait (must be green), then with each (must be red).
pub fn run(only: Option<&str>) -> Result<()> {
    let known: Vec<&str> = BAITS.iter().map(|bait| bait.name).collect();
    if let Some(name) = only
        && !known.contains(&name)
    {
        bail!("no bait {name:?}; known: {}", known.join(", "));
    }
    let mut rows = Vec::new();
    let mut as_wanted = true;
    let filters: Vec<&str> = BAITS
        .iter()
        .flat_map(|bait| bait.filters)
        .copied()
        .collect();
    let clean = suite(None, &filters)?;
    ensure!(
        clean.passed + clean.failed.len() > 0,
        "no test matches {filters:?}"
    );
    as_wanted &= clean.failed.is_empty();
    rows.push(("(none)", "as shipped", clean.failed.is_empty(), clean));
    for bait in BAITS
        .iter()
        .filter(|bait| only.is_none_or(|name| name == bait.name))
    {
        let caught = suite(Some(bait.name), bait.filters)?;
        let red = !caught.failed.is_empty();
        as_wanted &= red;
        rows.push((bait.name, bait.what, red, caught));
    }
    println!(
        "{:<30} {:<9} {:>7}  TURNED RED",
        "BAIT", "AS WANTED", "TIME"
    );
    for (name, what, wanted, outcome) in &rows {
        let word = if *wanted { "yes" } else { "NO" };
        let red = match outcome.failed.as_slice() {
            [] => format!("nothing ({} tests green)", outcome.passed),
            failed => failed.join(", "),
        };
        println!("{name:<30} {word:<9} {:>5.0} s  {red}", outcome.seconds);
        println!("{:<30} {what}", "");
    }
    ensure!(
        as_wanted,
        "a bait was not noticed, or the suite is red without one"
    );
    Ok(())
}

fn suite(bait: Option<&str>, filters: &[&str]) -> Result<Outcome> {
    eprintln!("-- suite with {}", bait.unwrap_or("no bait"));
    let start = Instant::now();
    let mut cargo = Cargo::new(["test", "--package", "annulus-tests", "--features", "bait"])
        .args(["--no-fail-fast", "--"]);
    for filter in filters {
        cargo = cargo.arg(filter);
    }
    if let Some(name) = bait {
        cargo = cargo.env("ANNULUS_BAIT", name);
    }
    let output = cargo.output()?;
    let failed = tests(&output.stdout, "FAILED");
    let passed = tests(&output.stdout, "ok").len();
    // Exit code without a failed test: it did not compile, or a test took the process down.
    if !output.success && failed.is_empty() {
        bail!(
            "the suite did not run to its end:\n{}\n{}",
            output.stdout,
            output.stderr
        );
    }
    Ok(Outcome {
        passed,
        failed,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Names of the tests that ended with `word`, from libtest's lines `test NAME ... WORD`.
fn tests(stdout: &str, word: &str) -> Vec<String> {
    stdout
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
        .filter(|(_, ended)| ended.trim() == word)
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}
