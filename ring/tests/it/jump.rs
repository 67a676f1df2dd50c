//! The `jump` layout against the program in its paper.

use annulus_ring::{
    Handle, HashName, Jump,
    jump::{JumpError, bucket},
};
use proptest::prelude::*;

/// The paper's program, in double precision.
fn paper(mut state: u64, buckets: u32) -> u32 {
    let (mut at, mut next) = (0_i64, 0_i64);
    while next < i64::from(buckets) {
        at = next;
        state = state
            .wrapping_mul(2_862_933_555_777_941_757)
            .wrapping_add(1);
        let drawn = ((state >> 33) + 1) as f64;
        next = ((at + 1) as f64 * ((1_i64 << 31) as f64 / drawn)) as i64;
    }
    u32::try_from(at).unwrap()
}

/// Vectors that implementations of the paper share, and more by PyPI's jump-consistent-hash 3.6.0
/// (C++).
#[test]
fn buckets_are_those_of_published_vectors() {
    for (hash, buckets, expected) in [
        (1, 1, 0),
        (42, 57, 43),
        (0xdead_10cc, 1, 0),
        (0xdead_10cc, 666, 361),
        (256, 1_024, 520),
        (1, 4_096, 2_323),
        (0xdead_beef, 100, 87),
        (0x0ddc_0ffe_ebad_f00d, 4_096, 113),
        (u64::MAX, 4_096, 1_921),
    ] {
        assert_eq!(bucket(hash, buckets), Some(expected), "{hash} of {buckets}");
    }
    assert_eq!(bucket(1, 0), None);
}

#[test]
fn only_the_last_bucket_may_leave() {
    let mut jump = Jump::new(HashName::Xxh3_64, 0);
    assert_eq!(jump.owner(b"any"), None);
    for handle in [7, 3, 5].map(Handle) {
        jump.push(handle).unwrap();
    }
    let refused = JumpError::NotLast {
        handle: 3,
        bucket: 1,
        last: 2,
    };
    assert_eq!(jump.remove(Handle(3)), Err(refused));
    assert_eq!(
        jump.remove(Handle(4)),
        Err(JumpError::Unknown { handle: 4 })
    );
    for taken in [Handle(3), Handle::NONE] {
        let handle = taken.0;
        assert_eq!(jump.push(taken), Err(JumpError::Handle { handle }));
    }
    assert_eq!(jump.buckets(), [7, 3, 5].map(Handle));
    assert_eq!(jump.remove(Handle(5)), Ok(()));
    assert_eq!(jump.buckets(), [7, 3].map(Handle));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_bucket_is_the_papers(hash: u64, buckets in prop_oneof![1..=100_u32, 1..=u32::MAX]) {
        prop_assert_eq!(bucket(hash, buckets), Some(paper(hash, buckets)));
    }

    #[test]
    fn one_more_bucket_moves_keys_into_it_only(hash: u64, buckets in 1..100_000_u32) {
        let (before, after) = (bucket(hash, buckets).unwrap(), bucket(hash, buckets + 1).unwrap());
        prop_assert!(after == before || after == buckets);
    }
}
