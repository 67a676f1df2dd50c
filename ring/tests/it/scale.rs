//! The assigner on a ring of the size it is meant for.

// Helpers of tests are no test functions to clippy.
use crate::common::*;

#[test]
fn a_ring_of_120_nodes_is_balanced_and_grows_by_the_least() {
    let specs = equal(3, 40);
    let before = founded(14, 3, &specs);
    let fair = (1 << 14) * 3 / 120;
    assert!(
        replicas(&before)
            .values()
            .all(|count| count.abs_diff(fair) <= 1)
    );
    let fair = (1 << 14) / 120;
    assert!(
        owners(&before)
            .values()
            .all(|count| count.abs_diff(fair) <= 1)
    );

    let mut grown = specs.clone();
    grown.push((120, 0, 1));
    let after = assign(&before, &grown);
    assert_eq!(
        moved(&before, &after),
        (1 << 14) / 41,
        "its share of its zone"
    );
    assert_eq!(owners(&before), owners(&after), "a join hands nothing over");
}

#[test]
fn replicas_of_one_node_are_scattered_over_all_others() {
    // Were they not, a lost node's load would fall on a few, and a joiner might find only
    // owners where it needs others.
    let table = founded(10, 2, &equal(1, 8));
    let mut pairs = std::collections::BTreeMap::new();
    for slot in table.slots() {
        *pairs
            .entry((table.list(slot)[0], table.list(slot)[1]))
            .or_insert(0_u32) += 1;
    }
    let (pairs, fair) = (pairs, 1_024 / (8 * 7));
    assert_eq!(pairs.len(), 8 * 7);
    assert!(
        pairs
            .values()
            .all(|count| (fair / 3..fair * 3).contains(count)),
        "{pairs:?}"
    );
}
