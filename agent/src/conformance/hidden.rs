//! What nobody may see: staging and retained copies (NO-EARLY-READ).

use super::bench::{Bench, Done, SESSION, SLOT, at, missing, nothing, put};
use crate::store::Copy;

pub(super) fn not_read(bench: &Bench<'_>) -> Done {
    let store = bench.staged()?;
    nothing("a read of a staged key", store.read(SLOT, b"k"))?;
    store.promote(SESSION, &[SLOT])?;
    store.demote(SESSION, &[SLOT])?;
    nothing("a read after demote", store.read(SLOT, b"k"))
}

pub(super) fn not_scanned(bench: &Bench<'_>) -> Done {
    let store = bench.staged()?;
    nothing("a scan of a slot that is staged", store.scan(SLOT))
}

pub(super) fn not_counted(bench: &Bench<'_>) -> Done {
    let store = bench.staged()?;
    nothing("a count of a slot that is staged", store.count(SLOT))
}

pub(super) fn no_source(bench: &Bench<'_>) -> Done {
    let store = bench.staged()?;
    missing("a cut of a slot that is staged", store.read_cut(SLOT))?;
    missing("a tail of a slot that is staged", store.tail(SLOT, None))?;
    let last = store.last_position(SLOT);
    missing("the last position of a slot that is staged", last)
}

pub(super) fn retained_not_served(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "v")], None)?;
    store.retain(SESSION, &[SLOT])?;
    nothing("a read of a retained key", store.read(SLOT, b"k"))?;
    nothing("a scan of a slot that is retained", store.scan(SLOT))?;
    nothing("a count of a slot that is retained", store.count(SLOT))?;
    missing("a cut of a slot that is retained", store.read_cut(SLOT))
}
