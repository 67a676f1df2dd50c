//! C46, step 2: lookups while rings are swapped.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use annulus_ring::{Epoch, Member};

use super::*;
use crate::route::Route;

#[path = "../../tests/it/rings.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests against a server, which use all of it"
)]
mod rings;

const READERS: usize = 16;
const SWAPS: u64 = 10_000;

/// Every member's zone names the epoch it is from, and the lists of neighbouring epochs differ.
fn check<'a>(epoch: Epoch, members: impl Iterator<Item = &'a Member>, owner: u64) {
    let mut count = 0;
    for (at, member) in (0..).zip(members) {
        assert_eq!(
            member.zone.as_str(),
            format!("z{epoch}"),
            "a member of another epoch"
        );
        assert_eq!(
            u64::from(member.handle.0),
            (owner + at) % 3,
            "a list of another epoch"
        );
        count += 1;
    }
    assert_eq!(count, 2);
}

#[test]
fn c46_lookups_see_one_ring_while_ten_thousand_are_swapped() {
    let mut previous = Checksum::default();
    let messages: Vec<_> = (1..=SWAPS)
        .map(|epoch| {
            let snapshot = Snapshot {
                previous_checksum: previous,
                ..rings::ring(epoch)
            };
            let encoded = annulus_proto::snapshot::encode(&snapshot);
            previous = encoded.checksum;
            v1::SnapshotBytes::from(&encoded)
        })
        .collect();
    let current = Current::new(RingName::new(rings::RING).unwrap(), None);
    current.offer(&messages[0]).unwrap();

    let (over, looked_up) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (current, over, looked_up) = (&current, &over, &looked_up);
            scope.spawn(move || {
                let mut cache = arc_swap::Cache::new(Arc::clone(current.swap()));
                let (mut last, mut key) = (Epoch(0), reader as u64);
                while !over.load(Ordering::Relaxed) {
                    key = key.wrapping_add(READERS as u64);
                    let key = key.to_be_bytes();
                    let route = Route::find(current.swap(), &key).unwrap();
                    let epoch = route.epoch();
                    assert!(epoch >= last, "WATCH-MONOTONE: {epoch} after {last}");
                    last = epoch;
                    check(epoch, route.members(), u64::from(route.slot.0) + epoch.0);
                    assert_eq!(route.owner().handle, route.handles()[0]);

                    let cached = cache.load().as_deref().unwrap().route(&key).unwrap();
                    let epoch = cached.epoch();
                    assert!(
                        epoch >= last,
                        "a cached reader fell back from {last} to {epoch}"
                    );
                    check(epoch, cached.members(), u64::from(cached.slot.0) + epoch.0);
                    looked_up.fetch_add(1, Ordering::Relaxed);
                    // The swapping thread shares the processors with sixteen of these.
                    thread::yield_now();
                }
            });
        }
        for message in &messages[1..] {
            current.offer(message).unwrap();
        }
        // All of them got their turn.
        while looked_up.load(Ordering::Relaxed) < 10 * SWAPS {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(current.held().unwrap().epoch, Epoch(SWAPS));
}

#[test]
fn offers_at_once_leave_the_newest() {
    let current = Current::new(RingName::new(rings::RING).unwrap(), None);
    // Even epochs only: no predecessor is held, so any order of arrival is legal.
    let messages: Vec<_> = (1..=64)
        .map(|half| rings::seal(&rings::ring(half * 2)))
        .collect();
    thread::scope(|scope| {
        for message in &messages {
            let current = &current;
            scope.spawn(move || match current.offer(message) {
                Ok(_) => {}
                Err(refused) => assert!(refused.is_old_news(), "{refused}"),
            });
        }
    });
    assert_eq!(current.held().unwrap().epoch, Epoch(128));
    assert_eq!(current.swap().load_full().unwrap().epoch(), Epoch(128));
}
