//! Every function against values that its authors, a standard or another implementation gave.

use std::hash::Hasher;

use super::*;

#[test]
fn xxh3_gives_the_values_of_its_reference() {
    // xxHash 0.8, cli/xsum_sanity_check.c: length 0, seeds 0 and PRIME64; the rest by its C code.
    let hash = |seed, key: &[u8]| HashName::Xxh3_64.hash(seed, key);
    assert_eq!(hash(0, b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(hash(0x9e37_79b1_85eb_ca8d, b""), 0xa8a6_b918_b2f0_364a);
    assert_eq!(hash(0, b"a"), 0xe6c6_32b6_1e96_4e1f);
    assert_eq!(hash(42, b"a"), 0x4c43_7dd4_7f07_16f4);
    assert_eq!(hash(42, b"hello"), 0xbafa_072f_07db_7937);
}

#[test]
fn siphash_gives_the_value_of_its_paper() {
    // The paper's appendix: key 00 to 0f, input 00 to 0e.
    let key: Vec<u8> = (0..16).collect();
    let input: Vec<u8> = (0..15).collect();
    let mut paper = siphasher::sip::SipHasher24::new_with_key(&key.try_into().unwrap());
    paper.write(&input);
    assert_eq!(paper.finish(), 0xa129_ca61_49be_45e5);
    // The layout's key is (seed, 0); by the C code of Python's siphash24.
    assert_eq!(
        HashName::SipHash24.hash(42, b"hello"),
        0x706c_da57_54d7_30a8
    );
}

#[test]
fn murmur3_gives_the_published_values_in_its_first_half() {
    let hash = |seed, key: &[u8]| HashName::Murmur3X64_128.hash(seed, key);
    let fox = b"The quick brown fox jumps over the lazy dog";
    assert_eq!(
        murmur3::x64_128(0, fox),
        (0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347)
    );
    assert_eq!(hash(0, fox), 0xe34b_bc7b_bc07_1b6c);
    assert_eq!(hash(0, b"hello"), 0xcbd8_a7b3_41bd_9b02);
    assert_eq!(hash(42, b"hello"), 0xc4b8_b3c9_60af_6f08);
    assert_eq!(hash(0, b""), 0);
}

/// SMHasher's own check of an implementation: keys of every length up to 255 under as many
/// seeds, all results hashed together.
#[test]
fn murmur3_gives_the_verification_value_of_smhasher() {
    let key: Vec<u8> = (0..=255).collect();
    let mut results = Vec::new();
    for length in 0..256 {
        let (h1, h2) = murmur3::x64_128(256 - length as u64, &key[..length]);
        results.extend(h1.to_le_bytes());
        results.extend(h2.to_le_bytes());
    }
    assert_eq!(murmur3::x64_128(0, &results).0 as u32, 0x6384_ba69);
}

#[test]
fn md5_gives_the_first_half_of_the_rfcs_digests() {
    for (key, digest) in [
        ("", 0xd41d_8cd9_8f00_b204_u64),
        ("a", 0x0cc1_75b9_c0f1_b6a8),
        ("abc", 0x9001_5098_3cd2_4fb0),
        ("message digest", 0xf96b_697d_7cb7_938d),
    ] {
        let expected = u64::from_le_bytes(digest.to_be_bytes());
        assert_eq!(
            HashName::Md5_64.hash(0, key.as_bytes()),
            expected,
            "{key:?}"
        );
    }
}

#[test]
fn fnv_gives_its_authors_values_and_the_named_one_mixes_them() {
    for (key, expected) in [
        ("", 0xcbf2_9ce4_8422_2325),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("foobar", 0x8594_4171_f739_67e8),
    ] {
        assert_eq!(fnv1a_64(key.as_bytes()), expected, "{key:?}");
        assert_eq!(
            HashName::Fnv1aMix64.hash(0, key.as_bytes()),
            mix64(expected)
        );
    }
    assert_eq!((mix64(0), mix64(1)), (0, 0xb456_bcfc_34c2_cb2c));
}

#[test]
fn cyclic_codes_give_the_catalogues_check_values() {
    assert_eq!(HashName::Crc32Mix.hash(0, b"123456789"), mix64(0xcbf4_3926));
    assert_eq!(crc16_xmodem(b"123456789"), 0x31c3);
    assert_eq!(crc16_xmodem(b""), 0);
}

/// The examples of the Redis Cluster specification, by `CLUSTER KEYSLOT`'s rule.
#[test]
fn a_hash_tag_decides_the_slot_when_it_is_not_empty() {
    let slot = crc16_hash_tag_slot;
    assert_eq!(slot(b"123456789"), 0x31c3);
    assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
    assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
    assert_eq!(slot(b"foo{}{bar}"), crc16_xmodem(b"foo{}{bar}") % 16_384);
    assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    assert_eq!(slot(b"foo{bar"), crc16_xmodem(b"foo{bar") % 16_384);
}

#[test]
fn a_seed_goes_before_the_key_where_a_function_has_none() {
    let seed = 0x0102_0304_0506_0708_u64;
    let mut prefixed = seed.to_le_bytes().to_vec();
    prefixed.extend(b"key");
    for name in [HashName::Md5_64, HashName::Fnv1aMix64, HashName::Crc32Mix] {
        assert_eq!(name.hash(seed, b"key"), name.hash(0, &prefixed), "{name}");
    }
    for name in HashName::ALL {
        assert_ne!(name.hash(0, b"key"), name.hash(1, b"key"), "{name}");
    }
}

#[test]
fn every_name_is_read_back_and_others_are_told_the_nearest() {
    for name in HashName::ALL {
        assert_eq!(name.as_str().parse(), Ok(name));
        let stored = serde_json::to_string(&name).unwrap();
        assert_eq!(stored, format!("{:?}", name.as_str()));
        assert_eq!(serde_json::from_str::<HashName>(&stored).unwrap(), name);
    }
    for (given, nearest) in [
        ("xxh3", HashName::Xxh3_64),
        ("XXH3-64", HashName::Xxh3_64),
        ("md5", HashName::Md5_64),
        ("fnv1a-64", HashName::Fnv1aMix64),
        ("crc32", HashName::Crc32Mix),
        ("siphash-1-3", HashName::SipHash24),
        ("murmur3", HashName::Murmur3X64_128),
    ] {
        let refused = given.parse::<HashName>().unwrap_err();
        assert_eq!(refused.nearest(), nearest, "{given}");
        let message = refused.to_string();
        assert!(
            message.contains(&format!("{given:?}; nearest is {nearest}")),
            "{message}"
        );
    }
}
