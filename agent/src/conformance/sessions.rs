//! Sessions and attempts: what begins anew, and what comes too late (NO-RESURRECTION, story F13).

use annulus_ring::SessionId;
use bytes::Bytes;

use super::{
    bench::{Bench, Done, SESSION, SLOT, STAGING, at, held, missing, put, same},
    story::Picture,
};
use crate::store::Copy;

const NEWER: SessionId = SessionId(8);

pub(super) fn begins_empty(bench: &Bench<'_>) -> Done {
    for (session, attempt) in [(SESSION, 2), (NEWER, 1)] {
        let store = bench.staged()?;
        store.open_staging(session, attempt, &[SLOT])?;
        let copy = Copy::Staging(session);
        let what = format!("copies held after session {session}, attempt {attempt} was opened");
        same(&what, vec![copy], held(&*store, SLOT)?)?;
        let holding = store.holdings()?[0];
        let came = (holding.watermark, holding.complete);
        same("its watermark and marker", (None, false), came)?;
        store.promote(session, &[SLOT])?;
        let left = store.scan(SLOT)?;
        same("keys left of the older one", Vec::<Bytes>::new(), left)?;
    }
    Ok(())
}

pub(super) fn late_attempt(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    store.open_staging(SESSION, 2, &[SLOT])?;
    store.merge(SLOT, STAGING, vec![put("k", at(1, 1), "v")], None)?;
    store.mark_complete(SLOT, SESSION, at(1, 1))?;
    let before = Picture::of(&*store)?;
    store.open_staging(SESSION, 1, &[SLOT])?;
    same(
        "after attempt 1 was opened late",
        before,
        Picture::of(&*store)?,
    )
}

pub(super) fn late_session(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    store.open_staging(NEWER, 1, &[SLOT])?;
    let copy = Copy::Staging(NEWER);
    store.merge(SLOT, copy, vec![put("k", at(1, 1), "v")], None)?;
    store.mark_complete(SLOT, NEWER, at(1, 1))?;
    let before = Picture::of(&*store)?;
    store.open_staging(SESSION, 3, &[SLOT])?;
    let after = Picture::of(&*store)?;
    same("session 7 opened late beside 8", before.clone(), after)?;
    missing("session 7 promoted late", store.promote(SESSION, &[SLOT]))?;
    store.drop_staging(SESSION)?;
    same(
        "session 7 dropped late beside 8",
        before,
        Picture::of(&*store)?,
    )
}

pub(super) fn late_record(bench: &Bench<'_>) -> Done {
    let late = || vec![put("late", at(1, 9), "v")];
    let store = bench.staged()?;
    store.promote(SESSION, &[SLOT])?;
    missing(
        "a record after promote",
        store.merge(SLOT, STAGING, late(), None),
    )?;
    same(
        "the late key in the live copy",
        None,
        store.read(SLOT, b"late")?,
    )?;
    let store = bench.staging()?;
    store.drop_staging(SESSION)?;
    missing(
        "a record after drop_staging",
        store.merge(SLOT, STAGING, late(), None),
    )?;
    same("copies held", vec![], held(&*store, SLOT)?)?;
    let store = bench.empty()?;
    missing(
        "a record for no copy",
        store.merge(SLOT, STAGING, late(), None),
    )?;
    missing(
        "a record for no live copy",
        store.merge(SLOT, Copy::Live, late(), None),
    )?;
    same("copies held", vec![], held(&*store, SLOT)?)
}

pub(super) fn late_marker(bench: &Bench<'_>) -> Done {
    let store = bench.staging()?;
    store.drop_staging(SESSION)?;
    let marked = store.mark_complete(SLOT, SESSION, at(1, 9));
    missing("a marker after drop_staging", marked)?;
    same("copies held", vec![], held(&*store, SLOT)?)?;
    let store = bench.staged()?;
    store.promote(SESSION, &[SLOT])?;
    let marked = store.mark_complete(SLOT, SESSION, at(1, 9));
    missing("a marker after promote", marked)
}
