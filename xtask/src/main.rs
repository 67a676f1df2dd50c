//! `cargo x`: what a contributor runs, with no tool to install. CI runs the same.

mod bait;
mod rules;
mod run;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::run::{Cargo, step};

/// Checks, fixes, golden files, baits and long runs.
#[derive(Debug, Parser)]
#[command(name = "cargo x")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Look, do not touch: format, clippy with warnings denied, who may depend on sled, licences
    Check,
    /// Format and take clippy's suggestions
    Fix,
    /// Run the simulation with one seed and print its trace
    Sim {
        /// A failure prints its seed
        seed: u64,
    },
    /// Run the seeded model of the state machine and print what it has seen
    Model {
        /// Moves in all; from a million on, every row of the table must be full
        #[arg(long, default_value_t = 1_000_000)]
        steps: u64,
        /// Another seed, other runs; a failure prints its seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Write the scenario tables anew, to be reviewed like code
    Golden,
    /// Write the language-neutral vectors anew, to be reviewed like a protocol
    Vectors,
    /// Show that each bait, a known bug built in on purpose, turns the suite red
    Bait {
        /// Only this one
        name: Option<String>,
        /// Only rules of the protocol, each left out for one fast test
        #[arg(long, conflicts_with = "name")]
        rules: bool,
    },
    /// The long forms of all tests
    Nightly,
}

fn main() -> Result<()> {
    match Args::parse().task {
        Task::Check => check(),
        Task::Fix => fix(),
        Task::Sim { seed } => sim(seed),
        Task::Model { steps, seed } => model(steps, seed),
        Task::Golden => golden(),
        Task::Vectors => vectors(),
        Task::Bait { rules: true, .. } => rules::run(None),
        Task::Bait { name, .. } => bait::run(name.as_deref()),
        Task::Nightly => nightly(),
    }
}

fn check() -> Result<()> {
    step("format", || Cargo::new(["fmt", "--all", "--check"]).run())?;
    step("clippy, warnings denied", || {
        Cargo::new([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
        .run()
    })?;
    step("only control-plane uses sled", only_control_plane_uses_sled)?;
    if Cargo::new(["deny", "--version"])
        .output()
        .is_ok_and(|output| output.success)
    {
        step("licences, bans, sources", || {
            Cargo::new(["deny", "check", "licenses", "bans", "sources"]).run()
        })?;
    } else {
        eprintln!("-- cargo-deny is not installed: licences, bans and sources are not checked");
    }
    Ok(())
}

/// The ban of deny.toml once more, for machines without cargo-deny: whoever calls sled without
/// going through `control-plane/src/raft` loses its real sync, and so acknowledged entries.
fn only_control_plane_uses_sled() -> Result<()> {
    let args = [
        "tree",
        "--workspace",
        "--invert",
        "sled",
        "--depth",
        "1",
        "--prefix",
        "none",
    ];
    let tree = Cargo::new(args).output()?;
    anyhow::ensure!(tree.success, "cargo tree failed: {}", tree.stderr);
    let users: Vec<&str> = tree
        .stdout
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    anyhow::ensure!(
        users.iter().all(|user| *user == "annulus-control-plane"),
        "sled may be used by annulus-control-plane alone, found {users:?}"
    );
    Ok(())
}

fn fix() -> Result<()> {
    step("clippy --fix", || {
        let args = [
            "clippy",
            "--fix",
            "--workspace",
            "--all-targets",
            "--allow-dirty",
        ];
        Cargo::new(args).arg("--allow-staged").run()
    })?;
    step("format", || Cargo::new(["fmt", "--all"]).run())
}

fn sim(seed: u64) -> Result<()> {
    let seed = seed.to_string();
    step(&format!("simulation, seed {seed}"), || {
        Cargo::new([
            "test",
            "-p",
            "annulus-membership",
            "--test",
            "lifecycle",
            "promises_hold",
        ])
        .args(["--", "--nocapture"])
        .env("ANNULUS_TRACE", "1")
        .env("ANNULUS_SEED", &seed)
        .run()
    })
}

fn model(steps: u64, seed: u64) -> Result<()> {
    step(&format!("model, seed {seed}, {steps} steps"), || {
        Cargo::new([
            "test",
            "--profile",
            "model",
            "-p",
            "annulus-membership",
            "--test",
            "model",
            "every_promise_holds",
        ])
        .args(["--", "--nocapture"])
        .env("ANNULUS_MODEL_STEPS", &steps.to_string())
        .env("ANNULUS_MODEL_SEED", &seed.to_string())
        .run()
    })
}

fn golden() -> Result<()> {
    step("scenario tables", || {
        Cargo::new([
            "test",
            "-p",
            "annulus-membership",
            "-p",
            "annulus-ring",
            "-p",
            "annulus-proto",
            "-p",
            "annulus-simulate",
        ])
        .env("UPDATE_GOLDEN", "1")
        .env("INSTA_UPDATE", "always")
        .run()
    })?;
    eprintln!("-- look at `git diff` before you commit: each changed line is a changed promise");
    Ok(())
}

fn vectors() -> Result<()> {
    step("vectors", || {
        Cargo::new(["test", "-p", "annulus-ring", "--test", "it", "vectors"])
            .env("UPDATE_VECTORS", "1")
            .run()
    })?;
    eprintln!("-- a changed line is a changed protocol: keys move, or other languages disagree");
    Ok(())
}

/// What makes tests long: each suite reads its own variable and says in its file what it means.
const LONG_FORMS: &[(&str, &str)] = &[
    ("ANNULUS_NIGHTLY", "1"),
    ("ANNULUS_SEEDS", "2000"),
    ("ANNULUS_POWER_CUT_ROUNDS", "10"),
    ("ANNULUS_STORM_SECONDS", "120"),
    ("ANNULUS_C21_ROUNDS", "200"),
    ("ANNULUS_C25_SECONDS", "600"),
];

fn nightly() -> Result<()> {
    step("all tests, long forms", || {
        let test = Cargo::new(["test", "--release", "--workspace", "--no-fail-fast"]);
        let long = LONG_FORMS
            .iter()
            .fold(test, |test, (name, value)| test.env(name, value));
        long.run()
    })?;
    model(1_000_000, 1)?;
    step("baits", || bait::run(None))?;
    step("annulus dev", || {
        Cargo::new(["run", "--release", "--", "dev"]).run()
    })
}
