//! A delta leads to the bytes of the full snapshot or is refused.

// Helpers of tests are no test functions to clippy.
#![allow(clippy::unwrap_used)]

mod common;
use annulus_proto::{
    delta::{self, DeltaError, Held},
    snapshot::{DecodeError, Expect, encode},
    v1,
};
use annulus_ring::{
    Checksum, Epoch, Handle, List, Replication, Slot, SlotChange, SlotTable, Snapshot, Step,
    Transition, TransitionId, Weight, placement,
};
use common::*;
use proptest::prelude::*;
use prost::Message as _;

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn list(&mut self, snapshot: &Snapshot, least: usize) -> List {
        let mut handles: Vec<_> = snapshot
            .members
            .iter()
            .map(|member| member.handle)
            .collect();
        let most = handles.len().min(snapshot.layout.slots.rf().into());
        let length = least.min(most) + self.roll(most + 1 - least.min(most));
        for at in 0..length {
            let other = at + self.roll(handles.len() - at);
            handles.swap(at, other);
        }
        List::from_slice(&handles[..length])
    }
}

/// Something that may be published after `base`.
fn after(base: &Snapshot, base_checksum: Checksum, seed: u64) -> Snapshot {
    let mut dice = Dice(seed);
    let mut new = base.clone();
    new.epoch = Epoch(base.epoch.0.saturating_add(1 + dice.roll(3) as u64));
    new.previous_checksum = base_checksum;
    if dice.roll(3) == 0 {
        // As at the end of a transition, give or take a list.
        if let Some(transition) = new.transition.take() {
            if let Some(replication) = transition.replication {
                new.layout.replication = replication;
                new.layout.slots = new.layout.slots.resized(replication.rf);
            }
            placement::apply(&mut new.layout.slots, &transition.target);
        }
    }
    if dice.roll(2) == 0 {
        let free = (0..)
            .map(Handle)
            .find(|handle| base.members.iter().all(|member| member.handle != *handle));
        new.members
            .push(member(&format!("x{}", dice.roll(9)), free.unwrap().0));
    }
    if !new.members.is_empty() {
        let at = dice.roll(new.members.len());
        new.members[at].weight = Weight::new(dice.roll(1_000) as u32).unwrap();
    }
    new.members.sort_by(|a, b| a.node_id.cmp(&b.node_id));
    new.members.dedup_by(|a, b| a.node_id == b.node_id);
    for _ in 0..dice.roll(6) {
        let slot = Slot(dice.roll(new.layout.slots.slot_count()) as u32);
        let list = dice.list(&new, 0);
        new.layout.slots.set(slot, &list);
    }
    if dice.roll(2) == 0 && !new.members.is_empty() {
        let mut target: Vec<_> = (0..dice.roll(6))
            .map(|_| Slot(dice.roll(new.layout.slots.slot_count()) as u32))
            .collect();
        target.sort_unstable();
        target.dedup();
        let all = dice.roll(4) == 0;
        if all {
            target = new.layout.slots.slots().collect();
        }
        let change = |slot| SlotChange {
            slot,
            to: dice.list(&new, 1),
        };
        let target = target.into_iter().map(change).collect();
        let rf = new.layout.slots.rf();
        let wider = Replication {
            rf: (rf + 1).min(7),
            w: 1,
            r: 1,
        };
        new.transition = Some(Transition {
            replication: all.then_some(wider),
            id: TransitionId(9),
            step: Step::Writing,
            target,
        });
    }
    if dice.roll(3) == 0 && !new.members.is_empty() {
        let gone = new.members.remove(dice.roll(new.members.len())).handle;
        for slot in new.layout.slots.slots() {
            let list = List::from_slice(new.layout.slots.list(slot));
            let rest: List = list.into_iter().filter(|handle| *handle != gone).collect();
            new.layout.slots.set(slot, &rest);
        }
        if new
            .transition
            .as_ref()
            .is_some_and(|one| one.replication.is_some())
        {
            new.transition = None;
        }
        if let Some(transition) = &mut new.transition {
            for change in &mut transition.target {
                change.to.retain(|handle| *handle != gone);
            }
            transition.target.retain(|change| !change.to.is_empty());
        }
    }
    new
}

/// A big header's worth of members, so that a delta is worth sending.
fn wide(seed: u64) -> (Snapshot, Snapshot) {
    let mut base = small();
    base.members = (0..30).map(|at| member(&format!("n{at:03}"), at)).collect();
    base.layout.slots = SlotTable::empty(11, 3);
    let mut dice = Dice(seed);
    for slot in base.layout.slots.slots() {
        let list = dice.list(&base, 1);
        base.layout.slots.set(slot, &list);
    }
    let target = [3, 700, 1_030, 2_047].map(|slot| SlotChange {
        slot: Slot(slot),
        to: dice.list(&base, 1),
    });
    base.transition = Some(Transition {
        replication: None,
        id: TransitionId(2),
        step: Step::Switched,
        target: target.into(),
    });
    let new = after(&base, encode(&base).checksum, seed ^ 0xabcd);
    (base, new)
}

fn expect(snapshot: &Snapshot) -> Expect<'_> {
    Expect {
        cluster_id: Some(snapshot.cluster_id),
        ring: &snapshot.ring,
        held: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_delta_leads_to_the_bytes_of_the_full_snapshot(small in any_snapshot(), seed in any::<u64>()) {
        let pair = (small.clone(), after(&small, encode(&small).checksum, seed));
        for (base, new) in [pair, wide(seed)] {
            prop_assert_eq!(new.check(), Ok(()));
            let (old, full) = (encode(&base).message(), encode(&new).message());
            let held = Held { bytes: &old, snapshot: &base };
            let Some(delta) = delta::between(held, Held { bytes: &full, snapshot: &new }) else {
                // More than half of a small snapshot.
                continue;
            };
            let received = v1::Delta::decode(&delta.encode_to_vec()[..]).unwrap();
            prop_assert_eq!(&received, &delta);
            let (bytes, snapshot) = delta::apply(held, &received, expect(&base)).unwrap();
            prop_assert_eq!(bytes, full);
            prop_assert_eq!(snapshot, new);
        }
    }

    #[test]
    fn a_damaged_delta_is_refused(seed in any::<u64>(), damages in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 40)) {
        let (base, new) = wide(seed);
        let (old, full) = (encode(&base).message(), encode(&new).message());
        let held = Held { bytes: &old, snapshot: &base };
        let Some(delta) = delta::between(held, Held { bytes: &full, snapshot: &new }) else {
            return Ok(());
        };
        let good = delta.encode_to_vec();
        for (at, flip) in damages {
            let mut bytes = good.clone();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            // What does not decode never gets here; what does is refused, or the damage was
            // in nothing that matters and it leads to the very bytes.
            if let Ok(damaged) = v1::Delta::decode(&bytes[..])
                && let Ok((bytes, snapshot)) = delta::apply(held, &damaged, expect(&base))
            {
                prop_assert_eq!(&bytes, &full);
                prop_assert_eq!(&snapshot, &new);
            }
            // Cut short, too.
            if let Ok(cut) = v1::Delta::decode(&good[..at])
                && let Ok((bytes, _)) = delta::apply(held, &cut, expect(&base))
            {
                prop_assert_eq!(&bytes, &full);
            }
        }
    }
}

/// A delta whose fields were bent, and why it is refused.
fn bent(bend: impl Fn(&mut v1::Delta)) -> DeltaError {
    let (base, new) = wide(1);
    let (old, full) = (encode(&base).message(), encode(&new).message());
    let held = Held {
        bytes: &old,
        snapshot: &base,
    };
    let mut delta = delta::between(
        held,
        Held {
            bytes: &full,
            snapshot: &new,
        },
    )
    .unwrap();
    bend(&mut delta);
    delta::apply(held, &delta, expect(&base)).unwrap_err()
}

#[test]
fn a_delta_is_refused_for_what_it_is() {
    let base = |bend: fn(&mut v1::EpochRef)| bent(|delta| bend(delta.base.as_mut().unwrap()));
    for refused in [
        base(|base| base.epoch += 1),
        base(|base| base.generation += 1),
        base(|base| base.checksum = vec![0; 32].into()),
        bent(|delta| delta.base = None),
    ] {
        assert!(matches!(refused, DeltaError::Base { .. }), "{refused}");
        assert!(
            refused.to_string().starts_with("delta from epoch "),
            "{refused}"
        );
    }

    let pairs = |bend: fn(&mut v1::SlotPairs)| {
        bent(|delta| {
            let mut pairs = v1::SlotPairs {
                gaps: vec![5, 1],
                bits: 2,
                handles: vec![0b0001_1111, 0b1111_0000].into(),
            };
            bend(&mut pairs);
            delta.slots = Some(pairs);
        })
    };
    let removed = |ids: &'static [&str]| {
        bent(|delta| delta.removed = ids.iter().map(|id| (*id).to_owned()).collect())
    };
    for (refused, what) in [
        (bent(|delta| delta.format = 2), "another format"),
        (
            bent(|delta| delta.header = vec![0xff].into()),
            "a header that is none",
        ),
        (
            bent(|delta| delta.header = vec![].into()),
            "another k or rf",
        ),
        (
            bent(|delta| delta.members.push(vec![0xff].into())),
            "a member that is none",
        ),
        (
            bent(|delta| delta.members = vec![vec![].into(), vec![].into()]),
            "out of order",
        ),
        (removed(&["b", "a"]), "out of order"),
        (removed(&["nobody"]), "that the base has not"),
        (pairs(|pairs| pairs.gaps = vec![5, 0]), "a slot twice"),
        (pairs(|pairs| pairs.gaps = vec![5, 2_043]), "out of bounds"),
        (
            pairs(|pairs| pairs.gaps = vec![5, u32::MAX]),
            "out of bounds",
        ),
        (
            pairs(|pairs| pairs.gaps = vec![1; 2_049]),
            "more pairs than slots",
        ),
        (pairs(|pairs| pairs.bits = 0), "width"),
        (pairs(|pairs| pairs.bits = 3), "bytes"),
    ] {
        assert!(matches!(refused, DeltaError::Shape { .. }), "{refused}");
        assert!(refused.to_string().contains(what), "{refused}: {what}");
    }
    // Well-formed, but not what the sender has.
    let refused = pairs(|_| {});
    assert!(
        matches!(refused, DeltaError::Leads(DecodeError::Checksum { .. })),
        "{refused}"
    );
    let refused = bent(|delta| delta.checksum = vec![1; 32].into());
    assert!(
        matches!(refused, DeltaError::Leads(DecodeError::Checksum { .. })),
        "{refused}"
    );
}

#[test]
fn a_settled_transition_costs_no_pairs() {
    let (base, _) = wide(1);
    let mut new = base.clone();
    let target = new.transition.take().unwrap().target;
    placement::apply(&mut new.layout.slots, &target);
    new.epoch = base.epoch.next();
    new.previous_checksum = encode(&base).checksum;
    let (old, full) = (encode(&base).message(), encode(&new).message());
    let held = Held {
        bytes: &old,
        snapshot: &base,
    };
    let delta = delta::between(
        held,
        Held {
            bytes: &full,
            snapshot: &new,
        },
    )
    .unwrap();
    assert!(delta.settled && delta.slots.is_none() && delta.target.is_none());
    assert!(delta.encoded_len() < 250, "{} bytes", delta.encoded_len());
    assert_eq!(delta::apply(held, &delta, expect(&base)).unwrap().0, full);
}

#[test]
fn no_delta_leads_to_another_shape() {
    let (base, _) = wide(1);
    let bytes = encode(&base).message();
    let held = Held {
        bytes: &bytes,
        snapshot: &base,
    };
    let other = |change: fn(&mut Snapshot)| {
        let mut new = base.clone();
        new.epoch = new.epoch.next();
        change(&mut new);
        let full = encode(&new).message();
        delta::between(
            held,
            Held {
                bytes: &full,
                snapshot: &new,
            },
        )
    };
    assert!(other(|_| {}).is_some());
    assert_eq!(other(|new| new.generation.0 += 1), None);
    assert_eq!(other(|new| new.cluster_id.0 += 1), None);
    assert_eq!(
        other(|new| new.layout.slots = SlotTable::empty(12, 3)),
        None
    );
    assert_eq!(
        other(|new| new.layout.slots = SlotTable::empty(11, 2)),
        None,
        "of another rf"
    );
    // All lists changed: the full one is sent.
    assert_eq!(
        other(|new| {
            let mut dice = Dice(99);
            for slot in new.layout.slots.slots() {
                let list = dice.list(new, 1);
                new.layout.slots.set(slot, &list);
            }
        }),
        None
    );
}
