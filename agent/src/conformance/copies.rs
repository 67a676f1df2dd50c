//! The life of a copy: staged, live, demoted, retained, gone.

use annulus_ring::{Epoch, SessionId, Slot};

use super::bench::{
    Bench, Done, OTHER, SESSION, SLOT, STAGING, at, bytes, held, mark, missing, put, same,
};
use crate::store::Copy;

const FIFTH: Slot = Slot(5);
const SIXTH: Slot = Slot(6);

pub(super) fn holdings_say_attempt_and_marker(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    store.open_live(&[OTHER])?;
    store.open_staging(SESSION, 3, &[SLOT])?;
    let mut told = Vec::new();
    for marked in [false, true] {
        if marked {
            store.mark_complete(SLOT, SESSION, at(1, 4))?;
        }
        let mut holdings = store.holdings()?;
        holdings.sort_by_key(|holding| holding.slot);
        for one in holdings {
            told.push((one.slot, one.copy, one.attempt, one.complete));
        }
    }
    let (live, staging) = ((OTHER, Copy::Live, 0, true), (SLOT, STAGING, 3));
    let expected = vec![
        (staging.0, staging.1, staging.2, false),
        live,
        (staging.0, staging.1, staging.2, true),
        live,
    ];
    same(
        "(slot, copy, attempt, complete), before and after the marker",
        expected,
        told,
    )
}

pub(super) fn promote_brings(bench: &Bench<'_>) -> Done {
    let store = bench.staged()?;
    store.promote(SESSION, &[SLOT])?;
    same("copies held", vec![Copy::Live], held(&*store, SLOT)?)?;
    same("the staged key", bytes("v"), store.read(SLOT, b"k")?)?;
    same("its position", Some(at(1, 1)), mark(&*store, Copy::Live)?)
}

pub(super) fn promote_needs_a_copy(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    missing("promote of nothing", store.promote(SESSION, &[SLOT]))?;
    same("copies held", vec![], held(&*store, SLOT)?)
}

pub(super) fn demote_keeps(bench: &Bench<'_>) -> Done {
    let store = bench.staged()?;
    store.promote(SESSION, &[SLOT])?;
    store.merge(SLOT, Copy::Live, vec![put("since", at(1, 2), "w")], None)?;
    store.demote(SESSION, &[SLOT])?;
    same("copies held", vec![STAGING], held(&*store, SLOT)?)?;
    let complete = store.holdings()?.iter().all(|holding| holding.complete);
    same("complete", true, complete)?;
    same("its watermark", Some(at(1, 2)), mark(&*store, STAGING)?)?;
    store.promote(SESSION, &[SLOT])?;
    same(
        "what was staged, promoted again",
        bytes("v"),
        store.read(SLOT, b"k")?,
    )?;
    same("what came since", bytes("w"), store.read(SLOT, b"since")?)
}

pub(super) fn retain_keeps(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "v")], None)?;
    store.retain(SESSION, &[SLOT])?;
    let retained = Copy::Retained(SESSION);
    same("copies held", vec![retained], held(&*store, SLOT)?)?;
    same("its watermark", Some(at(1, 1)), mark(&*store, retained)?)
}

pub(super) fn retained_by_name(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.open_live(&[OTHER])?;
    store.retain(SESSION, &[SLOT, OTHER])?;
    store.drop_retained(SessionId(6), &[SLOT, OTHER])?;
    let copy = vec![Copy::Retained(SESSION)];
    let what = "slot 3 after the permit of another session";
    same(what, copy.clone(), held(&*store, SLOT)?)?;
    store.drop_retained(SESSION, &[OTHER])?;
    same(
        "slot 3 after the permit of slot 4",
        copy,
        held(&*store, SLOT)?,
    )?;
    same("slot 4 after its permit", vec![], held(&*store, OTHER)?)
}

pub(super) fn drop_staging_takes(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.open_live(&[OTHER])?;
    store.retain(SESSION, &[OTHER])?;
    store.open_staging(SESSION, 1, &[FIFTH])?;
    store.open_staging(SessionId(8), 1, &[SIXTH])?;
    store.drop_staging(SESSION)?;
    same("staging of the session", vec![], held(&*store, FIFTH)?)?;
    let other = vec![Copy::Staging(SessionId(8))];
    same("staging of another session", other, held(&*store, SIXTH)?)?;
    let retained = vec![Copy::Retained(SESSION)];
    same("what the session retained", retained, held(&*store, OTHER)?)?;
    same("a live copy", vec![Copy::Live], held(&*store, SLOT)?)
}

pub(super) fn absent_passed_over(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.demote(SESSION, &[OTHER])?;
    store.retain(SESSION, &[OTHER])?;
    store.drop_retained(SESSION, &[SLOT, OTHER])?;
    store.drop_staging(SESSION)?;
    same("slot 4, never opened", vec![], held(&*store, OTHER)?)?;
    same("slot 3, live", vec![Copy::Live], held(&*store, SLOT)?)?;
    // A new reign is another matter: a copy that is missing is a loss, and said to be one.
    missing(
        "begin_reign of slot 4",
        store.begin_reign(&[(OTHER, Epoch(1))]),
    )
}
