//! Cases from the field, as far as the library alone can show them.

// Helpers of tests are no test functions to clippy.
use std::sync::Arc;

use crate::common::*;
use annulus_ring::{
    AssignError, Handle, Lookup, LookupError, NameError, Slot, SlotTable, SnapshotError, Token,
    TokenRange, Weight, Zone,
    node::MAX_WEIGHT,
    place::{self, shortfall},
    placement::{diff, movement},
};

/// C01: order of insertion changes the map. Ten nodes of mixed weights in three zones.
#[test]
fn c01_the_map_is_a_function_of_the_set_of_nodes() {
    let specs: Vec<Spec> = (0..10)
        .map(|at| (at, (at % 3) as u8, 1 + u32::from(at) % 4))
        .collect();
    let expected = founded(10, 3, &specs);
    let mut order = specs.clone();
    order.reverse();
    assert_eq!(founded(10, 3, &order), expected);
    for shuffle in 1..=20 {
        // A fixed walk through the orders: steps of a length that shares no factor with 10.
        order.swap(shuffle * 7 % 10, shuffle * 3 % 10);
        order.rotate_left(shuffle % 10);
        assert_eq!(founded(10, 3, &order), expected, "shuffle {shuffle}");
    }
    // Within one history, each step is a function of the table and the set.
    let fewer: Vec<Spec> = specs.iter().copied().filter(|spec| spec.0 != 4).collect();
    let without = assign(&expected, &fewer);
    order.retain(|spec| spec.0 != 4);
    assert_eq!(assign(&expected, &order), without);
    assert_eq!(assign(&without, &specs), assign(&without, &specs));
}

/// C01: lookups of two processes that got their members in other orders.
#[test]
fn c01_lookups_agree_for_ten_thousand_keys() {
    let specs = equal(3, 3);
    let mut reversed = specs.clone();
    reversed.reverse();
    let (one, other) = (
        lookup(founded(10, 3, &specs), &specs),
        lookup(founded(10, 3, &reversed), &reversed),
    );
    for key in 0..10_000_u32 {
        let key = key.to_le_bytes();
        assert_eq!(
            one.route(&key).unwrap().handles(),
            other.route(&key).unwrap().handles()
        );
    }
}

/// C03: weight zero owns nothing, and all weights zero is a typed error.
#[test]
fn c03_weight_zero_owns_nothing() {
    let specs = [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 0, 0)];
    let table = founded(8, 3, &specs);
    assert_eq!(replicas(&table).get(&3), None);

    let nobody = [(0, 0, 0), (1, 1, 0), (2, 2, 0)];
    let refused = place::assign(&table, &candidates(&nobody));
    assert_eq!(refused, Err(AssignError::NoEligibleNode));
    assert_eq!(place::assign(&table, &[]), Err(AssignError::NoEligibleNode));
    assert!(Weight::new(MAX_WEIGHT).is_some() && Weight::new(MAX_WEIGHT + 1).is_none());
}

/// C03: a node whose weight became 0 gives everything away.
#[test]
fn c03_a_weight_that_becomes_zero_gives_everything_away() {
    let table = founded(8, 2, &[(0, 0, 1), (1, 0, 1), (2, 0, 1)]);
    let table = assign(&table, &[(0, 0, 1), (1, 0, 1), (2, 0, 0)]);
    assert_eq!(replicas(&table).get(&2), None);
    assert_eq!(replicas(&table)[&0], 256);
}

/// C03: weights 1 and 1,000,000 side by side. The small node may hold nothing, as documented.
#[test]
fn c03_extreme_weights_are_exact() {
    let table = founded(14, 1, &[(0, 0, 1), (1, 0, 1_000_000)]);
    assert_eq!(replicas(&table).values().sum::<u32>(), 1 << 14);
    assert!(replicas(&table)[&1] >= (1 << 14) - 1);
    // As one of two replicas it is needed for every range, whatever its weight.
    let table = founded(8, 2, &[(0, 0, 1), (1, 0, 1_000_000)]);
    assert_eq!(replicas(&table)[&0], 256);
    assert!(owners(&table)[&1] >= 255);
}

/// C03: handles that two nodes share, or that pad lists.
#[test]
fn c03_handles_are_unique() {
    let table = SlotTable::empty(4, 2);
    let twice = candidates(&[(1, 0, 1), (1, 1, 1)]);
    assert_eq!(
        place::assign(&table, &twice),
        Err(AssignError::Handle { handle: 1 })
    );
    let padding = candidates(&[(u16::MAX, 0, 1)]);
    assert_eq!(
        place::assign(&table, &padding),
        Err(AssignError::Handle { handle: u16::MAX })
    );
    assert!(place::even_owners(&table, &twice).is_empty());
}

/// C04: nobody there, or nobody eligible: a typed error for every key.
#[test]
fn c04_an_empty_ring_answers_no_owner() {
    for specs in [&[][..], &[(0, 0, 0), (1, 1, 0)]] {
        let lookup = lookup(SlotTable::empty(4, 3), specs);
        let error = lookup.route(b"any").unwrap_err();
        let LookupError::NoOwner { slot, epoch } = error;
        assert_eq!((slot, epoch), (lookup.slot(b"any"), lookup.epoch()));
        assert!(lookup.member(Handle(7)).is_none());
    }
}

/// C04: one node has every key.
#[test]
fn c04_one_node_has_every_key() {
    let specs = [(0, 0, 1)];
    let lookup = lookup(founded(6, 3, &specs), &specs);
    for key in [&b""[..], b"a", b"\0", &[0xff; 1_000]] {
        let route = lookup.route(key).unwrap();
        assert_eq!(route.handles(), [Handle(0)]);
        assert!(route.range().contains(route.hash));
    }
}

/// C04: tokens 0, T and the largest; hashes at every edge.
#[test]
fn c04_a_token_closes_its_range_at_every_edge() {
    let (t, max) = (1 << 40, u64::MAX);
    let ranges = [(max, 0), (0, t), (t, max)].map(|(a, b)| TokenRange::new(Token(a), Token(b)));
    for (hash, expected) in [
        (0, 0),
        (1, 1),
        (t - 1, 1),
        (t, 1),
        (t + 1, 2),
        (max - 1, 2),
        (max, 2),
    ] {
        let inside: Vec<_> = (0..3).filter(|at| ranges[*at].contains(hash)).collect();
        assert_eq!(inside, [expected], "hash {hash}");
    }
    // What agents are handed follows the same rule: past the last slot comes the first.
    for bits in [1, 14, 20] {
        let last = Slot((1 << bits) - 1);
        assert_eq!((Slot::of(0, bits), Slot::of(max, bits)), (Slot(0), last));
        assert!(last.range(bits).contains(max) && !Slot(0).range(bits).contains(max));
        assert!(Slot(0).range(bits).contains(0));
    }
}

/// C04: removing an unknown node changes nothing; removing the last is an error.
#[test]
fn c04_removing_the_last_or_an_unknown_node() {
    let specs = [(0, 0, 1), (1, 1, 1)];
    let table = founded(4, 2, &specs);
    assert_eq!(assign(&table, &specs), table);
    let one = assign(&table, &specs[..1]);
    assert!(one.slots().all(|slot| one.list(slot) == [Handle(0)]));
    assert_eq!(place::assign(&one, &[]), Err(AssignError::NoEligibleNode));
}

/// C06: zones of 1, 1 and 4 nodes, also when the four weigh ten times as much: one replica in
/// each zone.
#[test]
fn c06_uneven_zones_get_one_replica_each() {
    for weight in [1, 10] {
        let specs = [
            (0, 1, 1),
            (1, 2, 1),
            (2, 3, weight),
            (3, 3, weight),
            (4, 3, weight),
            (5, 3, weight),
        ];
        let table = founded(10, 3, &specs);
        let lookup = lookup(table.clone(), &specs);
        for key in 0..10_000_u32 {
            let route = lookup.route(&key.to_le_bytes()).unwrap();
            assert_eq!(zones_of(route.handles(), &specs), [1, 2, 3]);
        }
        // The two small zones carry everything; the third is shared evenly.
        let counts = replicas(&table);
        assert_eq!((counts[&0], counts[&1]), (1_024, 1_024));
        assert!((2..6).all(|node| counts[&node] == 256));
        assert_eq!(
            shortfall(&table, &candidates(&specs)),
            place::Shortfall::default()
        );
    }
}

/// C06: three nodes in one zone: lists are full and nobody claims a spread of three.
#[test]
fn c06_one_zone_is_reported_once_there_are_more() {
    let specs = [(0, 1, 1), (1, 1, 1), (2, 1, 1)];
    let table = founded(6, 3, &specs);
    assert_eq!(shortfall(&table, &candidates(&specs)).short, 0);
    // As good as it can be with one zone; with a second one it is not.
    assert_eq!(shortfall(&table, &candidates(&specs)).unspread, 0);
    let more = [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 2, 1)];
    assert_eq!(shortfall(&table, &candidates(&more)).unspread, 64);
    assert_eq!(
        shortfall(&assign(&table, &more), &candidates(&more)).unspread,
        0
    );
    let two = [(0, 1, 1), (1, 1, 1)];
    assert_eq!(shortfall(&founded(6, 3, &two), &candidates(&two)).short, 64);
}

/// C06: an empty zone name is refused; `Z1` and `z1` are two zones.
#[test]
fn c06_zone_names_follow_one_rule() {
    assert_eq!(Zone::new(""), Err(NameError::Empty { what: "zone" }));
    assert_ne!(Zone::new("Z1"), Zone::new("z1"));
}

/// C08, 1: of ten equal nodes, one more takes an eleventh, from all alike, and nobody else
/// gains; when owners are evened out, only to it.
#[test]
fn c08_a_join_moves_an_eleventh() {
    let mut specs: Vec<Spec> = (0..10).map(|at| (at, 0, 1)).collect();
    let before = founded(12, 3, &specs);
    specs.push((10, 0, 1));
    let after = assign(&before, &specs);
    for change in diff(&before, &after) {
        let moved = movement(change.slot, before.list(change.slot), &change.to);
        assert_eq!(moved.gainers.as_slice(), [Handle(10)]);
        assert!(!moved.owner_changes, "a join hands nothing over");
    }
    let share = (3 << 12) / 11;
    assert_eq!(moved(&before, &after), share);

    let hand_overs = place::even_owners(&after, &candidates(&specs));
    let share = (1 << 12) / 11;
    assert!(
        hand_overs.len().abs_diff(share) <= 1,
        "{} owners move",
        hand_overs.len()
    );
    assert!(
        hand_overs
            .iter()
            .all(|(_, successor)| *successor == Handle(10))
    );
}

/// C08, 2: only the leaving node's ranges change.
#[test]
fn c08_a_leave_moves_only_its_own_ranges() {
    let mut specs: Vec<Spec> = (0..10).map(|at| (at, 0, 1)).collect();
    let before = founded(12, 3, &specs);
    specs.remove(3);
    let after = assign(&before, &specs);
    assert_eq!(moved(&before, &after), replicas(&before)[&3]);
    for change in diff(&before, &after) {
        let old = before.list(change.slot);
        assert!(old.contains(&Handle(3)));
        if old[0] != Handle(3) {
            assert_eq!(change.to[0], old[0]);
        }
    }
}

/// C08, 3 and 4: a doubled weight only gains; halved again it only gives back. The map then
/// balances as before, but need not be the very one before: the slots layout moves least from
/// where it is (a map that follows from names alone is what the tokens layout is for).
#[test]
fn c08_a_weight_moves_only_its_node() {
    let specs: Vec<Spec> = (0..10).map(|at| (at, 0, 1)).collect();
    let before = founded(12, 3, &specs);
    let mut heavy = specs.clone();
    heavy[5].2 = 2;
    let doubled = assign(&before, &heavy);
    for change in diff(&before, &doubled) {
        let moved = movement(change.slot, before.list(change.slot), &change.to);
        assert_eq!(moved.gainers.as_slice(), [Handle(5)]);
    }
    let halved = assign(&doubled, &specs);
    for change in diff(&doubled, &halved) {
        let moved = movement(change.slot, doubled.list(change.slot), &change.to);
        assert_eq!(moved.losers.as_slice(), [Handle(5)]);
    }
    assert_eq!(moved(&before, &doubled), moved(&doubled, &halved));
    assert!(
        replicas(&halved)
            .values()
            .all(|count| count.abs_diff((3 << 12) / 10) <= 1)
    );
}

/// C08, 5: a drain that is aborted leaves the map as it was, since nothing but the target is
/// dropped; and a table that fits its members stays as it is.
#[test]
fn c08_a_table_that_fits_is_left_alone() {
    let specs: Vec<Spec> = (0..10)
        .map(|at| (at, (at % 4) as u8, 1 + u32::from(at % 3)))
        .collect();
    let table = founded(12, 3, &specs);
    assert_eq!(assign(&table, &specs), table);
}

/// C08, 6: balance at the default size.
#[test]
fn c08_balance_is_within_a_slot_of_fair() {
    let specs = equal(1, 10);
    let table = founded(14, 3, &specs);
    assert!(
        replicas(&table)
            .values()
            .all(|count| count.abs_diff((3 << 14) / 10) <= 1)
    );
    assert!(
        owners(&table)
            .values()
            .all(|count| count.abs_diff((1 << 14) / 10) <= 1)
    );
    let weights = [(0, 0, 4), (1, 0, 4), (2, 0, 1), (3, 0, 1)];
    let counts = owners(&founded(14, 1, &weights));
    assert!(
        counts[&0].abs_diff(6_554) <= 1 && counts[&3].abs_diff(1_638) <= 1,
        "{counts:?}"
    );
}

/// C46, as far as a value can show it: what `check` refuses, and that nothing is compiled then.
#[test]
fn c46_a_snapshot_without_sense_is_refused() {
    let specs = [(0, 0, 1), (1, 1, 1), (2, 2, 1)];
    let good = snapshot(founded(4, 3, &specs), &specs);
    assert_eq!(good.check(), Ok(()));
    type Bend = fn(&mut annulus_ring::Snapshot);
    let bent = |bend: Bend| {
        let mut snapshot = good.clone();
        bend(&mut snapshot);
        Lookup::compile(Arc::new(snapshot)).map(drop).unwrap_err()
    };
    use SnapshotError as E;
    assert!(matches!(bent(|s| s.format = 2), E::Format { found: 2 }));
    assert!(matches!(bent(|s| s.epoch.0 = 0), E::EpochZero));
    assert!(matches!(
        bent(|s| s.members[1] = s.members[0].clone()),
        E::MemberOrder { .. }
    ));
    assert!(matches!(
        bent(|s| s.members.swap(0, 2)),
        E::MemberOrder { .. }
    ));
    assert!(matches!(
        bent(|s| s.members[1].handle = Handle(0)),
        E::MemberHandle { .. }
    ));
    assert!(matches!(
        bent(|s| s.members[1].handle = Handle::NONE),
        E::MemberHandle { .. }
    ));
    assert!(matches!(
        bent(|s| drop(s.members.pop())),
        E::UnknownHandle { handle: 2, .. }
    ));
    assert!(matches!(
        bent(|s| s.members.clear()),
        E::UnknownHandle { .. }
    ));
    assert!(matches!(
        bent(|s| s.layout.slots.set(Slot(3), &[Handle(1), Handle(1)])),
        E::Twice {
            slot: Slot(3),
            handle: 1
        }
    ));
    assert!(matches!(
        bent(|s| s.layout.replication.rf = 2),
        E::TableRf { .. } | E::Replication(_)
    ));
    assert!(matches!(
        bent(|s| s.layout.replication.w = 4),
        E::Replication(_)
    ));
    // Quorums that may lose a write are the operator's to accept.
    let mut accepted = good.clone();
    (accepted.layout.replication.w, accepted.layout.replication.r) = (1, 1);
    assert_eq!(accepted.check(), Ok(()));
}

/// C46: the same for what a transition carries.
#[test]
fn c46_a_transition_without_sense_is_refused() {
    use SnapshotError as E;
    let specs = [(0, 0, 1), (1, 1, 1), (2, 2, 1)];
    let with = |changes: &[(u32, &[u16])]| {
        let mut snapshot = snapshot(founded(4, 2, &specs), &specs);
        let change = |(slot, to): &(u32, &[u16])| annulus_ring::SlotChange {
            slot: Slot(*slot),
            to: to.iter().copied().map(Handle).collect(),
        };
        snapshot.transition = Some(annulus_ring::Transition {
            replication: None,
            id: annulus_ring::TransitionId(1),
            step: annulus_ring::Step::Switched,
            target: changes.iter().map(change).collect(),
        });
        Lookup::compile(Arc::new(snapshot)).map(drop)
    };
    assert_eq!(with(&[(0, &[1, 0]), (15, &[2])]), Ok(()));
    assert_eq!(with(&[]), Ok(()));
    assert!(matches!(
        with(&[(1, &[0]), (0, &[1])]),
        Err(E::TargetOrder { slot: Slot(0) })
    ));
    assert!(matches!(
        with(&[(1, &[0]), (1, &[1])]),
        Err(E::TargetOrder { .. })
    ));
    assert!(matches!(with(&[(16, &[0])]), Err(E::TargetOrder { .. })));
    assert!(matches!(
        with(&[(1, &[])]),
        Err(E::TargetLength { found: 0, .. })
    ));
    assert!(matches!(
        with(&[(1, &[0, 1, 2])]),
        Err(E::TargetLength {
            found: 3,
            rf: 2,
            ..
        })
    ));
    assert!(matches!(
        with(&[(1, &[0, 9])]),
        Err(E::UnknownHandle { handle: 9, .. })
    ));
    assert!(matches!(with(&[(1, &[2, 2])]), Err(E::Twice { .. })));
}
