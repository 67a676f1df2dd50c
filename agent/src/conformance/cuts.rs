//! What a copy is made from: cuts and tails.

use super::bench::{Bench, Done, SLOT, at, put, records, same, tombstone};

pub(super) fn one_moment(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.write(SLOT, b"a", Some(b"1"))?;
    store.write(SLOT, b"b", Some(b"2"))?;
    let cut = store.read_cut(SLOT)?;
    store.write(SLOT, b"c", Some(b"3"))?;
    store.write(SLOT, b"b", None)?;
    store.write(SLOT, b"b", Some(b"4"))?;
    let mut came = records(cut)?;
    // What was overwritten since may be missing from the cut: it comes with its own position.
    came.retain(|record| record.version > at(1, 2) || &*record.key != b"b");
    same(
        "a cut, read after three writes",
        vec![put("a", at(1, 1), "1")],
        came,
    )
}

pub(super) fn says_how_far(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    same("nothing written", at(1, 0), store.read_cut(SLOT)?.position)?;
    let mut last = at(1, 0);
    for key in [b"a", b"b", b"a"] {
        last = store.write(SLOT, key, Some(b"v"))?;
    }
    same("a cut", last, store.read_cut(SLOT)?.position)?;
    same("a tail", last, store.tail(SLOT, Some(at(1, 1)))?.position)
}

pub(super) fn tail_is_all_above(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    for (key, value) in [(b"a", "1"), (b"b", "2"), (b"c", "3"), (b"a", "4")] {
        store.write(SLOT, key, Some(value.as_bytes()))?;
    }
    let (a, b, c) = (
        put("a", at(1, 4), "4"),
        put("b", at(1, 2), "2"),
        put("c", at(1, 3), "3"),
    );
    let all = vec![a.clone(), b.clone(), c.clone()];
    let tail = |from| store.tail(SLOT, from).and_then(records);
    same(
        "above 1:2",
        vec![a.clone(), c.clone()],
        tail(Some(at(1, 2)))?,
    )?;
    same("above 1:3", vec![a], tail(Some(at(1, 3)))?)?;
    same("above 1:4", vec![], tail(Some(at(1, 4)))?)?;
    same("from the beginning", all.clone(), tail(None)?)?;
    same(
        "above 0:9, an older reign",
        all.clone(),
        tail(Some(at(0, 9)))?,
    )?;
    same("a cut", all, store.read_cut(SLOT).and_then(records)?)
}

pub(super) fn tombstones_travel(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.write(SLOT, b"k", Some(b"v"))?;
    store.write(SLOT, b"k", None)?;
    let gone = vec![tombstone("k", at(1, 2))];
    let cut = records(store.read_cut(SLOT)?)?;
    same("a cut after put and delete", gone.clone(), cut)?;
    let tail = records(store.tail(SLOT, Some(at(1, 1)))?)?;
    same("a tail above the put", gone, tail)
}
