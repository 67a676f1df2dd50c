//! What holds for every ring.

// Helpers of tests are no test functions to clippy.
use crate::common::*;
use annulus_ring::{
    Handle, Lookup, Slot, SlotTable, TokenRange,
    place::{assign as try_assign, even_owners, shortfall},
    placement::{apply, diff},
};
use proptest::{prelude::*, sample::Index};

/// Up to `most` nodes in up to four zones, of weights that differ up to a hundredfold.
fn specs(most: u16) -> impl Strategy<Value = Vec<Spec>> {
    let weight = prop_oneof![4 => Just(1_u32), 2 => 1..=4_u32, 1 => 1..=100_u32];
    (1..=4_u8, 1..=most).prop_flat_map(move |(zones, count)| {
        let node = (0..zones, weight.clone());
        prop::collection::vec(node, usize::from(count)).prop_map(|nodes| {
            (0..)
                .zip(nodes)
                .map(|(handle, (zone, weight))| (handle, zone, weight))
                .collect()
        })
    })
}

/// What happens to a ring's members.
#[derive(Clone, Debug)]
enum Act {
    Join(u8, u32),
    Leave(Index),
    Weigh(Index, u32),
    EvenOwners,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..4_u8, 1..=4_u32).prop_map(|(zone, weight)| Act::Join(zone, weight)),
        2 => any::<Index>().prop_map(Act::Leave),
        1 => (any::<Index>(), 1..=8_u32).prop_map(|(node, weight)| Act::Weigh(node, weight)),
        1 => Just(Act::EvenOwners),
    ]
}

fn lowest_free(specs: &[Spec]) -> u16 {
    (0..)
        .find(|handle| specs.iter().all(|spec| spec.0 != *handle))
        .unwrap()
}

/// Lists are as long as they can be, distinct, of members with weight, and even over zones.
fn well_formed(table: &SlotTable, specs: &[Spec]) {
    let zones: std::collections::BTreeSet<_> = specs.iter().map(|spec| spec.1).collect();
    let size = |zone: u8| specs.iter().filter(|spec| spec.1 == zone).count();
    for slot in table.slots() {
        let list = table.list(slot);
        assert_eq!(
            list.len(),
            usize::from(table.rf()).min(specs.len()),
            "slot {slot}"
        );
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), list.len(), "slot {slot} names a node twice");
        let spread = zones_of(list, specs);
        let count = |zone: u8| spread.iter().filter(|other| **other == zone).count();
        for full in &zones {
            for empty in &zones {
                let may_take = count(*empty) < size(*empty);
                assert!(
                    !may_take || count(*full) <= count(*empty) + 1,
                    "slot {slot}: {} of zone {full}, {} of {empty}",
                    count(*full),
                    count(*empty)
                );
            }
        }
    }
    let found = shortfall(table, &candidates(specs));
    let short = if specs.len() < usize::from(table.rf()) {
        table.slot_count() as u32
    } else {
        0
    };
    assert_eq!((found.short, found.unspread), (short, 0));
}

/// No replica could go straight to a node that has clearly less for its weight.
fn balanced(table: &SlotTable, specs: &[Spec]) {
    let counts = replicas(table);
    let count = |spec: &Spec| u64::from(counts.get(&spec.0).copied().unwrap_or(0));
    for from in specs {
        for to in specs.iter().filter(|to| to.1 == from.1 && to.0 != from.0) {
            let uneven = count(from).saturating_sub(1) * u64::from(to.2)
                > (count(to) + 1) * u64::from(from.2);
            let movable = table.slots().any(|slot| {
                let list = table.list(slot);
                list.contains(&Handle(from.0)) && !list.contains(&Handle(to.0))
            });
            let (from_count, to_count) = (count(from), count(to));
            assert!(
                !(uneven && movable),
                "{from:?} has {from_count}, {to:?} has {to_count}"
            );
        }
    }
}

/// Whether some list has only one of its old members left, who then has to stay: that may keep
/// a table from balance until the next change.
fn bound(old: &SlotTable, new: &SlotTable) -> bool {
    let staying = |slot: Slot| {
        old.list(slot)
            .iter()
            .filter(|handle| new.list(slot).contains(handle))
            .count()
    };
    new.rf() > 1 && new.slots().any(|slot| staying(slot) == 1)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lookup_equals_a_naive_scan(
        specs in specs(12),
        rf in 1..=4_u8,
        bits in 1..=8_u8,
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..50),
    ) {
        let table = founded(bits, rf, &specs);
        let lookup: Lookup = lookup(table.clone(), &specs);
        for key in keys {
            let hash = xxhash_rust::xxh3::xxh3_64(&key);
            let scanned = table.slots().find(|slot| slot.range(bits).contains(hash)).unwrap();
            let route = lookup.route(&key).unwrap();
            prop_assert_eq!(route.hash, hash);
            prop_assert_eq!(route.handles(), table.list(scanned));
            prop_assert_eq!(route.owner().handle, table.list(scanned)[0]);
            let members: Vec<_> = route.members().map(|member| member.handle).collect();
            prop_assert_eq!(&members[..], table.list(scanned));
        }
    }

    #[test]
    fn every_hash_is_in_exactly_one_range(bits in 1..=10_u8, hashes in prop::collection::vec(any::<u64>(), 20)) {
        let ranges: Vec<TokenRange> = (0..1_u32 << bits).map(|slot| Slot(slot).range(bits)).collect();
        prop_assert_eq!(ranges.iter().map(|range| range.len()).sum::<u128>(), 1 << 64);
        let edges = ranges.iter().flat_map(|range| [range.end.0, range.end.0.wrapping_add(1)]);
        for hash in edges.take(40).chain(hashes).chain([0, 1, u64::MAX - 1, u64::MAX]) {
            let inside: Vec<_> = ranges.iter().filter(|range| range.contains(hash)).collect();
            prop_assert_eq!(inside.len(), 1, "hash {}", hash);
            prop_assert_eq!(inside[0], &Slot::of(hash, bits).range(bits));
        }
    }

    #[test]
    fn owners_that_stay_stay_first_and_are_followed_by_members(
        before in specs(9),
        after in specs(9),
        rf in 1..=4_u8,
    ) {
        let old = founded(6, rf, &before);
        let new = assign(&old, &after);
        for slot in old.slots() {
            let (old, new) = (old.list(slot), new.list(slot));
            let staying: Vec<_> = old.iter().filter(|handle| new.contains(handle)).collect();
            if let Some(first) = staying.first() {
                prop_assert!(old.contains(&new[0]), "slot {}: a gainer is first", slot);
                if *first == &old[0] {
                    prop_assert_eq!(new[0], old[0], "slot {}: a needless hand-over", slot);
                }
            }
        }
    }

    #[test]
    fn the_order_of_candidates_means_nothing(
        (specs, shuffled) in specs(12).prop_flat_map(|specs| {
            (Just(specs.clone()), Just(specs).prop_shuffle())
        }),
        joiner in any::<bool>(),
    ) {
        let start = if joiner { founded(6, 3, &specs[..1]) } else { SlotTable::empty(6, 3) };
        let table = assign(&start, &specs);
        prop_assert_eq!(&assign(&start, &shuffled), &table);
        prop_assert_eq!(
            even_owners(&start, &candidates(&specs)),
            even_owners(&start, &candidates(&shuffled))
        );
    }

    #[test]
    fn the_diff_applied_to_the_old_gives_the_new(
        old in prop::collection::vec(prop::collection::vec(0..9_u16, 0..=3), 16),
        new in prop::collection::vec(prop::collection::vec(0..9_u16, 0..=3), 16),
    ) {
        let table = |lists: &[Vec<u16>]| {
            let mut table = SlotTable::empty(4, 3);
            for (slot, list) in (0..).map(Slot).zip(lists) {
                let list: Vec<_> = list.iter().copied().map(Handle).collect();
                table.set(slot, &list);
            }
            table
        };
        let (mut old, new) = (table(&old), table(&new));
        let changes = diff(&old, &new);
        prop_assert!(changes.windows(2).all(|pair| pair[0].slot < pair[1].slot));
        apply(&mut old, &changes);
        prop_assert_eq!(&old, &new);
        prop_assert_eq!(diff(&old, &new), vec![]);
    }

    #[test]
    fn even_owners_leaves_no_better_hand_over(
        before in specs(8),
        after in specs(8),
        rf in 1..=4_u8,
        firsts in prop::collection::vec(any::<Index>(), 64),
    ) {
        // Any owners: lists rotated at random.
        let mut table = founded(6, rf, &before);
        for (slot, first) in table.slots().zip(firsts) {
            let mut list = table.list(slot).to_vec();
            let by = first.index(list.len());
            list.rotate_left(by);
            table.set(slot, &list);
        }
        let found = try_assign(&table, &candidates(&before)).unwrap();
        prop_assert_eq!(&found, &table, "owners are none of assign's business while they stay");

        let hand_overs = even_owners(&table, &candidates(&after));
        prop_assert!(hand_overs.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order of slot");
        for (slot, successor) in &hand_overs {
            let mut list = table.list(*slot).to_vec();
            let at = list.iter().position(|handle| handle == successor);
            prop_assert!(at > Some(0), "a member, and not the owner already");
            list.swap(0, at.unwrap());
            table.set(*slot, &list);
        }
        prop_assert_eq!(even_owners(&table, &candidates(&after)), vec![]);
        let counts = owners(&table);
        let owned = |spec: &Spec| u64::from(counts.get(&spec.0).copied().unwrap_or(0));
        for slot in table.slots() {
            let list = table.list(slot);
            let Some(first) = after.iter().find(|spec| spec.0 == list[0].0) else {
                let others = list.iter().any(|handle| after.iter().any(|spec| spec.0 == handle.0));
                prop_assert!(!others, "slot {}: somebody could own it", slot);
                continue;
            };
            for other in after.iter().filter(|spec| list[1..].contains(&Handle(spec.0))) {
                let uneven = owned(first).saturating_sub(1) * u64::from(other.2)
                    > (owned(other) + 1) * u64::from(first.2);
                prop_assert!(!uneven, "slot {}: {:?} could hand over to {:?}", slot, first, other);
            }
        }
    }
}

// These compare with the cheapest flow, which takes its time: fewer of them.
proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases / 8,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_table_is_well_formed_and_balanced_after_any_history(
        first in specs(10),
        acts in prop::collection::vec(act(), 0..8),
        rf in 1..=4_u8,
        bits in 3..=5_u8,
    ) {
        let mut specs = first;
        let mut table = founded(bits, rf, &specs);
        well_formed(&table, &specs);
        balanced(&table, &specs);
        for act in acts {
            match act {
                Act::Join(zone, weight) => specs.push((lowest_free(&specs), zone, weight)),
                Act::Leave(_) if specs.len() == 1 => {}
                Act::Leave(index) => drop(specs.remove(index.index(specs.len()))),
                Act::Weigh(index, weight) => {
                    let at = index.index(specs.len());
                    specs[at].2 = weight;
                }
                Act::EvenOwners => {
                    for (slot, successor) in even_owners(&table, &candidates(&specs)) {
                        let mut list = table.list(slot).to_vec();
                        let at = list.iter().position(|handle| *handle == successor).unwrap();
                        list[..=at].rotate_right(1);
                        table.set(slot, &list);
                    }
                }
            }
            let next = assign(&table, &specs);
            well_formed(&next, &specs);
            // MOVE-MINIMAL, and three replicas where a tenth is none.
            let (moves, least) = (moved(&table, &next), least(&table, &next, &specs));
            prop_assert!(10 * moves <= 11 * least + 30, "{} moves, {} were needed", moves, least);
            if !bound(&table, &next) {
                balanced(&next, &specs);
                prop_assert_eq!(&assign(&next, &specs), &next, "nothing left to move");
            }
            table = next;
        }
    }

    #[test]
    fn a_join_moves_only_to_the_joiner_and_hands_nothing_over(
        zones in 1..=4_u8,
        per_zone in 2..=5_u16,
        rf in 2..=3_u8,
        zone in any::<Index>(),
        bits in 4..=7_u8,
    ) {
        let mut specs = equal(zones, per_zone);
        let before = founded(bits, rf, &specs);
        let joiner = specs.len() as u16;
        specs.push((joiner, zone.index(zones.into()) as u8, 1));
        let after = assign(&before, &specs);
        if zones <= rf || bits > 5 {
            // In a table so small that rounding leaves no choice a hand-over may be needed.
            prop_assert_eq!(owners(&before), owners(&after));
        }
        let (moves, least) = (moved(&before, &after), least(&before, &after, &specs));
        prop_assert!(10 * moves <= 11 * least + 30, "{} moves, {} were needed", moves, least);
        if zones == rf {
            // One replica in each zone: only the joiner's neighbours there give, and only to it.
            prop_assert_eq!(moves, replicas(&after)[&joiner]);
            for change in diff(&before, &after) {
                prop_assert!(change.to.contains(&Handle(joiner)), "slot {}", change.slot);
            }
        }
    }

    #[test]
    fn a_leaving_member_takes_only_its_own_slots_along(
        zones in 1..=3_u8,
        per_zone in 3..=5_u16,
        rf in 1..=3_u8,
        who in any::<Index>(),
    ) {
        let mut specs = equal(zones, per_zone);
        let before = founded(6, rf, &specs);
        let leaver = specs.remove(who.index(specs.len())).0;
        let after = assign(&before, &specs);
        let (moves, least) = (moved(&before, &after), least(&before, &after, &specs));
        prop_assert!(10 * moves <= 11 * least + 30, "{} moves, {} were needed", moves, least);
        if zones == rf {
            prop_assert_eq!(moves, replicas(&before)[&leaver]);
            for change in diff(&before, &after) {
                prop_assert!(before.list(change.slot).contains(&Handle(leaver)));
            }
        }
    }
}
