//! Rendezvous and bounded load: shares, zones, least movement, and the logarithm beneath.

use std::collections::BTreeMap;

use annulus_ring::{
    Bound, Handle, HashName, NodeId, Rendezvous, TokensError, Weight, Zone,
    bounded::{self, Placed},
    hash::mix64,
    log,
    rendezvous::{RendezvousNode, node_hash},
};
use proptest::prelude::*;

type Spec = (u16, u8, u32);

fn nodes(specs: &[Spec]) -> Vec<RendezvousNode> {
    let node = |(at, zone, weight): &Spec| RendezvousNode {
        node_id: NodeId::new(format!("n{at:05}")).unwrap(),
        handle: Handle(*at),
        zone: Zone::new(format!("z{zone}")).unwrap(),
        weight: Weight::new(*weight).unwrap(),
    };
    specs.iter().map(node).collect()
}

fn rendezvous(rf: u8, specs: &[Spec]) -> Rendezvous {
    Rendezvous::new(HashName::Xxh3_64, 0, rf, &nodes(specs)).unwrap()
}

/// All nodes sorted by their cost, then taken under the zone rule, anew for each key.
fn told(rf: usize, specs: &[Spec], key: u64) -> Vec<u16> {
    let nodes = nodes(specs);
    let mut bids: Vec<_> = nodes
        .iter()
        .filter(|node| node.weight.get() > 0)
        .map(|node| {
            let bid = mix64(key ^ node_hash(HashName::Xxh3_64, 0, &node.node_id));
            (log::cost(bid), node)
        })
        .collect();
    bids.sort_by(|(a, one), (b, two)| {
        let left = u128::from(*a) * u128::from(two.weight.get());
        let right = u128::from(*b) * u128::from(one.weight.get());
        left.cmp(&right).then(one.node_id.cmp(&two.node_id))
    });
    let zones: std::collections::BTreeSet<_> = bids.iter().map(|(_, node)| &node.zone).collect();
    let mut list: Vec<&RendezvousNode> = Vec::new();
    let mut cap = rf.div_ceil(zones.len());
    while list.len() < rf.min(bids.len()) {
        for (_, node) in &bids {
            let of_zone = list.iter().filter(|taken| taken.zone == node.zone).count();
            let known = list.iter().any(|taken| taken.handle == node.handle);
            if list.len() < rf && !known && of_zone < cap {
                list.push(node);
            }
        }
        cap += 1;
    }
    list.iter().map(|node| node.handle.0).collect()
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let weight = prop_oneof![1 => Just(0_u32), 4 => 1..5_u32, 1 => 1..=1_000_000_u32];
    prop::collection::vec((0..4_u8, weight), 1..12).prop_map(|specs| {
        (0..)
            .zip(specs)
            .map(|(at, (zone, weight))| (at, zone, weight))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_choice_is_the_told_one(specs in specs(), rf in 1..=7_u8, key: u64) {
        prop_assume!(specs.iter().any(|spec| spec.2 > 0));
        let choice = rendezvous(rf, &specs).choose_hash(key);
        let found: Vec<_> = choice.list.iter().map(|handle| handle.0).collect();
        prop_assert_eq!(&found, &told(rf.into(), &specs, key));
        prop_assert_eq!(usize::from(choice.shortage.replicas), usize::from(rf) - found.len());
        let mut turned = specs.clone();
        turned.reverse();
        prop_assert_eq!(rendezvous(rf, &turned).choose_hash(key), choice);
    }

    /// A heavier node only gains.
    #[test]
    fn more_weight_only_gains(specs in specs(), key: u64, more in 1..100_u32) {
        prop_assume!(specs[0].2 > 0 && specs[0].2 < 900_000);
        let mut heavier = specs.clone();
        heavier[0].2 += more;
        let (before, after) = (rendezvous(1, &specs), rendezvous(1, &heavier));
        let (before, after) = (before.choose_hash(key).list, after.choose_hash(key).list);
        prop_assert!(before == after || after[0] == Handle(0));
    }

    /// Where the logarithm is wrong, shares are: it rises, and stays within what its module says.
    #[test]
    fn the_logarithm_is_monotone_and_near(x in 1..u64::MAX, shift in 0..64_u32) {
        let x = (x >> shift).max(1);
        prop_assert!(log::log2(x) <= log::log2(x + 1));
        let unit = (1_u64 << log::FRACTION_BITS) as f64;
        let apart = (x as f64).log2() - log::log2(x) as f64 / unit;
        // 2^-44 is what double precision itself may be wrong by.
        prop_assert!((-6e-14..4.4e-8).contains(&apart), "{}", apart);
    }

    /// Costs of the largest hashes, which decide most choices, are right in proportion.
    #[test]
    fn a_small_cost_is_right_in_proportion(below in 1_u64 << 24..1 << 62) {
        let exact = -(-(below as f64) / 18_446_744_073_709_551_616.0).ln_1p() / 2_f64.ln();
        let found = log::cost(0_u64.wrapping_sub(below)) as f64 / (1_u64 << log::FRACTION_BITS) as f64;
        prop_assert!((found / exact - 1.0).abs() < 1.0 / 4_096.0, "{} of {}", found, exact);
    }

    #[test]
    fn a_bound_leaves_room_for_all(
        numerator in 1..1_000_u32, denominator in 1..1_000_u32, total in 1..1_000_000_u64, nodes in 1..1_000_u64,
    ) {
        match Bound::new(numerator, denominator) {
            None => prop_assert!(numerator < denominator),
            Some(bound) => {
                let capacity = bound.capacity(total, nodes);
                prop_assert!(capacity * nodes >= total);
                // The least integer that is not below c x total / nodes.
                let (parts, whole) = (total * u64::from(numerator), nodes * u64::from(denominator));
                prop_assert!(capacity * whole >= parts && (capacity - 1) * whole < parts);
                prop_assert_eq!(bound.share(total, 1, nodes), capacity);
            }
        }
    }
}

/// The ends of the scale, and every entry of the table.
#[test]
fn the_logarithm_is_exact_at_powers_of_two() {
    for bit in 0..64 {
        assert_eq!(log::log2(1 << bit), bit << log::FRACTION_BITS);
    }
    assert_eq!(
        (log::log2(0), log::cost(0), log::cost(1)),
        (0, 1 << 63, 1 << 63)
    );
    assert!(log::cost(u64::MAX) >= 1);
    for (at, entry) in log::TABLE.iter().enumerate() {
        let exact = (1.0 + at as f64 / 2_048.0).log2() * (1_u64 << log::FRACTION_BITS) as f64;
        assert!((*entry as f64 - exact).abs() <= 64.0, "entry {at}");
    }
    assert!(log::TABLE.windows(2).all(|pair| pair[0] < pair[1]));
}

/// 200,000 keys: shares by weight within four deviations of chance, for owners and, in one zone,
/// for who comes second once the owner is gone.
#[test]
fn shares_follow_weights() {
    let specs = [(0, 0, 4), (1, 0, 4), (2, 0, 1), (3, 0, 1)];
    let all = rendezvous(2, &specs);
    let mut owners = BTreeMap::<u16, f64>::new();
    let mut behind_first = BTreeMap::<u16, f64>::new();
    let keys = 200_000_u32;
    for key in 0..keys {
        let list = all.choose(&key.to_le_bytes()).list;
        *owners.entry(list[0].0).or_default() += 1.0;
        if list[0] == Handle(0) {
            *behind_first.entry(list[1].0).or_default() += 1.0;
        }
    }
    let near = |found: f64, of: f64, share: f64| {
        let deviation = (of * share * (1.0 - share)).sqrt();
        assert!(
            (found - of * share).abs() < 4.0 * deviation,
            "{found} of {of}, not {share}"
        );
    };
    for (node, share) in [(0, 0.4), (1, 0.4), (2, 0.1), (3, 0.1)] {
        near(owners[&node], keys.into(), share);
    }
    for (node, share) in [(1, 4.0 / 6.0), (2, 1.0 / 6.0), (3, 1.0 / 6.0)] {
        near(behind_first[&node], owners[&0], share);
    }
}

#[test]
fn a_join_or_leave_moves_its_own_keys_only() {
    let specs: Vec<Spec> = (0..11).map(|at| (at, (at % 3) as u8, 1)).collect();
    let (ten, eleven) = (rendezvous(3, &specs[..10]), rendezvous(3, &specs));
    let mut moved = 0_u32;
    for key in 0..20_000_u32 {
        let (before, after) = (
            ten.choose(&key.to_le_bytes()),
            eleven.choose(&key.to_le_bytes()),
        );
        if before != after {
            assert!(after.list.contains(&Handle(10)));
            let stay = |handle: &&Handle| before.list.contains(handle);
            assert_eq!(after.list.iter().filter(stay).count(), 2);
        }
        moved += u32::from(before.list[0] != after.list[0]);
    }
    // Owners: 1/11 of the keys, within four deviations.
    assert!(moved.abs_diff(20_000 / 11) < 4 * 41, "{moved} owners moved");
}

#[test]
fn what_makes_no_rendezvous_is_named() {
    let new = |specs: &[Spec]| Rendezvous::new(HashName::Xxh3_64, 0, 2, &nodes(specs)).map(drop);
    assert_eq!(new(&[]), Err(TokensError::NoEligibleNode));
    assert_eq!(new(&[(0, 0, 0)]), Err(TokensError::NoEligibleNode));
    assert_eq!(
        new(&[(0, 0, 1), (0, 1, 1)]),
        Err(TokensError::Handle { handle: 0 })
    );
    let mut twins = nodes(&[(0, 0, 1), (1, 0, 1)]);
    twins[1].node_id = twins[0].node_id.clone();
    let twice = Rendezvous::new(HashName::Xxh3_64, 0, 2, &twins).map(drop);
    assert!(matches!(twice, Err(TokensError::Twice { .. })));
}

#[test]
fn a_full_node_passes_to_the_next_of_its_list() {
    let list = [0, 1, 2].map(Handle);
    let choose = |loads: [u64; 3], capacity: [u64; 3]| {
        bounded::choose(&list, |h| loads[h.index()], |h| capacity[h.index()])
    };
    let placed = |handle, over| {
        let handle = Handle(handle);
        Some(Placed { handle, over })
    };
    assert_eq!(choose([0, 0, 0], [1, 1, 1]), placed(0, false));
    assert_eq!(choose([1, 0, 0], [1, 1, 1]), placed(1, false));
    assert_eq!(choose([5, 1, 0], [5, 1, 1]), placed(2, false));
    // Everybody is full: the least part over its capacity, and it is said.
    assert_eq!(choose([10, 3, 9], [5, 2, 3]), placed(1, true));
    assert_eq!(choose([2, 2, 2], [1, 1, 1]), placed(0, true));
    assert_eq!(choose([0, 0, 7], [0, 0, 7]), placed(2, true));
    assert_eq!(bounded::choose(&[], |_| 0, |_| 1), None);

    assert_eq!((Bound::new(4, 5), Bound::new(1, 0)), (None, None));
    let bound = Bound::new(5, 4).unwrap();
    assert_eq!((bound.capacity(100, 10), bound.capacity(101, 10)), (13, 13));
    assert_eq!((bound.capacity(0, 10), bound.capacity(5, 0)), (0, 0));
    assert_eq!(bound.share(100, 3, 10), 38);
    assert_eq!(
        Bound::new(u32::MAX, 1).unwrap().capacity(u64::MAX, 1),
        u64::MAX
    );
}

/// Placing one by one with c = 5/4 among lists of all nodes, nobody ends above the bound.
#[test]
fn bounded_load_keeps_its_bound() {
    let specs: Vec<Spec> = (0..7).map(|at| (at, 0, 1)).collect();
    let all = rendezvous(7, &specs);
    let bound = Bound::new(5, 4).unwrap();
    let mut loads = [0_u64; 7];
    for total in 1..=5_000_u64 {
        let list = all.choose(&total.to_le_bytes()).list;
        let capacity = bound.capacity(total, 7);
        let placed = bounded::choose(&list, |h| loads[h.index()], |_| capacity).unwrap();
        assert!(!placed.over);
        loads[placed.handle.index()] += 1;
        assert!(loads[placed.handle.index()] <= capacity);
    }
    assert_eq!(loads.iter().sum::<u64>(), 5_000);
}
