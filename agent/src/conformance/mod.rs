//! What any [`RangeStore`] promises, as a list of checks that a store runs against itself.
//!
//! The author of a store writes two small things: a [`Subject`], the store with the few calls of
//! its serving side that the kit needs, and a [`Lab`], which opens one in a directory and opens it
//! again after a crash. Then one test:
//!
//! ```ignore
//! let report = conformance::run(&MyLab, scratch.path());
//! assert!(report.passed_all(), "{report}");
//! ```
//!
//! Each check has a name and a promise; a store that breaks it is told what was promised and what
//! came. Checks are narrow: one bug is named by one check wherever that is possible, and the kit's
//! own tests hold a table of broken stores, each caught by exactly one. `docs/store-authors.md`
//! says in which order to implement what.
//!
//! A check is added by a function and a line in [`CHECKS`].

mod again;
mod bench;
mod copies;
mod crash;
mod cuts;
mod digests;
mod hidden;
mod order;
mod sessions;
mod splits;
mod story;
mod strays;
mod watermarks;

use std::{fmt, path::Path};

use annulus_ring::{Position, Slot};
use bytes::Bytes;

use self::bench::{Bench, Done, Stop};
use crate::store::{RangeStore, StoreError};

/// Any error of a store's own that keeps it from opening.
pub type OpenError = Box<dyn std::error::Error + Send + Sync>;

/// A store under test: what the agent drives, and what clients would be served from.
///
/// Reads of a slot without a live copy may answer nothing or [`StoreError::Missing`].
pub trait Subject: RangeStore {
    /// As the owner of the slot: stores a write at the next position of the live copy's reign,
    /// durably, as the store's write path does. The position.
    ///
    /// # Errors
    /// As the store's write path.
    fn write(&self, slot: Slot, key: &[u8], value: Option<&[u8]>) -> Result<Position, StoreError>;

    /// What a client's read of one key is answered: the value, or nothing (also for a tombstone).
    ///
    /// # Errors
    /// As the store's read path.
    fn read(&self, slot: Slot, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// All keys with a value that a scan of the slot would show, in any order. A store without
    /// scans answers the keys that it would serve.
    ///
    /// # Errors
    /// As the store's read path.
    fn scan(&self, slot: Slot) -> Result<Vec<Bytes>, StoreError>;

    /// How many keys with a value the slot counts.
    ///
    /// # Errors
    /// As the store's read path.
    fn count(&self, slot: Slot) -> Result<u64, StoreError>;
}

/// Opens stores for the checks. Slots 0 to 15 are used.
pub trait Lab: Sync {
    /// Opens the store in this directory, empty if there is none yet.
    ///
    /// # Errors
    /// Whatever keeps the store from opening; the check fails with it.
    fn open(&self, dir: &Path) -> Result<Box<dyn Subject>, OpenError>;

    /// What a killed process leaves, opened again. By default the store is dropped and opened; if
    /// dropping it writes anything, throw that away here.
    ///
    /// # Errors
    /// As [`Lab::open`].
    fn crash(&self, store: Box<dyn Subject>, dir: &Path) -> Result<Box<dyn Subject>, OpenError> {
        drop(store);
        self.open(dir)
    }

    /// Copies a closed store into another directory. By default all files are copied.
    ///
    /// # Errors
    /// As [`Lab::open`].
    fn fork(&self, from: &Path, to: &Path) -> Result<(), OpenError> {
        Ok(copy_files(from, to)?)
    }

    /// Opens a store whose disk fails for good after `writes` more writes: this is how the kit
    /// stops it in the middle of a call, once per write. `None`, the default: it cannot be stopped
    /// there, and [`Report::skipped`] says so.
    fn open_failing(&self, dir: &Path, writes: u64) -> Option<Result<Box<dyn Subject>, OpenError>> {
        let _ = (dir, writes);
        None
    }
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// One promise and how it is tried.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name, for reports and for [`run_one`].
    pub name: &'static str,
    /// What a store promises.
    pub promise: &'static str,
    run: fn(&Bench<'_>) -> Done,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

const fn check(name: &'static str, promise: &'static str, run: fn(&Bench<'_>) -> Done) -> Check {
    Check { name, promise, run }
}

/// Every check, in the order in which a store is best made to pass them.
#[rustfmt::skip] // One line a check.
pub const CHECKS: &[Check] = &[
    check("bytes_are_bytes", "keys and values come back byte for byte, and an empty value is a value", order::bytes_are_bytes),
    check("slots_are_apart", "a key of one slot is no key of another", order::slots_are_apart),
    check("newest_version_wins", "the newest version of a key wins, whatever the order of arrival", order::newest_version_wins),
    check("tombstone_outlives_late_put", "a put that arrives after a newer delete stays deleted", order::tombstone_outlives_late_put),
    check("owner_positions_go_on", "an owner's positions rise by one within a reign and begin anew with the next", order::owner_positions_go_on),
    check("holdings_say_attempt_and_marker", "holdings name each copy with its attempt and its complete-copy marker", copies::holdings_say_attempt_and_marker),
    check("watermark_stops_at_a_hole", "a watermark advances over positions without a hole, and no further", watermarks::stops_at_a_hole),
    check("hole_is_reported", "records above a hole are reported as pending until it is filled", watermarks::hole_is_reported),
    check("watermark_waits_for_the_base", "positions of a newer reign count only once its base is held", watermarks::waits_for_the_base),
    check("watermark_never_goes_back", "nothing that arrives late lowers a watermark", watermarks::never_goes_back),
    check("through_moves_the_watermark", "`through` says what is held, also without records", watermarks::through_moves_it),
    check("marker_moves_the_watermark", "the complete-copy marker says that everything up to the cut is held", watermarks::marker_moves_it),
    check("reign_begins_at_its_base", "begin_reign raises an older watermark to (reign, 0) and leaves a newer one", watermarks::reign_begins),
    check("staging_is_not_read", "a read sees nothing of a staging copy, opened or demoted", hidden::not_read),
    check("staging_is_not_scanned", "a scan sees nothing of a staging copy", hidden::not_scanned),
    check("staging_is_not_counted", "a count sees nothing of a staging copy", hidden::not_counted),
    check("staging_is_no_source", "cuts and tails are of the live copy alone", hidden::no_source),
    check("retained_is_not_served", "a retained copy is neither read, scanned, counted nor copied", hidden::retained_not_served),
    check("cut_is_one_moment", "a cut has what was there when it was taken, and nothing later", cuts::one_moment),
    check("cut_says_how_far", "a cut's position is the last one that the owner assigned", cuts::says_how_far),
    check("tail_is_all_above", "a tail has every record above its start and none below", cuts::tail_is_all_above),
    check("tombstones_travel", "cuts and tails carry tombstones", cuts::tombstones_travel),
    check("digest_is_the_defined_sum", "a digest is annulus_agent::digest::Sum over the newest records", digests::defined_sum),
    check("digest_ignores_arrival", "two stores fed the same records in different orders have one digest", digests::ignores_arrival),
    check("digest_tells_a_flipped_value", "one flipped bit of a value changes the digest", digests::tells_a_flipped_value),
    check("digest_tells_tombstones", "tombstones are digested and counted, and none equals an empty value", digests::tells_tombstones),
    check("digest_of_every_copy", "staging and retained copies have digests too", digests::of_every_copy),
    check("digest_waits_for_holes", "a digest at the watermark is refused as Pending while records are held above it", digests::waits_for_holes),
    check("digest_is_not_ahead", "a digest at a cut that is not reached is refused as NotThere", digests::not_ahead),
    check("digest_at_an_older_cut", "an owner tells its digest at a recent cut, or says CutTrimmed and tells it at the next", digests::at_an_older_cut),
    check("promote_brings_what_was_staged", "what was staged serves after promote", copies::promote_brings),
    check("promote_needs_a_copy", "promoting a slot that was neither staged nor live is refused as Missing", copies::promote_needs_a_copy),
    check("demote_keeps_what_came_since", "demote hides a live copy, complete and with everything written since", copies::demote_keeps),
    check("retain_keeps_what_was_live", "a retained copy holds what the live one held, and its slot has no live copy", copies::retain_keeps),
    check("retained_goes_only_by_name", "drop_retained deletes the named session's copies of the named slots alone", copies::retained_by_name),
    check("drop_staging_takes_its_session", "drop_staging deletes all staging of its session and nothing else", copies::drop_staging_takes),
    check("absent_slots_are_passed_over", "demote, retain and drop_retained pass over slots without such a copy", copies::absent_passed_over),
    check("new_attempt_begins_empty", "a newer attempt or session begins with an empty staging copy", sessions::begins_empty),
    check("late_attempt_changes_nothing", "opening an older attempt again leaves the newer one as it is", sessions::late_attempt),
    check("late_session_changes_nothing", "calls of an older session leave the newer one's staging copy as it is", sessions::late_session),
    check("late_record_finds_no_copy", "a record for staging that was promoted, dropped or never opened is refused as Missing", sessions::late_record),
    check("late_marker_finds_no_copy", "a marker for staging that was dropped or promoted is refused as Missing", sessions::late_marker),
    check("find_has_the_newest", "find answers the newest record of a key, a tombstone too, of the live copy alone", strays::find_the_newest),
    check("versions_are_of_all_above", "versions name every key above their start, tombstones too, of any copy", strays::versions_of_all),
    check("records_are_all_of_any_copy", "records list the newest of every key, tombstones too, of any copy, or none where a store cannot", strays::records_of_all),
    check("fork_is_what_was_raised", "the fork is the watermark that begin_reign raised, or none where a store cannot say", strays::fork_is_what_was_raised),
    check("strays_alone_are_given_up", "give_up takes records of exactly the versions named and puts in their place what is said", strays::exactly_the_strays),
    check("split_deals_out", "a split slot's records, tombstones too, go to the half that their key is in, and staging is gone", splits::deals_out),
    check("split_is_of_every_copy", "retained copies are split as live ones are", splits::of_every_copy),
    check("split_only_once", "a split into as many slots as there are does nothing, also after a crash", splits::only_once),
    check("split_is_whole_or_not_at_all", "a split that a crash interrupts is done whole or not at all", splits::whole_or_not_at_all),
    check("each_call_twice", "a call that is repeated changes nothing more", again::each_call_twice),
    check("crash_after_each_call", "what a call answered Ok to is there after a crash", crash::after_each_call),
    check("crash_inside_each_call", "a call that a crash interrupts is done whole or not at all", crash::inside_each_call),
    check("positions_outlive_a_crash", "an owner assigns no position twice, whatever crashes", crash::positions_go_on),
];

/// A promise that a store did not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The check's name.
    pub check: &'static str,
    /// What was promised, in general.
    pub promise: &'static str,
    /// What should have come here.
    pub expected: String,
    /// What came.
    pub came: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.check)?;
        writeln!(f, "    promised: {}", self.promise)?;
        writeln!(f, "    expected: {}", self.expected)?;
        write!(f, "    came:     {}", self.came)
    }
}

/// What the checks found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Names of the checks that were passed.
    pub passed: Vec<&'static str>,
    /// Names of those that could not be made, each with the reason.
    pub skipped: Vec<(&'static str, &'static str)>,
    /// Promises not kept.
    pub failed: Vec<Failure>,
}

impl Report {
    /// Whether every check was made and passed.
    #[must_use]
    pub fn passed_all(&self) -> bool {
        self.failed.is_empty() && self.skipped.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, skipped) = (self.passed.len(), self.skipped.len());
        let failed = self.failed.len();
        write!(
            f,
            "{passed} checks passed, {skipped} skipped, {failed} failed"
        )?;
        for (name, why) in &self.skipped {
            write!(f, "\n  skipped {name}: {why}")?;
        }
        for failure in &self.failed {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}

/// Makes every check, each in a directory of its own below `scratch`.
#[must_use]
pub fn run(lab: &dyn Lab, scratch: &Path) -> Report {
    let mut report = Report::default();
    for check in CHECKS {
        make(check, lab, scratch, &mut report);
    }
    report
}

/// Makes the check of this name; none, if there is no such check.
#[must_use]
pub fn run_one(name: &str, lab: &dyn Lab, scratch: &Path) -> Option<Report> {
    let check = CHECKS.iter().find(|check| check.name == name)?;
    let mut report = Report::default();
    make(check, lab, scratch, &mut report);
    Some(report)
}

fn make(check: &Check, lab: &dyn Lab, scratch: &Path, report: &mut Report) {
    let bench = Bench::new(lab, scratch.join(check.name));
    // A store that panics breaks one promise, and the others are still worth knowing.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (check.run)(&bench)));
    let stop = match done {
        Ok(Ok(())) => {
            report.passed.push(check.name);
            return;
        }
        Ok(Err(stop)) => stop,
        Err(_) => Stop::broken("no panic", "the store panicked, see standard error"),
    };
    match stop {
        Stop::Skipped(why) => report.skipped.push((check.name, why)),
        Stop::Broken { expected, came } => report.failed.push(Failure {
            check: check.name,
            promise: check.promise,
            expected,
            came,
        }),
    }
}
