//! What a deposed owner left: how it is found, compared and given up (story F10).

use annulus_ring::{Epoch, Position};
use bytes::Bytes;

use super::{
    Subject,
    bench::{Bench, Done, SESSION, SLOT, STAGING, Stop, at, bytes, missing, put, same, tombstone},
};
use crate::store::{Copy, Record, StoreError, Stray};

pub(super) fn find_the_newest(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let records = vec![put("k", at(1, 2), "new"), put("k", at(1, 1), "old")];
    store.merge(SLOT, Copy::Live, records, None)?;
    store.merge(SLOT, Copy::Live, vec![tombstone("gone", at(1, 3))], None)?;
    let newest = Some(put("k", at(1, 2), "new"));
    same("find of a key", newest, store.find(SLOT, b"k")?)?;
    let gone = Some(tombstone("gone", at(1, 3)));
    same("find of a deleted key", gone, store.find(SLOT, b"gone")?)?;
    same("find of no key", None, store.find(SLOT, b"other")?)?;
    missing("find without a live copy", bench.staged()?.find(SLOT, b"k"))
}

/// Keys and versions, by key.
fn versions(
    store: &dyn Subject,
    copy: Copy,
    from: Option<Position>,
) -> Result<Vec<(Bytes, Position)>, StoreError> {
    let mut found = store
        .versions(SLOT, copy, from)?
        .collect::<Result<Vec<_>, _>>()?;
    found.sort();
    Ok(found)
}

pub(super) fn versions_of_all(bench: &Bench<'_>) -> Done {
    let records = || {
        vec![
            put("a", at(1, 1), "v"),
            put("b", at(1, 2), "v"),
            tombstone("c", at(1, 3)),
        ]
    };
    let said = |key: &'static str, seq| (Bytes::from_static(key.as_bytes()), at(1, seq));
    let live = bench.live()?;
    live.merge(SLOT, Copy::Live, records(), None)?;
    let staging = bench.staging()?;
    staging.merge(SLOT, STAGING, records(), None)?;
    let both: [(&dyn Subject, Copy); 2] = [(&*live, Copy::Live), (&*staging, STAGING)];
    for (store, copy) in both {
        let all = vec![said("a", 1), said("b", 2), said("c", 3)];
        same("all versions", all, versions(store, copy, None)?)?;
        let above = vec![said("b", 2), said("c", 3)];
        let came = versions(store, copy, Some(at(1, 1)))?;
        same("versions above 1:1", above, came)?;
    }
    let absent = live.versions(SLOT, STAGING, None).map(drop);
    missing("versions of no copy", absent)
}

pub(super) fn records_of_all(bench: &Bench<'_>) -> Done {
    let store = bench.staging()?;
    let records = || {
        vec![
            put("a", at(1, 1), "old"),
            put("a", at(1, 2), "new"),
            tombstone("c", at(1, 3)),
        ]
    };
    store.merge(SLOT, STAGING, records(), None)?;
    store.mark_complete(SLOT, SESSION, at(1, 3))?;
    let listed = |copy: Copy| -> Result<Option<Vec<Record>>, StoreError> {
        let Some(records) = store.records(SLOT, copy)? else {
            return Ok(None);
        };
        let mut found = records.collect::<Result<Vec<_>, _>>()?;
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Some(found))
    };
    let expected = vec![put("a", at(1, 2), "new"), tombstone("c", at(1, 3))];
    let steps: [(Copy, &str); 3] = [
        (STAGING, "records of a staging copy"),
        (Copy::Live, "records of a live copy"),
        (Copy::Retained(SESSION), "records of a retained copy"),
    ];
    for (copy, what) in steps {
        match copy {
            Copy::Staging(_) => {}
            Copy::Live => store.promote(SESSION, &[SLOT])?,
            Copy::Retained(_) => store.retain(SESSION, &[SLOT])?,
        }
        // A store need not know.
        if let Some(found) = listed(copy)? {
            same(what, expected.clone(), found)?;
        }
    }
    match store.records(SLOT, STAGING) {
        Ok(None) => Ok(()),
        other => missing("records of no copy", other.map(drop)),
    }
}

pub(super) fn fork_is_what_was_raised(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let records = vec![put("a", at(1, 1), "v"), put("b", at(1, 2), "v")];
    store.merge(SLOT, Copy::Live, records, None)?;
    for what in ["the fork of reign 2", "the fork, begun again"] {
        store.begin_reign(&[(SLOT, Epoch(2))])?;
        // A store need not know.
        if let Some(fork) = store.fork(SLOT)? {
            same(what, at(1, 2), fork)?;
        }
    }
    missing("the fork of no live copy", bench.staged()?.fork(SLOT))
}

fn stray(key: &str, version: Position) -> Stray {
    Stray {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version,
        instead: None,
    }
}

pub(super) fn exactly_the_strays(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    let held = vec![
        put("older", at(1, 2), "stray"),
        put("none", at(1, 3), "stray"),
        put("newer", at(1, 4), "stays"),
    ];
    store.merge(SLOT, Copy::Live, held, Some(at(1, 4)))?;
    let kept = put("older", at(1, 1), "kept");
    let strays = || {
        let older = Stray {
            instead: Some(kept.clone()),
            ..stray("older", at(1, 2))
        };
        // Of the last one something newer has come since.
        vec![older, stray("none", at(1, 3)), stray("newer", at(1, 3))]
    };
    store.give_up(SLOT, Copy::Live, strays())?;
    let (read, older) = (store.read(SLOT, b"older")?, store.find(SLOT, b"older")?);
    same("what stands instead", bytes("kept"), read)?;
    same("and its version", Some(kept.clone()), older)?;
    same("a stray", None, store.find(SLOT, b"none")?)?;
    let newer = put("newer", at(1, 4), "stays");
    same(
        "what is newer",
        Some(newer.clone()),
        store.find(SLOT, b"newer")?,
    )?;
    let never = bench.live()?;
    never.merge(SLOT, Copy::Live, vec![kept, newer], Some(at(1, 4)))?;
    let digest = |store: &dyn Subject| {
        let said = store.digest(SLOT, Copy::Live, None)?;
        Ok::<_, StoreError>((said.digest, said.records))
    };
    let expected = digest(&*never)?;
    same(
        "the digest of a store without strays",
        expected,
        digest(&*store)?,
    )?;
    let absent = store.give_up(SLOT, STAGING, vec![stray("k", at(1, 1))]);
    missing("strays of no copy", absent)?;
    match store.read(SLOT, b"newer")? {
        Some(_) => Ok(()),
        None => Err(Stop::broken("the live copy as it was", "nothing")),
    }
}
