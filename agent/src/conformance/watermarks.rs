//! How far a copy has got: holes, bases, reigns (stories F3 and F9 of the protocol's model).

use annulus_ring::Epoch;

use super::bench::{Bench, Done, SESSION, SLOT, STAGING, at, mark, put, same};
use crate::store::Copy;

pub(super) fn stops_at_a_hole(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let one = |key, seq| vec![put(key, at(1, seq), "v")];
    store.merge(SLOT, Copy::Live, one("a", 1), None)?;
    store.merge(SLOT, Copy::Live, one("c", 3), None)?;
    store.merge(SLOT, Copy::Live, one("f", 6), None)?;
    same(
        "1, 3 and 6 are held",
        Some(at(1, 1)),
        mark(&*store, Copy::Live)?,
    )?;
    store.merge(SLOT, Copy::Live, one("b", 2), None)?;
    same("and 2", Some(at(1, 3)), mark(&*store, Copy::Live)?)?;
    // A position counts although its record is superseded by the time it comes.
    let batch = vec![put("a", at(1, 5), "v"), put("a", at(1, 4), "v")];
    store.merge(SLOT, Copy::Live, batch, None)?;
    same(
        "and 5 before 4, of one key",
        Some(at(1, 6)),
        mark(&*store, Copy::Live)?,
    )
}

pub(super) fn hole_is_reported(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let pending = || store.watermark(SLOT, Copy::Live).map(|mark| mark.pending);
    store.merge(SLOT, Copy::Live, vec![put("a", at(1, 1), "v")], None)?;
    same("pending without a hole", false, pending()?)?;
    store.merge(SLOT, Copy::Live, vec![put("c", at(1, 3), "v")], None)?;
    same("pending with 2 missing", true, pending()?)?;
    store.merge(SLOT, Copy::Live, vec![put("b", at(1, 2), "v")], None)?;
    same("pending after 2 came", false, pending()?)
}

pub(super) fn waits_for_the_base(bench: &Bench<'_>) -> Done {
    let store = bench.staging()?;
    store.merge(SLOT, STAGING, vec![put("a", at(1, 1), "v")], None)?;
    let before = mark(&*store, STAGING)?;
    same("a staging copy whose base is not there", None, before)?;
    let store = bench.live()?;
    let first = vec![put("a", at(1, 1), "v"), put("b", at(1, 2), "v")];
    store.merge(SLOT, Copy::Live, first, None)?;
    store.merge(SLOT, Copy::Live, vec![put("c", at(2, 1), "v")], None)?;
    let came = mark(&*store, Copy::Live)?;
    same(
        "2:1 came, the base of reign 2 did not",
        Some(at(1, 2)),
        came,
    )?;
    store.merge(
        SLOT,
        Copy::Live,
        vec![put("b", at(1, 3), "v")],
        Some(at(2, 0)),
    )?;
    let came = mark(&*store, Copy::Live)?;
    same("and with the base", Some(at(2, 1)), came)
}

pub(super) fn never_goes_back(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.begin_reign(&[(SLOT, Epoch(2))])?;
    store.merge(SLOT, Copy::Live, vec![put("a", at(2, 1), "v")], None)?;
    // Of another reign, so nothing is counted across: 1:2 and 1:3 do not make 2:3.
    let stray = vec![put("b", at(1, 2), "v"), put("c", at(1, 3), "v")];
    store.merge(SLOT, Copy::Live, stray, Some(at(1, 9)))?;
    let came = mark(&*store, Copy::Live)?;
    same("a late repair of reign 1 at 2:1", Some(at(2, 1)), came)?;
    store.merge(
        SLOT,
        Copy::Live,
        vec![put("d", at(2, 2), "v")],
        Some(at(2, 1)),
    )?;
    let came = mark(&*store, Copy::Live)?;
    same("a repair through 2:1 with 2:2 held", Some(at(2, 2)), came)
}

pub(super) fn through_moves_it(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.merge(SLOT, Copy::Live, vec![put("a", at(1, 5), "v")], None)?;
    store.merge(SLOT, Copy::Live, vec![], Some(at(1, 4)))?;
    let came = mark(&*store, Copy::Live)?;
    same(
        "1:5 is held, nothing else exists up to 1:4",
        Some(at(1, 5)),
        came,
    )
}

pub(super) fn marker_moves_it(bench: &Bench<'_>) -> Done {
    let store = bench.staging()?;
    let records = vec![put("a", at(1, 1), "v"), put("c", at(1, 3), "v")];
    store.merge(SLOT, STAGING, records, None)?;
    store.mark_complete(SLOT, SESSION, at(1, 2))?;
    let came = mark(&*store, STAGING)?;
    same("a copy cut at 1:2 with 1:3 held", Some(at(1, 3)), came)
}

pub(super) fn reign_begins(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    store.open_live(&[SLOT])?;
    same("a new live copy", None, mark(&*store, Copy::Live)?)?;
    store.begin_reign(&[(SLOT, Epoch(3))])?;
    same("reign 3", Some(at(3, 0)), mark(&*store, Copy::Live)?)?;
    store.merge(SLOT, Copy::Live, vec![put("a", at(3, 1), "v")], None)?;
    for reign in [3, 2] {
        store.begin_reign(&[(SLOT, Epoch(reign))])?;
        let what = format!("reign {reign} begun at 3:1");
        same(&what, Some(at(3, 1)), mark(&*store, Copy::Live)?)?;
    }
    store.begin_reign(&[(SLOT, Epoch(5))])?;
    same("reign 5", Some(at(5, 0)), mark(&*store, Copy::Live)?)
}
