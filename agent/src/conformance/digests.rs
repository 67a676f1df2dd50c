//! What two copies are compared by.

use annulus_ring::Epoch;

use super::Subject;
use super::bench::{
    Bench, Done, SESSION, SLOT, STAGING, Stop, at, put, records, same, sum, tombstone,
};
use crate::store::{Copy, Record, StoreError};

fn told(store: &dyn Subject, copy: Copy) -> Result<([u8; 32], u64), StoreError> {
    let told = store.digest(SLOT, copy, None)?;
    Ok((told.digest, told.records))
}

pub(super) fn defined_sum(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    same("of nothing", sum(&[]), told(&*store, Copy::Live)?)?;
    let first = vec![
        put("a", at(1, 1), "1"),
        put("b", at(1, 2), "2"),
        put("a", at(1, 3), "3"),
    ];
    store.merge(SLOT, Copy::Live, first, None)?;
    let newest = [put("a", at(1, 3), "3"), put("b", at(1, 2), "2")];
    same(
        "of a@1:3 and b@1:2",
        sum(&newest),
        told(&*store, Copy::Live)?,
    )?;
    let cut = store.digest(SLOT, Copy::Live, None)?.cut;
    same("and its cut", at(1, 3), cut)
}

pub(super) fn ignores_arrival(bench: &Bench<'_>) -> Done {
    let mut fed = vec![
        put("a", at(1, 1), "1"),
        put("b", at(1, 2), "2"),
        put("a", at(1, 3), "3"),
        put("c", at(1, 4), "4"),
        put("b", at(1, 5), "5"),
    ];
    let mut digests = Vec::new();
    for turn in 0..3 {
        let store = bench.live()?;
        for record in &fed {
            store.merge(SLOT, Copy::Live, vec![record.clone()], None)?;
        }
        digests.push((turn, told(&*store, Copy::Live)?));
        if turn == 0 {
            fed.reverse();
        } else {
            fed.rotate_left(2);
        }
    }
    let first = digests[0].1;
    for (turn, digest) in digests {
        same(
            &format!("the same five records, order {turn}"),
            first,
            digest,
        )?;
    }
    Ok(())
}

/// The digest of a store that holds this one record.
fn alone(bench: &Bench<'_>, record: Record) -> Result<([u8; 32], u64), Stop> {
    let store = bench.live()?;
    store.merge(SLOT, Copy::Live, vec![record], None)?;
    Ok(told(&*store, Copy::Live)?)
}

pub(super) fn tells_a_flipped_value(bench: &Bench<'_>) -> Done {
    let long = "v".repeat(1_000);
    let mut flipped = long.clone();
    flipped.replace_range(999.., "w");
    let one = alone(bench, put("k", at(1, 1), &long))?;
    let other = alone(bench, put("k", at(1, 1), &flipped))?;
    if one == other {
        return Err(Stop::broken(
            "two digests, of values that differ in their last bit",
            format!("both are {}", shown(one.0)),
        ));
    }
    Ok(())
}

fn shown(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn tells_tombstones(bench: &Bench<'_>) -> Done {
    let gone = tombstone("k", at(1, 1));
    let of_tombstone = alone(bench, gone.clone())?;
    same("of a tombstone alone", sum(&[gone]), of_tombstone)?;
    let of_empty = alone(bench, put("k", at(1, 1), ""))?;
    if of_tombstone == of_empty {
        return Err(Stop::broken(
            "two digests, of a tombstone and of an empty value",
            format!("both are {}", shown(of_empty.0)),
        ));
    }
    Ok(())
}

pub(super) fn of_every_copy(bench: &Bench<'_>) -> Done {
    let expected = sum(&[put("k", at(1, 1), "v")]);
    let store = bench.staged()?;
    same("of a staging copy", expected, told(&*store, STAGING)?)?;
    store.promote(SESSION, &[SLOT])?;
    store.retain(SESSION, &[SLOT])?;
    let retained = Copy::Retained(SESSION);
    same("of a retained copy", expected, told(&*store, retained)?)
}

pub(super) fn waits_for_holes(bench: &Bench<'_>) -> Done {
    let pending = |what: &str, came: Result<_, StoreError>| match came {
        Err(StoreError::Pending { .. }) => Ok(()),
        other => Err(Stop::broken(
            format!("{what}: StoreError::Pending"),
            format!("{other:?}"),
        )),
    };
    let store = bench.live()?;
    store.merge(SLOT, Copy::Live, vec![put("b", at(1, 2), "v")], None)?;
    pending("with 1:1 missing", store.digest(SLOT, Copy::Live, None))?;
    let store = bench.staging()?;
    store.merge(SLOT, STAGING, vec![put("a", at(1, 1), "v")], None)?;
    pending("without a base", store.digest(SLOT, STAGING, None))
}

pub(super) fn not_ahead(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.write(SLOT, b"k", Some(b"v"))?;
    for ahead in [at(1, 2), at(2, 0)] {
        match store.digest(SLOT, Copy::Live, Some(ahead)) {
            Err(StoreError::NotThere { .. }) => {}
            other => {
                let expected = format!("at {ahead}, with 1:1 held: StoreError::NotThere");
                return Err(Stop::broken(expected, format!("{other:?}")));
            }
        }
    }
    Ok(())
}

pub(super) fn at_an_older_cut(bench: &Bench<'_>) -> Done {
    let store = bench.live()?;
    store.write(SLOT, b"a", Some(b"old"))?;
    let mut answered = 0;
    for turn in 0_u64..4 {
        let was = records(store.read_cut(SLOT)?)?;
        let cut = store.last_position(SLOT)?;
        // Overwritten, deleted and new: what an older cut must undo.
        store.write(SLOT, b"a", Some(turn.to_string().as_bytes()))?;
        store.write(SLOT, b"b", (turn % 2 == 0).then_some(b"v".as_slice()))?;
        store.write(SLOT, format!("c{turn}").as_bytes(), Some(b"v"))?;
        match store.digest(SLOT, Copy::Live, Some(cut)) {
            Ok(told) => {
                let what = format!("the digest at {cut}, three writes later");
                same(
                    &what,
                    (cut, sum(&was)),
                    (told.cut, (told.digest, told.records)),
                )?;
                answered += 1;
            }
            Err(StoreError::CutTrimmed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if answered == 0 {
        return Err(Stop::broken(
            "a digest at a cut three writes old, at the second question at the latest",
            "StoreError::CutTrimmed at four questions in turn",
        ));
    }
    store.begin_reign(&[(SLOT, Epoch(9))])?;
    let was = records(store.read_cut(SLOT)?)?;
    let told = store.digest(SLOT, Copy::Live, Some(at(9, 0)))?;
    let came = (told.digest, told.records);
    same("at the base of a new reign", sum(&was), came)
}
