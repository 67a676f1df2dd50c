//! The compiled tables answer as a naive scan does, however they were made.

// Helpers of tests are no test functions to clippy.
use std::sync::Arc;

use crate::common::*;
use annulus_ring::{
    Handle, List, Lookup, Replication, Slot, SlotChange, Snapshot, SnapshotError, Step, Token,
    TokenIndex, TokenRange, Transition, TransitionId, lookup::IndexError,
};
use proptest::{prelude::*, sample::Index};

/// One thing that differs from one epoch to the next.
#[derive(Clone, Debug)]
enum Edit {
    List(Index, Index),
    Begin(Vec<(Index, Index)>, u8),
    Step(u8),
    End,
    Join,
    Leave,
    Down(Index),
    /// Another number of replicas: every slot changes.
    Resize(Index, u8, u8),
    Reseed,
}

fn edit() -> impl Strategy<Value = Edit> {
    let changes = prop::collection::vec(any::<(Index, Index)>(), 1..6);
    prop_oneof![
        4 => any::<(Index, Index)>().prop_map(|(slot, list)| Edit::List(slot, list)),
        2 => (changes, 1..=7_u8).prop_map(|(changes, step)| Edit::Begin(changes, step)),
        2 => (1..=7_u8).prop_map(Edit::Step),
        1 => Just(Edit::End),
        1 => Just(Edit::Join),
        1 => Just(Edit::Leave),
        1 => any::<Index>().prop_map(Edit::Down),
        2 => (any::<Index>(), 1..=7_u8, 1..=7_u8).prop_map(|(list, rf, step)| Edit::Resize(list, rf, step)),
        1 => Just(Edit::Reseed),
    ]
}

/// A list of members, of 1 to rf, that the index chooses.
fn list_of(snapshot: &Snapshot, index: Index) -> List {
    list_up_to(snapshot, snapshot.layout.slots.rf(), index)
}

fn list_up_to(snapshot: &Snapshot, rf: u8, index: Index) -> List {
    let (members, rf) = (snapshot.members.len(), usize::from(rf));
    let draw = index.index(members * rf);
    let (first, length) = (draw % members, 1 + draw / members);
    let at = |at: usize| snapshot.members[(first + at) % members].handle;
    (0..length.min(members)).map(at).collect()
}

fn edited(before: &Snapshot, edit: &Edit) -> Snapshot {
    let mut new = before.clone();
    new.epoch = before.epoch.next();
    let slot = |index: &Index| Slot(index.index(before.layout.slots.slot_count()) as u32);
    match edit {
        Edit::List(at, list) => new.layout.slots.set(slot(at), &list_of(before, *list)),
        Edit::Begin(changes, step) => {
            let change = |(at, list): &(Index, Index)| SlotChange {
                slot: slot(at),
                to: list_of(before, *list),
            };
            let mut target: Vec<_> = changes.iter().map(change).collect();
            target.sort_by_key(|change| change.slot);
            target.dedup_by_key(|change| change.slot);
            new.transition = Some(Transition {
                replication: None,
                id: TransitionId(3),
                step: Step::from_number(*step).unwrap(),
                target,
            });
        }
        Edit::Step(step) => {
            if let Some(transition) = &mut new.transition {
                transition.step = Step::from_number(*step).unwrap();
            }
        }
        Edit::End => {
            if let Some(transition) = new.transition.take() {
                if let Some(replication) = transition.replication {
                    new.layout.replication = replication;
                    new.layout.slots = new.layout.slots.resized(replication.rf);
                }
                annulus_ring::placement::apply(&mut new.layout.slots, &transition.target);
            }
        }
        Edit::Join => {
            let free = (0..)
                .find(|free| before.members.iter().all(|member| member.handle.0 != *free))
                .unwrap();
            new.members.push(member((free, 0, 1)));
            new.members.sort_by(|a, b| a.node_id.cmp(&b.node_id));
        }
        Edit::Leave => drop(new.members.pop()),
        Edit::Down(at) => {
            let at = at.index(new.members.len());
            new.members[at].availability = annulus_ring::Availability::Down;
        }
        Edit::Reseed => new.layout.seed += 1,
        Edit::Resize(list, rf, step) => {
            let to = list_up_to(before, *rf, *list);
            let change = |slot| SlotChange {
                slot,
                to: to.clone(),
            };
            new.transition = Some(Transition {
                replication: Some(Replication {
                    rf: *rf,
                    w: 1,
                    r: *rf,
                }),
                id: TransitionId(4),
                step: Step::from_number(*step).unwrap(),
                target: before.layout.slots.slots().map(change).collect(),
            });
        }
    }
    new
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_updated_table_equals_a_compiled_one(
        nodes in 2..=9_u16,
        rf in 1..=5_u8,
        bits in 1..=8_u8,
        edits in prop::collection::vec(edit(), 1..10),
    ) {
        let specs = equal(2, nodes);
        let mut lookup = lookup(founded(bits, rf, &specs), &specs);
        for edit in edits {
            let next = Arc::new(edited(lookup.snapshot(), &edit));
            // The last member cannot leave while it is listed: both ways refuse that alike.
            match (lookup.updated(Arc::clone(&next)), Lookup::compile(next)) {
                (Ok(updated), Ok(compiled)) => {
                    prop_assert!(updated.same(&compiled), "{:?}", edit);
                    lookup = updated;
                }
                (updated, compiled) => {
                    prop_assert_eq!(updated.map(drop), compiled.map(drop), "{:?}", edit);
                }
            }
            for slot in lookup.snapshot().layout.slots.slots() {
                prop_assert_eq!(lookup.read_list(slot), lookup.sets(slot).read_set());
            }
        }
    }

    #[test]
    fn a_batch_answers_as_one_key_after_the_other(
        nodes in 1..=9_u16,
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..100),
        empty in any::<Index>(),
    ) {
        let specs = equal(3, nodes);
        let mut table = founded(3, 3, &specs);
        table.set(Slot(empty.index(8) as u32), &[]);
        let lookup = lookup(table, &specs);
        let mut found = Vec::new();
        lookup.lookup_batch(&keys, |at, route| found.push((at, route.map(|route| (route.slot, route.hash, route.handles())))));
        let single = keys.iter().map(|key| lookup.route(key).map(|route| (route.slot, route.hash, route.handles())));
        prop_assert_eq!(found, single.enumerate().collect::<Vec<_>>());
    }

    #[test]
    fn a_bucket_index_equals_a_naive_scan(
        tokens in prop::collection::btree_set(prop_oneof![
            4 => any::<u64>(),
            // Neighbours, many to a bucket.
            2 => (0..64_u64).prop_map(|low| (7 << 60) + low),
            1 => prop::sample::select(vec![0, 1, u64::MAX - 1, u64::MAX]),
        ], 0..40),
        longest in 1..=7_usize,
        hashes in prop::collection::vec(any::<u64>(), 20),
    ) {
        let list = |at: usize| -> Vec<Handle> { (0..1 + at % longest).map(|of| Handle((at + of) as u16)).collect() };
        let ranges: Vec<_> = tokens.iter().enumerate().map(|(at, token)| (Token(*token), list(at))).collect();
        let index = TokenIndex::compile(ranges.iter().map(|(token, list)| (*token, &list[..]))).unwrap();
        prop_assert_eq!(index.range_count(), ranges.len());
        let edges = tokens.iter().flat_map(|token| [token.wrapping_sub(1), *token, token.wrapping_add(1)]);
        let hashes: Vec<_> = edges.chain(hashes).chain([0, 1, u64::MAX - 1, u64::MAX]).collect();
        let naive = |hash: u64| ranges.iter().position(|(token, _)| token.0 >= hash).unwrap_or(0);
        for hash in &hashes {
            if ranges.is_empty() {
                prop_assert_eq!((index.list(*hash), index.range(*hash)), (&[][..], None));
                continue;
            }
            let at = naive(*hash);
            let before = ranges[(at + ranges.len() - 1) % ranges.len()].0;
            prop_assert_eq!(index.list(*hash), &ranges[at].1[..], "hash {}", hash);
            let range = TokenRange::new(before, ranges[at].0);
            prop_assert_eq!(index.range(*hash), Some(range));
            prop_assert!(range.contains(*hash));
        }
        let mut found = Vec::new();
        index.list_batch(&hashes, |at, list| found.push((at, list)));
        let single = hashes.iter().map(|hash| index.list(*hash));
        prop_assert_eq!(found, single.enumerate().collect::<Vec<_>>());
    }
}

#[test]
fn the_index_of_a_layout_of_tokens_answers_as_its_table() {
    use annulus_ring::tokens::{TokenNode, TokenTable, tokens};
    for (rf, nodes) in [(1, 1), (3, 9), (7, 12)] {
        let node = |spec: &Spec| {
            let member = member(*spec);
            let per_weight = std::num::NonZeroU32::new(64).unwrap();
            TokenNode {
                tokens: tokens(
                    annulus_ring::HashName::Xxh3_64,
                    5,
                    &member.node_id,
                    per_weight,
                    member.weight,
                )
                .unwrap(),
                node_id: member.node_id,
                handle: member.handle,
                zone: member.zone,
                weight: member.weight,
            }
        };
        let nodes: Vec<_> = equal(3, nodes).iter().map(node).collect();
        let table = TokenTable::place(rf, &nodes).unwrap();
        let index = TokenIndex::of(table.ranges()).unwrap();
        assert_eq!(index.range_count(), table.ranges().len());
        let edges = table
            .ranges()
            .tokens()
            .iter()
            .flat_map(|token| [token.0, token.0.wrapping_add(1)]);
        for hash in edges.chain([0, 1, u64::MAX - 1, u64::MAX]) {
            assert_eq!(index.list(hash), table.lookup(hash).0, "hash {hash}");
        }
    }
}

#[test]
fn a_member_that_is_gone_is_missed_where_nothing_changed() {
    let specs = equal(1, 3);
    let before = lookup(founded(4, 2, &specs), &specs);
    let mut gone = (**before.snapshot()).clone();
    gone.members.pop();
    let refused = before.updated(Arc::new(gone)).map(drop).unwrap_err();
    assert!(
        matches!(refused, SnapshotError::UnknownHandle { .. }),
        "{refused}"
    );
}

#[test]
fn an_index_of_bad_ranges_is_refused() {
    let a = [Handle(1)];
    let index =
        |tokens: &[u64]| TokenIndex::compile(tokens.iter().map(|token| (Token(*token), &a[..])));
    assert_eq!(index(&[5, 5]), Err(IndexError::Order { token: Token(5) }));
    assert_eq!(index(&[5, 4]), Err(IndexError::Order { token: Token(4) }));
    let long = [Handle(1); 8];
    let refused = TokenIndex::compile([(Token(1), &long[..])].into_iter()).unwrap_err();
    assert_eq!(
        refused,
        IndexError::TooLong {
            token: Token(1),
            found: 8
        }
    );
}
