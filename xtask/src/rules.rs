//! One rule out at a time: each rule of the protocol is left out of the real code, and one fast test
//! must turn red. `docs/protocol.md` states the rules; `agent/src/bait.rs` has their names.

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use crate::{
    bait::tests,
    run::{Cargo, Output},
};

/// Where the tests are: package, and the test binary of it.
#[derive(PartialEq, Eq)]
struct Suite {
    package: &'static str,
    binary: &'static [&'static str],
}

/// Real agents, a store in memory, a leader in the test's hand.
const MOVING: Suite = Suite {
    package: "annulus-agent",
    binary: &["--test", "moving"],
};
/// The leader's decisions, without I/O.
const LIFECYCLE: Suite = Suite {
    package: "annulus-membership",
    binary: &["--test", "lifecycle"],
};
/// The guard by itself.
const GUARD: Suite = Suite {
    package: "annulus-agent",
    binary: &["--lib"],
};
/// The reference store.
const KV: Suite = Suite {
    package: "annulus-kv",
    binary: &["--lib"],
};

pub struct Rule {
    pub name: &'static str,
    what: &'static str,
    suite: &'static Suite,
    test: &'static str,
}

const fn rule(
    name: &'static str,
    what: &'static str,
    suite: &'static Suite,
    test: &'static str,
) -> Rule {
    Rule {
        name,
        what,
        suite,
        test,
    }
}

/// In the order of a change; some rules have a side at the leader and one at the data node.
const RULES: &[Rule] = &[
    rule(
        "copying-before-owners-drained",
        "barrier before copy, as the leader has it",
        &LIFECYCLE,
        "stories::copies_begin_when_every_owner_has_drained_what_does_not_go_to_gainers",
    ),
    rule(
        "copy-before-barrier",
        "barrier before copy, as the source has it",
        &MOVING,
        "rules::no_copy_is_cut_before_every_owner_feeds_the_gainers",
    ),
    rule(
        "copy-from-anybody",
        "the source of a copy is the owner",
        &MOVING,
        "rules::only_the_owner_is_a_source_of_copies",
    ),
    rule(
        "copy-without-tombstones",
        "tombstones are copied",
        &MOVING,
        "stories::f12_no_tombstone_is_ever_collected",
    ),
    rule(
        "digests-not-compared",
        "a copy is verified by its digest",
        &LIFECYCLE,
        "stories::a_copy_with_another_digest_is_not_verified",
    ),
    rule(
        "digest-older-than-the-copy",
        "at a cut that is not older than the copy",
        &LIFECYCLE,
        "stories::a_digest_older_than_the_copy_proves_nothing",
    ),
    rule(
        "joint-after-switch",
        "joint before the switch",
        &MOVING,
        "rules::from_the_joint_step_on_two_of_both_lists_are_needed",
    ),
    rule(
        "switch-not-waiting-for-joint",
        "the switch waits for J, as the leader has it",
        &LIFECYCLE,
        "stories::the_switch_waits_until_gainers_merged_everything_up_to_j",
    ),
    rule(
        "watermark-over-holes",
        "a watermark leaves no hole below",
        &MOVING,
        "stories::f09_no_watermark_over_a_hole",
    ),
    rule(
        "watermark-without-base",
        "nor the base of its reign",
        &MOVING,
        "stories::f09_no_watermark_in_a_reign_without_its_base",
    ),
    rule(
        "joint-until-switch",
        "joint through the soak",
        &MOVING,
        "stories::f06_through_the_soak_the_old_list_counts_too",
    ),
    rule(
        "joint-until-flip-back",
        "joint through the soak of a flip back",
        &MOVING,
        "stories::f08_a_flip_back_has_a_soak_of_its_own",
    ),
    rule(
        "reads-not-fenced",
        "fence at replicas, for reads",
        &MOVING,
        "stories::f08_a_flip_back_has_a_soak_of_its_own",
    ),
    rule(
        "sessions-never-close",
        "packets of a session that is over are refused",
        &MOVING,
        "stories::f13_a_session_ends_with_success_too",
    ),
    rule(
        "wipe-before-barrier",
        "staging is wiped only when nobody writes to it",
        &MOVING,
        "transition::an_aborted_copy_is_closed_at_once_and_wiped_when_everyone_knows",
    ),
    rule(
        "compared-without-tail",
        "a permit's proof is of everything the owner holds",
        &MOVING,
        "rules::a_member_is_compared_with_everything_that_its_owner_holds",
    ),
    rule(
        "delete-without-permit",
        "a copy is deleted under a permit alone",
        &MOVING,
        "rules::a_retained_copy_goes_only_by_a_permit_that_was_read_right_before",
    ),
    rule(
        "no-seal",
        "an owner that hands over seals",
        &MOVING,
        "rules::a_seal_holds_until_a_newer_reign",
    ),
    rule(
        "seal-ends-by-itself",
        "no timer lifts a seal",
        &MOVING,
        "rules::a_seal_holds_until_a_newer_reign",
    ),
    rule(
        "writes-not-fenced",
        "fence at replicas, for writes",
        &MOVING,
        "stories::f01_a_seal_by_refusals_seals",
    ),
    rule(
        "tails-not-read",
        "a new owner reads the tails",
        &MOVING,
        "stories::f02_what_a_silent_owner_acknowledged_is_in_the_tails",
    ),
    rule(
        "tails-before-refusal",
        "given after the refusal",
        &MOVING,
        "stories::f04_no_tail_is_given_before_the_refusal",
    ),
    rule(
        "strays-kept",
        "what a deposed owner left behind is given up",
        &MOVING,
        "stories::f10_strays_of_a_deposed_owner_block_nothing",
    ),
    rule(
        "never-restamped",
        "a write refused for its age is stamped anew",
        &MOVING,
        "stories::f14_a_write_refused_for_its_age_blocks_no_barrier",
    ),
    rule(
        "never-restamped",
        "the same, in the reference store",
        &KV,
        "tests::paths::a_write_in_flight_is_stamped_anew_and_needs_both_lists",
    ),
    rule(
        "conversion-without-everyone",
        "a conversion takes effect when every member serves nobody",
        &LIFECYCLE,
        "scenarios::scenarios_read_as_written",
    ),
    rule(
        "conversion-before-acks",
        "the same: their word is of the epoch that began it",
        &LIFECYCLE,
        "scenarios::scenarios_read_as_written",
    ),
    rule(
        "serves-while-converting",
        "a member serves nobody while the ring is converted",
        &GUARD,
        "guard::tests::while_the_ring_is_converted_nobody_is_served_and_who_waits_goes_on_after_it",
    ),
    rule(
        "slots-of-before",
        "a slot that was named before a conversion is nobody's after it",
        &GUARD,
        "guard::tests::a_slot_that_was_named_before_a_conversion_is_not_the_one_of_that_number_after_it",
    ),
];

/// Names that can be asked for.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.name)
}

/// Runs the named tests without a bait (must be green), then each with its rule left out (must be
/// red). `only`: this rule alone.
pub fn run(only: Option<&str>) -> Result<()> {
    let wanted = |rule: &&Rule| only.is_none_or(|name| name == rule.name);
    let mut table = vec![format!(
        "{:<30} {:<4} {:>6}  TEST",
        "RULE LEFT OUT", "RED", "TIME"
    )];
    let mut missed = Vec::new();
    for suite in [&LIFECYCLE, &MOVING, &KV] {
        let rules: Vec<&Rule> = RULES
            .iter()
            .filter(wanted)
            .filter(|it| it.suite == suite)
            .collect();
        if rules.is_empty() {
            continue;
        }
        eprintln!("-- {} as it is", suite.package);
        let clean = run_tests(suite, rules.iter().map(|rule| rule.test), None)?;
        let failed = tests(&clean.stdout, "FAILED");
        ensure!(
            clean.success,
            "red without a bait: {failed:?}\n{}\n{}",
            clean.stdout,
            clean.stderr
        );
        let passed = tests(&clean.stdout, "ok");
        for Rule {
            name, what, test, ..
        } in rules
        {
            ensure!(
                passed.iter().any(|one| one == test),
                "{name}: no test {test} in {}",
                suite.package
            );
            eprintln!("-- {name}: {what}");
            let start = Instant::now();
            let output = run_tests(suite, [*test].into_iter(), Some(name))?;
            let red = tests(&output.stdout, "FAILED")
                .iter()
                .any(|one| one == test);
            if !red && !output.success {
                bail!(
                    "{name}: did not run to its end:\n{}\n{}",
                    output.stdout,
                    output.stderr
                );
            }
            if !red {
                missed.push(*name);
            }
            let (word, seconds) = (
                if red { "yes" } else { "NO" },
                start.elapsed().as_secs_f64(),
            );
            table.push(format!("{name:<30} {word:<4} {seconds:>4.1} s  {test}"));
            table.push(format!("{:<30} {what}", ""));
        }
    }
    table.iter().for_each(|line| println!("{line}"));
    ensure!(
        missed.is_empty(),
        "no test notices that these are left out: {}",
        missed.join(", ")
    );
    Ok(())
}

fn run_tests(
    suite: &Suite,
    wanted: impl Iterator<Item = &'static str>,
    bait: Option<&str>,
) -> Result<Output> {
    let Suite { package, binary } = suite;
    let mut cargo = Cargo::new(["test", "--package", package, "--features", "bait"]);
    for arg in *binary {
        cargo = cargo.arg(arg);
    }
    cargo = cargo.args(["--", "--exact"]);
    for test in wanted {
        cargo = cargo.arg(test);
    }
    if let Some(name) = bait {
        cargo = cargo.env("ANNULUS_BAIT", name);
    }
    cargo.output()
}
