//! The conformance kit: the store in memory passes it, and each broken store is caught by exactly
//! the check that names its bug.

#![allow(clippy::unwrap_used, reason = "an expectation of the test")]

use std::collections::BTreeSet;

use annulus_agent::conformance::{self, CHECKS};

mod broken;
mod bug;
mod lab;
#[allow(dead_code, reason = "the tests of movement use the rest")]
#[path = "../moving/memory.rs"]
mod memory;
mod serving;

use bug::Bug;
use lab::MemoryLab;

/// Which check catches which bug.
#[rustfmt::skip] // One line a store.
const TABLE: &[(Bug, &str)] = &[
    (Bug::TrimsKeys, "bytes_are_bytes"),
    (Bug::ReadsEmptyAsNothing, "bytes_are_bytes"),
    (Bug::FindsKeysInAnySlot, "slots_are_apart"),
    (Bug::LastArrivalWins, "newest_version_wins"),
    (Bug::LatePutReturns, "tombstone_outlives_late_put"),
    (Bug::CountsTombstones, "tombstone_outlives_late_put"),
    (Bug::CountsPositionsAcrossReigns, "owner_positions_go_on"),
    (Bug::ForgetsAttempts, "holdings_say_attempt_and_marker"),
    (Bug::JumpsOverHoles, "watermark_stops_at_a_hole"),
    (Bug::HidesHoles, "hole_is_reported"),
    (Bug::AwaitsNoBase, "watermark_waits_for_the_base"),
    (Bug::LowersTheWatermark, "watermark_never_goes_back"),
    (Bug::NeedsRecordsToMove, "through_moves_the_watermark"),
    (Bug::MarkerMovesNothing, "marker_moves_the_watermark"),
    (Bug::BeginsAReignTwice, "reign_begins_at_its_base"),
    (Bug::ReadsStaging, "staging_is_not_read"),
    (Bug::ScansStaging, "staging_is_not_scanned"),
    (Bug::CountsStaging, "staging_is_not_counted"),
    (Bug::CopiesStaging, "staging_is_no_source"),
    (Bug::ServesRetained, "retained_is_not_served"),
    (Bug::CutsLazily, "cut_is_one_moment"),
    (Bug::CutsAtTheBase, "cut_says_how_far"),
    (Bug::TailsFromTheStart, "tail_is_all_above"),
    (Bug::TailsNoTombstones, "tombstones_travel"),
    (Bug::DigestsAllButTheLast, "digest_is_the_defined_sum"),
    (Bug::DigestsTheArrival, "digest_ignores_arrival"),
    (Bug::DigestsTheBeginning, "digest_tells_a_flipped_value"),
    (Bug::DigestsTombstonesAsEmpty, "digest_tells_tombstones"),
    (Bug::DigestsLiveOnly, "digest_of_every_copy"),
    (Bug::DigestsOverHoles, "digest_waits_for_holes"),
    (Bug::DigestsAhead, "digest_is_not_ahead"),
    (Bug::DigestsNowForThen, "digest_at_an_older_cut"),
    (Bug::PromotesWithoutWatermark, "promote_brings_what_was_staged"),
    (Bug::PromotesNothing, "promote_needs_a_copy"),
    (Bug::DemotesToIncomplete, "demote_keeps_what_came_since"),
    (Bug::RetainsWithoutWatermark, "retain_keeps_what_was_live"),
    (Bug::PermitFitsAnySession, "retained_goes_only_by_name"),
    (Bug::DropsWhatIsRetained, "drop_staging_takes_its_session"),
    (Bug::PermitTakesLiveCopies, "absent_slots_are_passed_over"),
    (Bug::NewAttemptKeepsRecords, "new_attempt_begins_empty"),
    (Bug::LateAttemptWins, "late_attempt_changes_nothing"),
    (Bug::LateSessionWins, "late_session_changes_nothing"),
    (Bug::LateRecordOpens, "late_record_finds_no_copy"),
    (Bug::LateMarkerOpens, "late_marker_finds_no_copy"),
    (Bug::FindsOnlyValues, "find_has_the_newest"),
    (Bug::ListsNoTombstones, "versions_are_of_all_above"),
    (Bug::ListsRecordsOfLiveCopiesAlone, "records_are_all_of_any_copy"),
    (Bug::ForksAtTheBase, "fork_is_what_was_raised"),
    (Bug::GivesUpAnyVersion, "strays_alone_are_given_up"),
    (Bug::SplitsBlindly, "split_deals_out"),
    (Bug::SplitsLiveCopiesAlone, "split_is_of_every_copy"),
    (Bug::SplitsAgain, "split_only_once"),
    (Bug::SplitsInPieces, "split_is_whole_or_not_at_all"),
    (Bug::OpensLiveAnew, "each_call_twice"),
    (Bug::OpensStagingAnew, "each_call_twice"),
    (Bug::PromotesOnlyOnce, "each_call_twice"),
    (Bug::ForgetsTheMarker, "crash_after_each_call"),
    (Bug::MergesInPieces, "crash_inside_each_call"),
    (Bug::PromotesInPieces, "crash_inside_each_call"),
    (Bug::GivesUpInPieces, "crash_inside_each_call"),
    (Bug::AnswersBeforeTheDisk, "crash_inside_each_call"),
    (Bug::AssignsPositionsAnew, "positions_outlive_a_crash"),
];

fn failed(lab: &MemoryLab) -> (Vec<&'static str>, String) {
    let scratch = tempfile::tempdir().unwrap();
    let report = conformance::run(lab, scratch.path());
    let names = report.failed.iter().map(|failure| failure.check).collect();
    (names, report.to_string())
}

#[test]
fn the_store_in_memory_passes_every_check() {
    let scratch = tempfile::tempdir().unwrap();
    let report = conformance::run(&MemoryLab::default(), scratch.path());
    assert!(report.passed_all(), "{report}");
    assert_eq!(report.passed.len(), CHECKS.len());
}

#[test]
fn each_broken_store_is_caught_by_exactly_the_check_that_names_its_bug() {
    let mut wrong = Vec::new();
    for (bug, check) in TABLE {
        let (names, report) = failed(&MemoryLab::with(*bug));
        if names != [*check] {
            wrong.push(format!("{bug:?}: expected {check} alone; {report}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_check_catches_some_broken_store() {
    let caught: BTreeSet<&str> = TABLE.iter().map(|(_, check)| *check).collect();
    let all: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(all.len(), CHECKS.len(), "two checks of one name");
    let idle: Vec<_> = all.difference(&caught).collect();
    assert!(
        idle.is_empty(),
        "no broken store shows that these look: {idle:?}"
    );
}

#[test]
fn a_failure_says_what_was_promised_and_what_came() {
    let scratch = tempfile::tempdir().unwrap();
    let lab = MemoryLab::with(Bug::JumpsOverHoles);
    let name = "watermark_stops_at_a_hole";
    let report = conformance::run_one(name, &lab, scratch.path()).unwrap();
    let told = report.to_string();
    for part in [
        "0 checks passed, 0 skipped, 1 failed",
        name,
        "promised: a watermark advances over positions without a hole",
        "expected: 1, 3 and 6 are held: Some(Position { reign: Epoch(1), seq: 1 })",
        "came:     Some(Position { reign: Epoch(1), seq: 6 })",
    ] {
        assert!(told.contains(part), "{part:?} is missing in: {told}");
    }
    assert!(conformance::run_one("no such check", &lab, scratch.path()).is_none());
}

#[test]
fn what_a_lab_cannot_do_is_skipped_by_name_and_not_passed() {
    let scratch = tempfile::tempdir().unwrap();
    let report = conformance::run(&MemoryLab::unstoppable(), scratch.path());
    assert!(report.failed.is_empty(), "{report}");
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        skipped,
        ["split_is_whole_or_not_at_all", "crash_inside_each_call"]
    );
    assert!(!report.passed_all());
}
