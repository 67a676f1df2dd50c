//! Baits: known bugs built in under the feature `bait` and chosen by name at run time. A suite
//! that stays green with one of them proves nothing.

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use crate::{rules, run::Cargo};

/// Tests of one package that must notice a bait (libtest filters), and are green without one.
struct Suite {
    package: &'static str,
    /// The profile it is built in.
    profile: &'static str,
    filters: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

/// Real processes: the part of the main job with a switch whose gainer is slow, which shows these
/// bugs every time and in seconds.
const PROCESSES: Suite = Suite {
    package: "annulus-tests",
    profile: "dev",
    filters: &["main_job::switch"],
    env: &[],
};
/// The seeded model of the state machine: a rule of `decide` that is left out breaks a promise.
const MODEL: Suite = Suite {
    package: "annulus-membership",
    profile: "model",
    filters: &["every_promise_holds"],
    // Some rules are tried about once in so many moves of an ordinary run.
    env: &[("ANNULUS_MODEL_STEPS", "200000")],
};
/// The log store under simulated power cuts.
const POWER_CUTS: Suite = Suite {
    package: "annulus-control-plane",
    profile: "dev",
    filters: &["survive_power_cuts", "an_answer_comes_after_a_real_sync"],
    env: &[],
};

struct Bait {
    name: &'static str,
    what: &'static str,
    suite: &'static Suite,
}

const BAITS: &[Bait] = &[
    Bait {
        name: "switch-not-waiting-for-joint",
        what: "the switch does not wait until gainers hold everything up to J",
        suite: &PROCESSES,
    },
    Bait {
        name: "joint-after-switch",
        what: "owners acknowledge jointly only after the switch",
        suite: &PROCESSES,
    },
    Bait {
        name: "ack-before-sync",
        what: "an append is answered before it is on disk",
        suite: &POWER_CUTS,
    },
    Bait {
        name: "evidence-of-any-life",
        what: "a step is entered on the word of another incarnation",
        suite: &MODEL,
    },
    Bait {
        name: "evidence-of-any-session",
        what: "a step is entered on the word of another session",
        suite: &MODEL,
    },
    Bait {
        name: "evidence-of-any-epoch",
        what: "a step is entered though a node has not acked its epoch",
        suite: &MODEL,
    },
    Bait {
        name: "evidence-of-unequal-roots",
        what: "a step is entered though source and gainer do not agree",
        suite: &MODEL,
    },
    Bait {
        name: "step-before-hand-over",
        what: "writes to gainers begin while an owner that leaves still owns",
        suite: &MODEL,
    },
    Bait {
        name: "end-before-soak",
        what: "the old lists are given up before the soak is over",
        suite: &MODEL,
    },
    Bait {
        name: "end-without-losers",
        what: "the old lists are given up before every loser refuses reads of them",
        suite: &MODEL,
    },
    Bait {
        name: "abort-without-flip-back",
        what: "a switched transition is aborted in one entry",
        suite: &MODEL,
    },
    Bait {
        name: "wave-over-a-wave",
        what: "a hand-over wave begins while another runs",
        suite: &MODEL,
    },
    Bait {
        name: "hand-over-of-any-reign",
        what: "F of an older reign ends a wave",
        suite: &MODEL,
    },
    Bait {
        name: "hand-over-not-held",
        what: "a wave ends though the successor lacks what the owner sealed",
        suite: &MODEL,
    },
    Bait {
        name: "permit-in-grace",
        what: "a retained copy is deleted in its grace",
        suite: &MODEL,
    },
    Bait {
        name: "permit-on-old-proof",
        what: "a retained copy is deleted on proof from before it was one",
        suite: &MODEL,
    },
    Bait {
        name: "permit-of-the-last",
        what: "a retained copy is deleted with too few copies elsewhere",
        suite: &MODEL,
    },
    Bait {
        name: "target-led-by-anyone",
        what: "a range is to be led by a node that never held it",
        suite: &MODEL,
    },
    Bait {
        name: "drain-below-rf",
        what: "a drain leaves fewer nodes than rf",
        suite: &MODEL,
    },
    Bait {
        name: "request-done-again",
        what: "a repeated request id is carried out again",
        suite: &MODEL,
    },
];

/// One line of the table.
struct Row {
    name: &'static str,
    what: &'static str,
    as_wanted: bool,
    outcome: Outcome,
}

struct Outcome {
    passed: usize,
    failed: Vec<String>,
    seconds: f64,
}

/// Runs the suites without a bait (must be green), then with each (must be red).
pub fn run(only: Option<&str>) -> Result<()> {
    let own: Vec<&str> = BAITS.iter().map(|bait| bait.name).collect();
    let known: Vec<&str> = own.iter().copied().chain(rules::names()).collect();
    if let Some(name) = only
        && !known.contains(&name)
    {
        bail!("no bait {name:?}; known: {}", known.join(", "));
    }
    // The fast ones first: one test each.
    if only.is_none_or(|name| rules::names().any(|rule| rule == name)) {
        rules::run(only)?;
    }
    if only.is_some_and(|name| !own.contains(&name)) {
        return Ok(());
    }
    let mut rows = Vec::new();
    for suite in [&MODEL, &PROCESSES, &POWER_CUTS] {
        let baits: Vec<&Bait> = BAITS
            .iter()
            .filter(|bait| bait.suite.package == suite.package)
            .filter(|bait| only.is_none_or(|name| name == bait.name))
            .collect();
        if !baits.is_empty() {
            rows.extend(run_with_each(suite, &baits)?);
        }
    }
    print(&rows);
    ensure!(
        rows.iter().all(|row| row.as_wanted),
        "a bait was not noticed, or a suite is red without one"
    );
    Ok(())
}

fn run_with_each(suite: &Suite, baits: &[&Bait]) -> Result<Vec<Row>> {
    let clean = run_suite(suite, None)?;
    let Suite {
        package, filters, ..
    } = suite;
    ensure!(
        clean.passed + clean.failed.len() > 0,
        "{package}: no test matches {filters:?}"
    );
    let mut rows = vec![Row {
        name: "(none)",
        what: package,
        as_wanted: clean.failed.is_empty(),
        outcome: clean,
    }];
    for bait in baits {
        let outcome = run_suite(suite, Some(bait.name))?;
        rows.push(Row {
            name: bait.name,
            what: bait.what,
            as_wanted: !outcome.failed.is_empty(),
            outcome,
        });
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    let (bait, as_wanted, time) = ("BAIT", "AS WANTED", "TIME");
    println!("{bait:<30} {as_wanted:<9} {time:>7}  TURNED RED");
    for row in rows {
        let Outcome {
            passed,
            failed,
            seconds,
        } = &row.outcome;
        let word = if row.as_wanted { "yes" } else { "NO" };
        let red = match failed.as_slice() {
            [] => format!("nothing ({passed} tests green)"),
            failed => failed.join(", "),
        };
        println!("{:<30} {word:<9} {seconds:>5.0} s  {red}", row.name);
        println!("{:<30} {}", "", row.what);
    }
}

fn run_suite(suite: &Suite, bait: Option<&str>) -> Result<Outcome> {
    let Suite {
        package,
        profile,
        filters,
        env,
    } = suite;
    eprintln!("-- {package} with {}", bait.unwrap_or("no bait"));
    let start = Instant::now();
    let mut cargo = Cargo::new(["test", "--package", package, "--features", "bait"]).args([
        "--profile",
        profile,
        "--no-fail-fast",
        "--",
    ]);
    for filter in *filters {
        cargo = cargo.arg(filter);
    }
    for (name, value) in *env {
        cargo = cargo.env(name, value);
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
pub fn tests(stdout: &str, word: &str) -> Vec<String> {
    stdout
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
        .filter(|(_, ended)| ended.trim() == word)
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}
