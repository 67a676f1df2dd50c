//! Doubling the number of slots: each copy becomes two.

use std::sync::Arc;

use annulus_ring::{Epoch, Slot};

use super::{
    Subject,
    bench::{
        Bench, Done, OTHER, SESSION, SLOT, Stop, at, held, opened, put, records, same, tombstone,
    },
};
use crate::store::{Copy, RangeStore, Record, SlotOf, StoreError};

const EVEN: Slot = Slot(2 * SLOT.0);
const ODD: Slot = Slot(2 * SLOT.0 + 1);
const KEPT: Copy = Copy::Retained(SESSION);
/// More writes to disk than a split of some records makes.
const MOST_WRITES: u64 = 10_000;

/// A key's last byte says which half it is in.
fn by_last_byte(of: Slot) -> SlotOf {
    Arc::new(move |key| Slot(2 * of.0 + u32::from(key.last().is_some_and(|last| last % 2 == 1))))
}

/// `SLOT` live in reign 2 with keys of both halves; `OTHER` staged.
fn fill(store: &dyn RangeStore) -> Result<(), StoreError> {
    store.open_live(&[SLOT])?;
    store.begin_reign(&[(SLOT, Epoch(1))])?;
    let first = vec![put("k0", at(1, 1), "even"), put("k1", at(1, 2), "odd")];
    store.merge(SLOT, Copy::Live, first, None)?;
    store.begin_reign(&[(SLOT, Epoch(2))])?;
    let second = vec![tombstone("k2", at(2, 1)), put("k3", at(2, 2), "odd")];
    store.merge(SLOT, Copy::Live, second, None)?;
    store.open_staging(SESSION, 1, &[OTHER])
}

/// What each half is to have of these records.
fn dealt(records: &[Record]) -> [Vec<Record>; 2] {
    let half = by_last_byte(SLOT);
    [EVEN, ODD].map(|slot| {
        let of_it = records.iter().filter(|record| half(&record.key) == slot);
        of_it.cloned().collect()
    })
}

pub(super) fn deals_out(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    fill(&*store)?;
    let [even, odd] = dealt(&records(store.read_cut(SLOT)?)?);
    let mark = store.watermark(SLOT, Copy::Live)?;
    store.split(3, by_last_byte(SLOT))?;
    let whole = held(&*store, SLOT)?;
    same("copies of the split slot's number", Vec::new(), whole)?;
    for half in [Slot(2 * OTHER.0), Slot(2 * OTHER.0 + 1)] {
        let staged = held(&*store, half)?;
        same("staging of a session of before", Vec::new(), staged)?;
    }
    let came = records(store.read_cut(EVEN)?)?;
    same("the first half", even, came)?;
    let came = records(store.read_cut(ODD)?)?;
    same("the second half", odd, came)?;
    for half in [EVEN, ODD] {
        let came = store.watermark(half, Copy::Live)?;
        same("the watermark of a half", mark.held, came.held)?;
    }
    Ok(())
}

pub(super) fn of_every_copy(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    fill(&*store)?;
    store.retain(SESSION, &[SLOT])?;
    let before = store.versions(SLOT, KEPT, None)?.count();
    let kept = held(&*store, SLOT)?;
    store.split(3, by_last_byte(SLOT))?;
    let mut listed = 0;
    for half in [EVEN, ODD] {
        same("copies of a half", kept.clone(), held(&*store, half)?)?;
        listed += store.versions(half, KEPT, None)?.count();
    }
    same("records of both retained halves", before, listed)
}

pub(super) fn only_once(bench: &Bench<'_>) -> Done {
    let dir = bench.fresh_dir()?;
    let store = opened(bench.lab().open(&dir))?;
    fill(&*store)?;
    store.split(3, by_last_byte(SLOT))?;
    let store = opened(bench.lab().crash(store, &dir))?;
    let half = |store: &dyn Subject, half| -> Result<_, StoreError> {
        let copies = held(store, half)?;
        let cut = store.read_cut(half).ok();
        let count = cut.map(|cut| cut.records.count());
        Ok((copies, count))
    };
    let before = (half(&*store, EVEN)?, half(&*store, ODD)?);
    store.split(3, by_last_byte(SLOT))?;
    let after = (half(&*store, EVEN)?, half(&*store, ODD)?);
    same("the halves, split again into as many", before, after)
}

pub(super) fn whole_or_not_at_all(bench: &Bench<'_>) -> Done {
    let lab = bench.lab();
    for writes in 0..MOST_WRITES {
        let dir = bench.fresh_dir()?;
        let store = opened(lab.open(&dir))?;
        fill(&*store)?;
        drop(store);
        let Some(store) = lab.open_failing(&dir, writes) else {
            return Err(Stop::Skipped(
                "the lab cannot stop this store inside a call",
            ));
        };
        let store = opened(store)?;
        let answer = store.split(3, by_last_byte(SLOT));
        drop(store);
        let store = opened(lab.open(&dir))?;
        let whole = held(&*store, SLOT)?;
        let halves = (held(&*store, EVEN)?, held(&*store, ODD)?);
        drop(store);
        // Gone through, or it would fill the disk.
        let _kept = std::fs::remove_dir_all(&dir);
        let live = || vec![Copy::Live];
        let done = whole.is_empty() && halves == (live(), live());
        if answer.is_ok() {
            let what = format!("a split answered Ok after {writes} writes, then a crash");
            return same(&what, true, done);
        }
        let undone = whole == live() && halves == (Vec::new(), Vec::new());
        if !done && !undone {
            let expected = format!("a split stopped after {writes} writes: all of it or nothing");
            return Err(Stop::broken(expected, format!("{whole:?} and {halves:?}")));
        }
    }
    Err(Stop::broken(
        format!("a split gets through in {MOST_WRITES} writes"),
        "it was stopped each time",
    ))
}
