//! Ranges, sets of ranges and what lies between two tables, against membership of single hashes.

use annulus_ring::{
    Handle, RangeSet, RangeTable, Slot, SlotTable, Token, TokenRange,
    diff::{ApplyError, apply, diff},
};
use proptest::prelude::*;

/// Points near each other and near both ends of the circle, so that ranges touch and overlap.
fn point() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..12_u64).prop_map(|at| at.wrapping_sub(4)),
        2 => (0..12_u64).prop_map(|at| (1 << 40) + at),
        1 => any::<u64>(),
    ]
}

fn range() -> impl Strategy<Value = TokenRange> {
    (point(), point()).prop_map(|(start, end)| TokenRange::new(Token(start), Token(end)))
}

/// Every hash at which an answer may change, and its neighbours.
fn probes(edges: impl IntoIterator<Item = Token>) -> Vec<u64> {
    edges
        .into_iter()
        .flat_map(|token| [token.0.wrapping_sub(1), token.0, token.0.wrapping_add(1)])
        .chain([0, 1, 1 << 63, u64::MAX])
        .collect()
}

fn edges(ranges: &[TokenRange]) -> Vec<Token> {
    ranges
        .iter()
        .flat_map(|range| [range.start, range.end])
        .collect()
}

fn table() -> impl Strategy<Value = RangeTable> {
    let handles = Just((0..4_u16).map(Handle).collect::<Vec<_>>()).prop_shuffle();
    let list = (handles, 0..=3_usize).prop_map(|(mut handles, length)| {
        handles.truncate(length);
        handles
    });
    prop::collection::btree_map(point().prop_map(Token), list, 0..8)
        .prop_map(|ranges| RangeTable::new(3, ranges).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn an_intersection_holds_what_both_hold(a in range(), b in range()) {
        let both = a.intersect(b);
        for hash in probes(edges(&[a, b])) {
            let found = both.iter().filter(|range| range.contains(hash)).count();
            prop_assert_eq!(found, usize::from(a.contains(hash) && b.contains(hash)), "{}", hash);
        }
        let length: u128 = both.iter().map(|range| range.len()).sum();
        let other: u128 = b.intersect(a).iter().map(|range| range.len()).sum();
        prop_assert_eq!(length, other);
        if let [first, second] = both[..] {
            prop_assert!(first.end != second.start && second.end != first.start);
        }
    }

    #[test]
    fn a_split_range_joins_again(a in range(), at in point()) {
        match a.split(Token(at)) {
            Some((before, after)) => {
                prop_assert_eq!(before.len() + after.len(), a.len());
                for hash in probes([a.start, a.end, Token(at)]) {
                    let found = u8::from(before.contains(hash)) + u8::from(after.contains(hash));
                    prop_assert_eq!(found, u8::from(a.contains(hash)));
                }
                let joined = before.join(after).unwrap();
                prop_assert_eq!(joined, a);
            }
            None => prop_assert!(at == a.end.0 || !a.contains(at)),
        }
    }

    #[test]
    fn ranges_join_only_without_overlap(a in range(), b in range()) {
        let apart = a.intersect(b).is_empty();
        prop_assert_eq!(a.join(b).is_some(), a.end == b.start && apart);
    }

    #[test]
    fn sets_hold_what_their_ranges_hold(
        a in prop::collection::vec(range(), 0..5),
        b in prop::collection::vec(range(), 0..5),
    ) {
        let (one, two): (RangeSet, RangeSet) = (
            a.iter().copied().collect(),
            b.iter().copied().collect(),
        );
        let held = |ranges: &[TokenRange], hash| ranges.iter().any(|range| range.contains(hash));
        for hash in probes(edges(&a).into_iter().chain(edges(&b))) {
            let (in_a, in_b) = (held(&a, hash), held(&b, hash));
            prop_assert_eq!(one.contains(hash), in_a);
            prop_assert_eq!(one.union(&two).contains(hash), in_a || in_b);
            prop_assert_eq!(one.intersection(&two).contains(hash), in_a && in_b);
            prop_assert_eq!(one.difference(&two).contains(hash), in_a && !in_b);
            prop_assert_eq!(one.complement().contains(hash), !in_a);
        }
        // Equal sets are equal values, in the fewest ranges.
        let ranges = one.ranges();
        prop_assert_eq!(&ranges.iter().copied().collect::<RangeSet>(), &one);
        prop_assert_eq!(ranges.iter().map(|range| range.len()).sum::<u128>(), one.len());
        for (at, range) in ranges.iter().enumerate() {
            let next = ranges[(at + 1) % ranges.len()];
            prop_assert!(ranges.len() == 1 || range.end != next.start);
        }
        prop_assert_eq!(one.union(&one.complement()), RangeSet::whole());
        prop_assert_eq!(one.len() + one.complement().len(), 1 << 64);
        prop_assert_eq!(one.is_empty(), ranges.is_empty());
    }

    /// Old list, new list, gainers and losers at every hash, as a look at both tables finds them.
    #[test]
    fn a_diff_says_what_differs_at_every_hash(old in table(), new in table()) {
        let changes = diff(&old, &new);
        let tokens = old.tokens().iter().chain(new.tokens()).copied();
        for hash in probes(tokens) {
            let (before, after) = (old.lookup(hash), new.lookup(hash));
            let found: Vec<_> = changes.iter().filter(|c| c.range.contains(hash)).collect();
            if before == after {
                prop_assert!(found.is_empty());
                continue;
            }
            prop_assert_eq!(found.len(), 1);
            let change = found[0];
            prop_assert_eq!(change.old.as_slice(), before);
            prop_assert_eq!(change.new.as_slice(), after);
            let mut held = before.to_vec();
            held.retain(|handle| !change.losers().contains(handle));
            held.extend(change.gainers());
            held.sort_unstable();
            let mut expected = after.to_vec();
            expected.sort_unstable();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(change.order_only(), {
                let mut before = before.to_vec();
                before.sort_unstable();
                before == expected
            });
            prop_assert_eq!(change.owner_changes(), before.first() != after.first());
        }
        // Clockwise by end, and no two neighbours could be one.
        for pair in changes.windows(2) {
            prop_assert!(pair[0].range.end < pair[1].range.end);
        }
        for (at, change) in changes.iter().enumerate() {
            let next = &changes[(at + 1) % changes.len()];
            let alike = change.old == next.old && change.new == next.new;
            prop_assert!(changes.len() == 1 || !alike || change.range.end != next.range.start);
        }
    }

    /// The diff applied to the old gives the new, and backwards.
    #[test]
    fn a_diff_applied_gives_the_other_table(old in table(), new in table()) {
        let changes = diff(&old, &new);
        let made = apply(&old, 3, &changes).unwrap();
        prop_assert_eq!(diff(&made, &new), vec![]);
        prop_assert_eq!(&made, &made.joined());
        let back: Vec<_> = changes
            .into_iter()
            .map(|mut change| {
                std::mem::swap(&mut change.old, &mut change.new);
                change
            })
            .collect();
        prop_assert_eq!(diff(&apply(&new, 3, &back).unwrap(), &old), vec![]);
    }

    #[test]
    fn joining_equal_neighbours_changes_no_answer(table in table()) {
        let joined = table.joined();
        prop_assert!(diff(&table, &joined).is_empty());
        for at in 1..joined.len() {
            prop_assert_ne!(joined.list(at - 1), joined.list(at));
        }
    }
}

/// A slot table that doubles its k keeps every list, whatever layout it is compared with.
#[test]
fn slots_and_tokens_are_compared_by_ranges() {
    let mut slots = SlotTable::empty(1, 2);
    slots.set(Slot(0), &[Handle(0), Handle(1)]);
    slots.set(Slot(1), &[Handle(1), Handle(0)]);
    let slots = RangeTable::from(&slots);
    let half = (1 << 63) - 1;
    assert_eq!(slots.tokens(), [Token(half), Token(u64::MAX)]);
    let list = [Handle(1), Handle(0)];
    let tokens = RangeTable::new(2, [(Token(99), list)]).unwrap();
    let changes = diff(&slots, &tokens);
    assert_eq!(changes.len(), 1);
    assert_eq!(
        changes[0].range,
        TokenRange::new(Token(u64::MAX), Token(half))
    );
    assert!(changes[0].order_only());
}

#[test]
fn changes_that_do_not_fit_are_refused() {
    let list = |handle: u16| [Handle(handle)];
    let old = RangeTable::new(1, [(Token(10), list(0)), (Token(20), list(1))]).unwrap();
    let new = RangeTable::new(1, [(Token(10), list(2)), (Token(20), list(3))]).unwrap();
    let mut changes = diff(&old, &new);
    assert_eq!(changes.len(), 2);
    let base = ApplyError::OtherBase {
        range: TokenRange::new(Token(20), Token(10)),
    };
    assert_eq!(apply(&new, 1, &changes), Err(base));
    changes[1].range.start = Token(9);
    let overlap = ApplyError::Overlap {
        range: TokenRange::new(Token(9), Token(20)),
    };
    assert_eq!(apply(&old, 1, &changes), Err(overlap));
    assert!(matches!(
        apply(&old, 0x7, &diff(&old, &new)),
        Ok(table) if table.rf() == 7
    ));
}
