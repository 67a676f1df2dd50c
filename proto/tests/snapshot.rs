//! A snapshot as bytes: what goes in comes out, and what is damaged is refused for what it is.

// Helpers of tests are no test functions to clippy.
#![allow(clippy::unwrap_used)]

mod common;
use annulus_proto::{
    snapshot::{DecodeError, Expect, encode, verify_and_decode},
    v1,
};
use annulus_ring::{
    Checksum, ClusterId, Epoch, Generation, Handle, RingName, Slot, Snapshot, SnapshotError, Step,
};
use common::*;
use proptest::prelude::*;
use prost::Message as _;

fn decode(message: &v1::SnapshotBytes) -> Result<Snapshot, DecodeError> {
    let ring = RingName::new("orders").unwrap();
    verify_and_decode(
        message,
        Expect {
            cluster_id: None,
            ring: &ring,
            held: None,
        },
    )
}

/// Decodes with the sections bent and the checksum made to fit: a sender's mistake.
fn mistaken(snapshot: &Snapshot, bend: impl Fn(&mut v1::SnapshotBytes)) -> DecodeError {
    let mut message = encode(snapshot).message();
    bend(&mut message);
    message.checksum = checksum_of(&message);
    decode(&message).unwrap_err()
}

/// Decodes with one section's message bent.
fn bent<M: prost::Message + Default>(
    snapshot: &Snapshot,
    section: usize,
    bend: impl Fn(&mut M),
) -> DecodeError {
    mistaken(snapshot, |message| {
        let mut inner = M::decode(message.sections[section].clone()).unwrap();
        bend(&mut inner);
        message.sections[section] = inner.encode_to_vec().into();
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_decoded_is_what_was_encoded(snapshot in any_snapshot()) {
        prop_assert_eq!(snapshot.check(), Ok(()));
        let encoded = encode(&snapshot);
        prop_assert_eq!(&encode(&snapshot), &encoded, "one value, one form");
        let message = encoded.message();
        prop_assert_eq!(&checksum_of(&message), &message.checksum, "the rule as documented");
        prop_assert_eq!(decode(&message), Ok(snapshot));
    }

    #[test]
    fn c46_a_flipped_bit_is_found(snapshot in any_snapshot(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut message = encode(&snapshot).message();
        let total: usize = message.sections.iter().map(|section| section.len()).sum();
        let mut at = at.index(total);
        for section in &mut message.sections {
            if at < section.len() {
                let mut bytes = section.to_vec();
                bytes[at] ^= 1 << bit;
                *section = bytes.into();
                break;
            }
            at -= section.len();
        }
        let refused = decode(&message);
        let is_checksum = matches!(refused, Err(DecodeError::Checksum { .. }));
        prop_assert!(is_checksum, "{:?}", refused);
    }

    #[test]
    fn c46_a_mistaken_sender_never_makes_a_receiver_panic(
        snapshot in any_snapshot(),
        section in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut message = encode(&snapshot).message();
        let section = section.index(message.sections.len());
        let mut bytes = message.sections[section].to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        message.sections[section] = bytes.into();
        message.checksum = checksum_of(&message);
        // A value that still makes sense, or a refusal.
        if let Ok(decoded) = decode(&message) {
            prop_assert_eq!(decoded.check(), Ok(()));
        }
    }
}

#[test]
fn c46_truncated_and_reordered_sections_are_refused() {
    let good = encode(&small()).message();
    for keep in 0..good.sections.len() {
        let mut cut = good.clone();
        cut.sections.truncate(keep);
        let expected = if keep == 0 { "length" } else { "checksum" };
        assert_eq!(decode(&cut).unwrap_err().kind(), expected);
        // Also when the checksum fits what is left.
        if keep > 0 {
            cut.checksum = checksum_of(&cut);
            assert_eq!(
                decode(&cut).unwrap_err().kind(),
                "malformed",
                "{keep} sections"
            );
        }
    }
    let mut swapped = good.clone();
    swapped.sections.swap(1, 2);
    assert_eq!(decode(&swapped).unwrap_err().kind(), "checksum");
    let error = mistaken(&small(), |message| message.sections.swap(1, 2));
    assert!(matches!(
        error,
        DecodeError::Sense {
            source: SnapshotError::MemberOrder { .. },
            ..
        }
    ));
    let error = mistaken(&small(), |message| {
        message.sections.push(message.sections[1].clone())
    });
    assert_eq!(
        error.to_string(),
        "snapshot section 6: nothing belongs here"
    );
}

#[test]
fn c46_the_checksum_of_another_epoch_is_refused() {
    let (one, mut next) = (small(), small());
    next.epoch = Epoch(8);
    let mut message = encode(&next).message();
    message.checksum = encode(&one).message().checksum;
    assert_eq!(decode(&message).unwrap_err().kind(), "checksum");
    message.checksum = message.checksum.slice(..31);
    assert_eq!(decode(&message).unwrap_err().kind(), "checksum");
}

#[test]
fn c46_a_right_checksum_does_not_excuse_nonsense() {
    let snapshot = small();
    type Header = v1::SnapshotHeader;
    type Member = v1::MemberSection;
    let sense = |error| match error {
        DecodeError::Sense { source, .. } => source,
        other => panic!("{other:?}"),
    };
    let error = bent::<Member>(&snapshot, 2, |member| member.node_id = "a".into());
    assert!(
        matches!(sense(error), SnapshotError::MemberOrder { .. }),
        "a duplicate id"
    );
    let error = bent::<Member>(&snapshot, 2, |member| member.handle = 9);
    assert!(matches!(
        sense(error),
        SnapshotError::UnknownHandle { handle: 1, .. }
    ));
    let error = bent::<Member>(&snapshot, 2, |member| member.handle = 0);
    assert!(matches!(sense(error), SnapshotError::MemberHandle { .. }));
    let error = mistaken(&snapshot, |message| {
        let mut header = Header::decode(message.sections[0].clone()).unwrap();
        header.member_count = 0;
        message.sections[0] = header.encode_to_vec().into();
        message.sections.drain(1..4);
    });
    assert!(
        matches!(sense(error), SnapshotError::UnknownHandle { .. }),
        "no nodes at all"
    );

    let error = bent::<Header>(&snapshot, 0, |header| header.hash = "md6".into());
    assert_eq!(error.kind(), "unknown_hash");
    let error = bent::<Header>(&snapshot, 0, |header| header.layout = 2);
    assert_eq!(error.kind(), "unknown_layout");
    for (kind, bend) in [
        ("format", (|header| header.format = 2) as fn(&mut Header)),
        ("malformed", |header| header.rf = 0),
        ("malformed", |header| header.rf = 8),
        ("malformed", |header| header.rf = 1 << 20),
        ("malformed", |header| header.slot_bits = 0),
        ("malformed", |header| header.slot_bits = 21),
        ("malformed", |header| header.member_count = u32::MAX),
        ("malformed", |header| header.cluster_id = vec![1; 15].into()),
        ("malformed", |header| {
            header.previous_checksum = vec![1; 33].into()
        }),
        ("sense", |header| header.epoch = 0),
        ("malformed", |header| {
            header.transition = Some(v1::TransitionHeader {
                id: 1,
                step: 8,
                changed_slots: 0,
                replication: None,
            });
        }),
        ("malformed", |header| {
            header.transition = Some(v1::TransitionHeader {
                id: 1,
                step: 1,
                changed_slots: u32::MAX,
                replication: None,
            });
        }),
    ] {
        assert_eq!(bent::<Header>(&snapshot, 0, bend).kind(), kind);
    }
    for bend in [
        (|member| member.handle = 1 << 16) as fn(&mut Member),
        |member| member.zone.clear(),
        |member| member.weight = u32::MAX,
        |member| member.endpoint = "nowhere".into(),
        |member| member.state = 0,
        |member| member.availability = 0,
    ] {
        assert_eq!(bent::<Member>(&snapshot, 1, bend).kind(), "malformed");
    }
    for bend in [
        (|slots| slots.first = 1) as fn(&mut v1::SlotSection),
        |slots| slots.count = 3,
        |slots| slots.bits = 0,
        |slots| slots.bits = 40,
        |slots| slots.handles = slots.handles.slice(1..),
    ] {
        assert_eq!(
            bent::<v1::SlotSection>(&snapshot, 4, bend).kind(),
            "malformed"
        );
    }
}

#[test]
fn an_empty_ring_is_a_valid_snapshot() {
    let mut empty = small();
    empty.members.clear();
    empty.transition = None;
    empty.layout.slots = annulus_ring::SlotTable::empty(2, 3);
    assert_eq!(decode(&encode(&empty).message()), Ok(empty));
}

#[test]
fn a_member_in_an_unknown_state_serves_nothing() {
    let mut snapshot = small();
    snapshot.transition = None;
    // Listed for reads: the snapshot is refused, as nobody routes around a member by himself.
    let error = bent::<v1::MemberSection>(&snapshot, 1, |member| member.state = 99);
    assert!(
        matches!(error, DecodeError::UnknownState { found: 99, .. }),
        "{error:?}"
    );
    // Listed nowhere: it is taken, as a member that serves nothing.
    for slot in snapshot.layout.slots.slots() {
        snapshot.layout.slots.set(slot, &[Handle(1), Handle(2)]);
    }
    let mut message = encode(&snapshot).message();
    let mut member = v1::MemberSection::decode(message.sections[1].clone()).unwrap();
    member.state = 99;
    message.sections[1] = member.encode_to_vec().into();
    message.checksum = checksum_of(&message);
    let decoded = decode(&message).unwrap();
    assert_eq!(decoded.members[0].state, annulus_ring::MemberState::Joining);
}

#[test]
fn a_receiver_checks_in_the_order_of_the_rules() {
    let snapshot = small();
    let encoded = encode(&snapshot);
    let message = encoded.message();
    let (ours, other) = (
        RingName::new("orders").unwrap(),
        RingName::new("other").unwrap(),
    );
    let at = (Generation(1), snapshot.epoch);
    let check = |cluster_id, ring, held| {
        verify_and_decode(
            &message,
            Expect {
                cluster_id,
                ring,
                held,
            },
        )
        .map_err(|error| error.kind())
    };
    assert!(check(None, &ours, None).is_ok());
    assert!(check(Some(snapshot.cluster_id), &ours, None).is_ok());
    assert_eq!(check(Some(ClusterId(7)), &other, None), Err("cluster"));
    assert_eq!(check(Some(snapshot.cluster_id), &other, None), Err("ring"));

    let held = |generation, epoch, checksum| Some((Generation(generation), Epoch(epoch), checksum));
    let (own, strange) = (encoded.checksum, Checksum([9; 32]));
    assert_eq!(check(None, &ours, held(1, at.1.0, own)), Err("not_newer"));
    assert_eq!(check(None, &ours, held(1, at.1.0, strange)), Err("fork"));
    assert_eq!(
        check(None, &ours, held(1, at.1.0 + 1, strange)),
        Err("not_newer")
    );
    assert_eq!(check(None, &ours, held(2, 1, strange)), Err("not_newer"));
    assert_eq!(
        check(None, &ours, held(1, at.1.0 - 1, strange)),
        Err("predecessor")
    );
    assert!(check(None, &ours, held(1, at.1.0 - 1, snapshot.previous_checksum)).is_ok());
    assert!(
        check(None, &ours, held(1, at.1.0 - 2, strange)).is_ok(),
        "a gap by a full one"
    );
    assert!(
        check(None, &ours, held(0, at.1.0 + 5, strange)).is_ok(),
        "a newer generation"
    );
}

#[test]
fn a_format_from_the_future_is_named() {
    let mut snapshot = small();
    snapshot.format = 2;
    let error = decode(&encode(&snapshot).message()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "snapshot format 2 is not known here, expected 1; upgrade this program"
    );
}

#[test]
fn equal_sections_are_shared_between_epochs() {
    let (one, mut next) = (small(), small());
    next.epoch = Epoch(8);
    next.members[1].endpoint = annulus_ring::Endpoint::new("127.0.0.1:9").unwrap();
    let (one, next) = (encode(&one), encode(&next));
    let differ: Vec<_> = (0..6)
        .filter(|at| one.hashes[*at] != next.hashes[*at])
        .collect();
    assert_eq!(differ, [0, 2], "the header and the member that moved");
}

/// Bytes of format 1, once released, are decoded for ever, and hash to what they always did.
#[test]
fn fixtures_of_format_1_are_decoded_for_ever() {
    for (name, expected, golden) in [
        (
            "steady.snapshot",
            Snapshot {
                transition: None,
                ..small()
            },
            "918f6e7fe146ea5f29891fffbfc0127bdbb9ecc07b2dcc8a7d24c184b6fffc37",
        ),
        (
            "transition.snapshot",
            small(),
            "10f275cd6bb357af93f2022ee1d74075a507f985e7164df76394fe3da875fa78",
        ),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/v1")
            .join(name);
        if std::env::var_os("ANNULUS_WRITE_FIXTURES").is_some() && !path.exists() {
            std::fs::write(&path, encode(&expected).message().encode_to_vec()).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        let message = v1::SnapshotBytes::decode(&bytes[..]).unwrap();
        assert_eq!(decode(&message).as_ref(), Ok(&expected), "{name}");
        let encoded = encode(&expected);
        assert_eq!(
            encoded.message().encode_to_vec(),
            bytes,
            "{name}: same bytes as then"
        );
        assert_eq!(encoded.checksum.to_string(), golden, "{name}");
    }
}

#[test]
fn all_sections_of_a_large_table_are_there() {
    let mut snapshot = small();
    snapshot.layout.slots = annulus_ring::SlotTable::empty(12, 3);
    for slot in snapshot.layout.slots.slots() {
        let list = [slot.0 % 3, (slot.0 + 1) % 3].map(|handle| Handle(handle as u16));
        snapshot.layout.slots.set(slot, &list);
    }
    let target = (0..2_500).map(|slot| annulus_ring::SlotChange {
        slot: Slot(slot),
        to: [Handle(2)].into_iter().collect(),
    });
    snapshot.transition = Some(annulus_ring::Transition {
        replication: None,
        id: annulus_ring::TransitionId(3),
        step: Step::Copying,
        target: target.collect(),
    });
    let message = encode(&snapshot).message();
    assert_eq!(message.sections.len(), 1 + 3 + 4 + 3);
    assert_eq!(decode(&message), Ok(snapshot));
}
