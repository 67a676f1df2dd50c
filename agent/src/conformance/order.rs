//! Records: bytes, slots, versions, the owner's positions.

use annulus_ring::Epoch;
use bytes::Bytes;

use super::bench::{Bench, Done, OTHER, SLOT, at, bytes, put, same, tombstone};
use crate::store::{Copy, Record};

pub(super) fn bytes_are_bytes(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let keys: [&[u8]; 8] = [
        b"k",
        b"K",
        b"k ",
        b" k",
        b"k\n",
        b"k\0",
        b"\0",
        b"\xff\xfe\x80",
    ];
    let values: [&[u8]; 8] = [b"v", b"", b" ", b"\0", b"\r\n", b"\xc3\x28", b"v\0v", b"{}"];
    for ((key, value), seq) in keys.iter().zip(values).zip(1..) {
        let record = Record {
            key: Bytes::copy_from_slice(key),
            version: at(1, seq),
            value: Some(Bytes::copy_from_slice(value)),
        };
        store.merge(SLOT, Copy::Live, vec![record], None)?;
    }
    for (key, value) in keys.iter().zip(values) {
        let what = format!("the value of key \"{}\"", key.escape_ascii());
        let came = store.read(SLOT, key)?;
        same(&what, Some(Bytes::copy_from_slice(value)), came)?;
    }
    Ok(())
}

pub(super) fn slots_are_apart(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.open_live(&[OTHER])?;
    store.begin_reign(&[(OTHER, Epoch(1))])?;
    store.merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "here")], None)?;
    store.merge(OTHER, Copy::Live, vec![put("k", at(1, 1), "there")], None)?;
    same("the key in slot 3", bytes("here"), store.read(SLOT, b"k")?)?;
    same(
        "the key in slot 4",
        bytes("there"),
        store.read(OTHER, b"k")?,
    )
}

pub(super) fn newest_version_wins(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let newer_first = [put("k", at(1, 2), "new"), put("k", at(1, 1), "old")];
    for record in newer_first {
        store.merge(SLOT, Copy::Live, vec![record], None)?;
    }
    same("1:2, then 1:1", bytes("new"), store.read(SLOT, b"k")?)?;
    let in_one_call = vec![put("j", at(1, 4), "new"), put("j", at(1, 3), "old")];
    store.merge(SLOT, Copy::Live, in_one_call, None)?;
    same(
        "1:4 and 1:3 in one call",
        bytes("new"),
        store.read(SLOT, b"j")?,
    )?;
    store.begin_reign(&[(SLOT, Epoch(2))])?;
    store.merge(SLOT, Copy::Live, vec![put("k", at(2, 1), "reign 2")], None)?;
    store.merge(SLOT, Copy::Live, vec![put("k", at(1, 9), "stray")], None)?;
    let came = store.read(SLOT, b"k")?;
    same(
        "2:1, then 1:9: a newer reign beats a higher seq",
        bytes("reign 2"),
        came,
    )
}

pub(super) fn tombstone_outlives_late_put(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.merge(SLOT, Copy::Live, vec![tombstone("k", at(1, 2))], None)?;
    store.merge(SLOT, Copy::Live, vec![put("k", at(1, 1), "late")], None)?;
    same(
        "deleted at 1:2, a put of 1:1 came after",
        None,
        store.read(SLOT, b"k")?,
    )?;
    same("how many keys that leaves", 0, store.count(SLOT)?)
}

pub(super) fn owner_positions_go_on(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    same("before any write", at(1, 0), store.last_position(SLOT)?)?;
    for seq in 1..=3 {
        let came = store.write(SLOT, b"k", Some(b"v"))?;
        same("the position of a write", at(1, seq), came)?;
    }
    store.write(SLOT, b"k", None)?;
    same("after four writes", at(1, 4), store.last_position(SLOT)?)?;
    store.begin_reign(&[(SLOT, Epoch(5))])?;
    same("in a new reign", at(5, 0), store.last_position(SLOT)?)?;
    same("its first write", at(5, 1), store.write(SLOT, b"j", None)?)?;
    same("and after it", at(5, 1), store.last_position(SLOT)?)
}
