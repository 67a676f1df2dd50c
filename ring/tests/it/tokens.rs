//! The `tokens` layout against the walk as it is told, and its edges.

use std::num::NonZeroU32;

use annulus_ring::{
    Handle, HashName, NodeId, RangeTable, Token, TokenNode, TokenTable, TokensError, Weight, Zone,
    diff::diff,
    tokens::{OverrideError, token, token_bytes, tokens},
};
use proptest::prelude::*;

fn node(at: u16, zone: u8, weight: u32, tokens: &[u64]) -> TokenNode {
    TokenNode {
        node_id: NodeId::new(format!("n{at:05}")).unwrap(),
        handle: Handle(at),
        zone: Zone::new(format!("z{zone}")).unwrap(),
        weight: Weight::new(weight).unwrap(),
        tokens: tokens.iter().copied().map(Token).collect(),
    }
}

/// A node with `per_weight` x weight tokens hashed from its name.
fn hashed(at: u16, zone: u8, weight: u32, per_weight: u32) -> TokenNode {
    let mut node = node(at, zone, weight, &[]);
    let per_weight = NonZeroU32::new(per_weight).unwrap();
    node.tokens = tokens(HashName::Xxh3_64, 0, &node.node_id, per_weight, node.weight).unwrap();
    node
}

fn handles(list: &[Handle]) -> Vec<u16> {
    list.iter().map(|handle| handle.0).collect()
}

/// The walk as design section 2 tells it, for one hash, anew each time.
fn walk(rf: usize, nodes: &[TokenNode], hash: u64) -> Vec<Handle> {
    let eligible: Vec<_> = nodes.iter().filter(|node| node.weight.get() > 0).collect();
    let zones: std::collections::BTreeSet<_> = eligible.iter().map(|node| &node.zone).collect();
    let mut points = Vec::new();
    for node in &eligible {
        for (index, token) in node.tokens.iter().enumerate() {
            points.push((*token, &node.node_id, index, *node));
        }
    }
    points.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    let start = points
        .iter()
        .position(|point| point.0.0 >= hash)
        .unwrap_or(0);
    let mut list: Vec<&TokenNode> = Vec::new();
    let mut cap = rf.div_ceil(zones.len());
    while list.len() < rf.min(eligible.len()) {
        for step in 0..points.len() {
            let node = points[(start + step) % points.len()].3;
            let of_zone = list.iter().filter(|taken| taken.zone == node.zone).count();
            let known = list.iter().any(|taken| taken.handle == node.handle);
            if list.len() < rf && !known && of_zone < cap {
                list.push(node);
            }
        }
        cap += 1;
    }
    list.iter().map(|node| node.handle).collect()
}

/// Tokens of which many are equal, neighbours, or at the ends of the circle.
fn any_token() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..6_u64,
        (0..6_u64).prop_map(|at| u64::MAX - at),
        1_000..1_010_u64,
        any::<u64>()
    ]
}

fn ring() -> impl Strategy<Value = Vec<TokenNode>> {
    let one = (0..5_u8, 0..3_u32, prop::collection::vec(any_token(), 1..5));
    prop::collection::vec(one, 1..12).prop_map(|specs| {
        (0..)
            .zip(specs)
            .map(|(at, (zone, weight, tokens))| node(at, zone, weight, &tokens))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Weights, zones, ties, wrap: every range and every edge of it answers as the told walk does.
    #[test]
    fn every_list_is_the_walks(nodes in ring(), rf in 1..=7_u8, extra: u64) {
        match TokenTable::place(rf, &nodes) {
            Err(error) => {
                prop_assert_eq!(error, TokensError::NoEligibleNode);
                prop_assert!(nodes.iter().all(|node| node.weight.get() == 0));
            }
            Ok(table) => {
                let edges = table.ranges().tokens().iter().flat_map(|token| {
                    [token.0.wrapping_sub(1), token.0, token.0.wrapping_add(1)]
                });
                for hash in edges.chain([0, 1, u64::MAX, extra]) {
                    let expected = walk(rf.into(), &nodes, hash);
                    prop_assert_eq!(table.lookup(hash).0, &expected, "hash {}", hash);
                }
            }
        }
    }

    /// PLACE-PURE: the order of the nodes has no part in it.
    #[test]
    fn the_order_of_nodes_has_no_part(nodes in ring(), rf in 1..=4_u8, turn: usize) {
        let mut turned = nodes.clone();
        turned.reverse();
        let length = turned.len();
        turned.rotate_left(turn % length);
        prop_assert_eq!(TokenTable::place(rf, &turned), TokenTable::place(rf, &nodes));
    }

    /// What is reported is what a look at every list finds.
    #[test]
    fn shortfalls_are_reported(nodes in ring(), rf in 1..=7_u8) {
        prop_assume!(nodes.iter().any(|node| node.weight.get() > 0));
        let table = TokenTable::place(rf, &nodes).unwrap();
        let zones_of = |list: &[Handle]| {
            let zones = list.iter().map(|handle| &nodes[handle.index()].zone);
            zones.collect::<std::collections::BTreeSet<_>>().len()
        };
        let eligible: Vec<_> = nodes.iter().filter(|node| node.weight.get() > 0).collect();
        let all: Vec<_> = eligible.iter().map(|node| node.handle).collect();
        let best = zones_of(&all).min(rf.into());
        let (mut short, mut unspread) = (0, 0);
        for (range, list) in table.ranges().iter() {
            let (missing, apart) = (usize::from(rf) - list.len(), best - zones_of(list));
            prop_assert_eq!(list.len(), eligible.len().min(rf.into()));
            short += u32::from(missing > 0);
            unspread += u32::from(apart > 0);
            let shortage = table.lookup(range.end.0).1;
            prop_assert_eq!((shortage.replicas, shortage.zones), (missing as u8, apart as u8));
            prop_assert_eq!(shortage.is_none(), missing == 0 && apart == 0);
        }
        let found = table.shortfall();
        prop_assert_eq!((found.short, found.unspread), (short, unspread));
    }

    /// MOVE-MINIMAL: with at least as many zones as replicas, or all in one zone, a join changes
    /// no list but by putting the new node in.
    #[test]
    fn only_the_new_node_gains(nodes in ring(), rf in 1..=5_u8, one_zone: bool) {
        let mut nodes = nodes;
        if one_zone {
            nodes.iter_mut().for_each(|node| node.zone = Zone::new("z0").unwrap());
        }
        nodes.iter_mut().for_each(|node| node.weight = Weight::new(1).unwrap());
        let new = nodes.pop().unwrap();
        let zones = nodes.iter().map(|node| &node.zone);
        let zones = zones.collect::<std::collections::BTreeSet<_>>().len();
        prop_assume!(one_zone && zones == 1 || zones >= usize::from(rf));
        let before = TokenTable::place(rf, &nodes).unwrap();
        let gone = nodes.clone();
        nodes.push(new.clone());
        let after = TokenTable::place(rf, &nodes).unwrap();
        for change in diff(before.ranges(), after.ranges()) {
            prop_assert_eq!(change.gainers().into_vec(), [new.handle]);
            prop_assert!(change.losers().len() <= 1);
        }
        // And when it leaves, the map is the one before.
        prop_assert_eq!(TokenTable::place(rf, &gone).unwrap(), before);
    }
}

/// Hand-made tokens 0, 1 and the largest: every hash belongs to the first token at or after it.
#[test]
fn tokens_at_the_edges_of_the_circle() {
    let nodes = [
        node(0, 0, 1, &[0]),
        node(1, 0, 1, &[1]),
        node(2, 0, 1, &[u64::MAX]),
    ];
    let table = TokenTable::place(2, &nodes).unwrap();
    for (hash, expected) in [
        (0, [0, 1]),
        (1, [1, 2]),
        (2, [2, 0]),
        (u64::MAX - 1, [2, 0]),
        (u64::MAX, [2, 0]),
    ] {
        assert_eq!(handles(table.lookup(hash).0), expected, "hash {hash}");
    }
    let ranges: Vec<_> = (0..3).map(|at| table.ranges().range(at)).collect();
    assert_eq!(ranges[0].len() + ranges[1].len() + ranges[2].len(), 1 << 64);
    assert_eq!((ranges[0].len(), ranges[1].len()), (1, 1));
}

#[test]
fn one_token_holds_the_whole_circle() {
    for token in [0, 1, 77, u64::MAX] {
        let table = TokenTable::place(3, &[node(4, 0, 1, &[token])]).unwrap();
        for hash in [0, 1, 76, 77, 78, u64::MAX] {
            let (list, shortage) = table.lookup(hash);
            assert_eq!(
                (handles(list), shortage.replicas, shortage.zones),
                (vec![4], 2, 0)
            );
        }
        assert_eq!(table.ranges().range(0).len(), 1 << 64);
    }
}

/// Equal tokens belong to the first id, whatever the handles; the later ones close no range but
/// stand behind it in lists.
#[test]
fn equal_tokens_go_by_node_id() {
    let (mut a, mut b) = (node(9, 0, 1, &[5, 5]), node(2, 0, 1, &[5, 9]));
    a.node_id = NodeId::new("a").unwrap();
    b.node_id = NodeId::new("b").unwrap();
    for nodes in [[a.clone(), b.clone()], [b, a]] {
        let table = TokenTable::place(2, &nodes).unwrap();
        assert_eq!(table.points().len(), 4);
        assert_eq!(table.ranges().tokens(), [Token(5), Token(9)]);
        assert_eq!(handles(table.lookup(5).0), [9, 2]);
        assert_eq!(handles(table.lookup(6).0), [2, 9]);
    }
}

/// Zones of 1, 1 and 4 nodes; more replicas than zones, and than nodes.
#[test]
fn uneven_zones_and_large_factors() {
    let sizes = [(0, 1), (1, 2), (2, 3), (3, 3), (4, 3), (5, 3)];
    let nodes: Vec<_> = sizes.map(|(at, zone)| hashed(at, zone, 1, 64)).to_vec();
    let at_rf = |rf| {
        let table = TokenTable::place(rf, &nodes).unwrap();
        let found = table.shortfall();
        let length = table.ranges().list(0).len();
        (length, found.short > 0, found.unspread > 0)
    };
    assert_eq!(at_rf(3), (3, false, false));
    // A cap of two fills four places with one, one and two; of five only with three.
    assert_eq!(at_rf(4), (4, false, false));
    assert_eq!(at_rf(5), (5, false, false));
    assert_eq!(at_rf(6), (6, false, false));
    assert_eq!(at_rf(7), (6, true, false));
    // rf 4 over three zones of two: two of each of the first two zones fill some lists.
    let nodes: Vec<_> = (0..6).map(|at| hashed(at, at as u8 / 2, 1, 64)).collect();
    let table = TokenTable::place(4, &nodes).unwrap();
    assert!(table.shortfall().unspread > 0 && table.shortfall().short == 0);
}

/// 3,000 nodes, and one zone has a single node of a single token, from which
/// a walk told anew at each token would go all the way round.
#[test]
fn three_thousand_nodes_are_placed() {
    let mut nodes: Vec<_> = (0..3_000)
        .map(|at| hashed(at, 1 + (at % 2) as u8, 1, 32))
        .collect();
    nodes[7] = node(7, 0, 1, &[1 << 63]);
    for rf in [3, 5] {
        let table = TokenTable::place(rf, &nodes).unwrap();
        assert_eq!(table.points().len(), 2_999 * 32 + 1);
        assert_eq!(table.shortfall(), Default::default());
        for hash in (0..8).map(|at| at << 61) {
            assert_eq!(table.lookup(hash).0, walk(rf.into(), &nodes, hash));
        }
        assert!(
            table
                .ranges()
                .iter()
                .all(|(_, list)| list.contains(&Handle(7)))
        );
    }
}

#[test]
fn what_makes_no_table_is_named() {
    let place = |nodes: &[TokenNode]| TokenTable::place(3, nodes).map(drop);
    assert_eq!(place(&[]), Err(TokensError::NoEligibleNode));
    assert_eq!(
        place(&[node(0, 0, 0, &[1])]),
        Err(TokensError::NoEligibleNode)
    );
    let a = node(0, 0, 1, &[1]);
    assert_eq!(
        place(&[a.clone(), node(0, 0, 1, &[2])]),
        Err(TokensError::Handle { handle: 0 })
    );
    assert_eq!(
        place(&[node(u16::MAX, 0, 1, &[2])]),
        Err(TokensError::Handle { handle: u16::MAX })
    );
    let mut twin = node(1, 0, 1, &[2]);
    twin.node_id = a.node_id.clone();
    let twice = TokensError::Twice {
        node: a.node_id.clone(),
    };
    assert_eq!(place(&[a, twin]), Err(twice));
    let bare = node(3, 0, 2, &[]);
    assert!(matches!(place(&[bare]), Err(TokensError::NoTokens { .. })));
}

/// The bytes of a token are part of the protocol.
#[test]
fn a_token_is_hashed_from_length_id_and_index() {
    let id = NodeId::new("n1").unwrap();
    let bytes = [2, b'n', b'1', 0x39, 0x30, 0, 0];
    assert_eq!(token_bytes(&id, 12_345).as_slice(), bytes);
    for hash in HashName::ALL {
        assert_eq!(token(hash, 9, &id, 12_345), Token(hash.hash(9, &bytes)));
    }
    let most = NonZeroU32::new(5).unwrap();
    let weight = Weight::new(1_000_000).unwrap();
    assert_eq!(
        tokens(HashName::Xxh3_64, 0, &id, most, weight),
        Err(TokensError::TooMany { found: 5_000_000 })
    );
}

/// A hand-over changes the order of one list; the walk's own order ends the override.
#[test]
fn a_hand_over_is_kept_as_an_override() {
    let nodes: Vec<_> = (0..6).map(|at| hashed(at, at as u8 % 3, 1, 8)).collect();
    let mut table = TokenTable::place(3, &nodes).unwrap();
    let untouched = table.clone();
    let token = table.ranges().tokens()[3];
    let walked = table.ranges().list(3).to_vec();
    let mut turned = walked.clone();
    turned.rotate_left(1);
    table.reorder(token, &turned).unwrap();
    assert_eq!(table.lookup(token.0).0, turned);
    assert_eq!(
        (table.overrides().len(), table.overrides()[0].token),
        (1, token)
    );
    let changes = diff(untouched.ranges(), table.ranges());
    assert_eq!(changes.len(), 1);
    assert!(changes[0].order_only() && changes[0].owner_changes());

    let wrong = Err(OverrideError::OtherMembers { token });
    assert_eq!(table.reorder(token, &turned[..2]), wrong);
    assert_eq!(
        table.reorder(token, &[turned[0], turned[1], turned[1]]),
        wrong
    );
    let token_between = Token(token.0 - 1);
    assert_eq!(
        table.reorder(token_between, &turned),
        Err(OverrideError::NoSuchToken {
            token: token_between
        })
    );

    // The same members placed anew keep it; without one of them its list is another.
    let mut again = TokenTable::place(3, &nodes).unwrap();
    assert_eq!(again.keep_overrides(&table), 0);
    assert_eq!(again, table);
    let fewer: Vec<_> = nodes
        .iter()
        .filter(|node| node.handle != walked[0])
        .cloned()
        .collect();
    let mut fewer = TokenTable::place(3, &fewer).unwrap();
    assert_eq!(fewer.keep_overrides(&table), 1);

    table.reorder(token, &walked).unwrap();
    assert_eq!(table, untouched);
}

/// A range table may be made by hand, and says what is wrong with it.
#[test]
fn range_tables_are_checked() {
    let list = |handles: &[u16]| handles.iter().copied().map(Handle).collect::<Vec<_>>();
    let make = |ranges: &[(u64, &[u16])]| {
        let ranges = ranges
            .iter()
            .map(|(token, handles)| (Token(*token), list(handles)));
        RangeTable::new(2, ranges).map(|table| table.len())
    };
    assert_eq!(make(&[(1, &[0]), (2, &[])]), Ok(2));
    for bad in [
        &[(2, &[0_u16][..]), (2, &[1])][..],
        &[(3, &[0]), (2, &[1])],
        &[(1, &[0, 1, 2])],
        &[(1, &[0, 0])],
        &[(1, &[u16::MAX])],
    ] {
        assert!(make(bad).is_err(), "{bad:?}");
    }
    assert_eq!(RangeTable::empty(3).find(7), None);
    assert!(RangeTable::empty(3).lookup(7).is_empty());
}
