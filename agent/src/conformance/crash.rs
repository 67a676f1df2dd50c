//! What a crash leaves: after a call, inside a call, between two writes.

use super::{
    bench::{Bench, Done, SLOT, Stop, at, opened, same},
    story::{Call, Picture, STORY},
};

/// More writes to disk than any call makes.
const MOST_WRITES: u64 = 10_000;

pub(super) fn after_each_call(bench: &Bench<'_>) -> Done {
    let dir = bench.fresh_dir()?;
    let mut store = opened(bench.lab().open(&dir))?;
    for call in STORY {
        (call.make)(&*store)?;
        let before = Picture::of(&*store)?;
        store = opened(bench.lab().crash(store, &dir))?;
        let what = format!("the copies after {} and a crash", call.name);
        same(&what, before, Picture::of(&*store)?)?;
    }
    Ok(())
}

pub(super) fn inside_each_call(bench: &Bench<'_>) -> Done {
    let lab = bench.lab();
    let dir = bench.fresh_dir()?;
    for call in STORY {
        let store = opened(lab.open(&dir))?;
        let before = Picture::of(&*store)?;
        drop(store);
        let whole = bench.fresh_dir()?;
        forked(bench, &dir, &whole)?;
        let store = opened(lab.open(&whole))?;
        (call.make)(&*store)?;
        let after = Picture::of(&*store)?;
        drop(store);
        interrupted(bench, &dir, call, &before, &after)?;
        let store = opened(lab.open(&dir))?;
        (call.make)(&*store)?;
    }
    Ok(())
}

fn forked(bench: &Bench<'_>, from: &std::path::Path, to: &std::path::Path) -> Done {
    let forked = bench.lab().fork(from, to);
    forked.map_err(|error| Stop::broken("a closed store is copied", error.to_string()))
}

/// The call, stopped after each number of writes until it gets through.
fn interrupted(
    bench: &Bench<'_>,
    dir: &std::path::Path,
    call: &Call,
    before: &Picture,
    after: &Picture,
) -> Done {
    for writes in 0..MOST_WRITES {
        let fork = bench.fresh_dir()?;
        forked(bench, dir, &fork)?;
        let Some(store) = bench.lab().open_failing(&fork, writes) else {
            return Err(Stop::Skipped(
                "the lab cannot stop this store inside a call",
            ));
        };
        let store = opened(store)?;
        let answer = (call.make)(&*store);
        drop(store);
        let store = opened(bench.lab().open(&fork))?;
        let found = Picture::of(&*store)?;
        drop(store);
        // Gone through, or it would fill the disk: the next fork starts from `dir` anyway.
        let _kept = std::fs::remove_dir_all(&fork);
        if answer.is_ok() {
            let what = format!(
                "{} answered Ok after {writes} writes, then a crash",
                call.name
            );
            return same(&what, after, &found);
        }
        if found != *before && found != *after {
            let expected = format!(
                "{} stopped after {writes} writes: all of it ({after:?}) or nothing ({before:?})",
                call.name
            );
            return Err(Stop::broken(expected, format!("{found:?}")));
        }
    }
    Err(Stop::broken(
        format!("{} gets through in {MOST_WRITES} writes", call.name),
        "it was stopped each time",
    ))
}

pub(super) fn positions_go_on(bench: &Bench<'_>) -> Done {
    let dir = bench.fresh_dir()?;
    let mut store = opened(bench.lab().open(&dir))?;
    store.open_live(&[SLOT])?;
    store.begin_reign(&[(SLOT, annulus_ring::Epoch(1))])?;
    for seq in 1..=3 {
        let came = store.write(SLOT, b"k", Some(b"v"))?;
        same("the position of a write after a crash", at(1, seq), came)?;
        store = opened(bench.lab().crash(store, &dir))?;
        let last = store.last_position(SLOT)?;
        same("the last position after a crash", at(1, seq), last)?;
    }
    Ok(())
}
