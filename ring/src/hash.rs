//! The hash of a key, named in the layout and so part of the protocol.
//!
//! | name | function | bits that count | seed |
//! |---|---|---|---|
//! | `xxh3-64` | XXH3 (Collet, xxHash 0.8, 2020) | 64 | XXH3's own |
//! | `siphash-2-4` | SipHash-2-4 (Aumasson, Bernstein, 2012) | 64 | the key: k0 = seed, k1 = 0 |
//! | `murmur3-x64-128` | MurmurHash3 x64 128 (Appleby, 2011), first half (h1) | 64 | both halves start at it |
//! | `md5-64` | MD5 (RFC 1321), first 8 bytes of the digest, little-endian | 64 | before the key |
//! | `fnv1a-mix-64` | FNV-1a (Fowler, Noll, Vo), 64 bits, then [`mix64`] | 64 | before the key |
//! | `crc32-mix` | CRC-32/ISO-HDLC (zlib's), widened to 64 bits, then [`mix64`] | 32 | before the key |
//!
//! *Before the key*: with seed 0 the function gets the key alone, so that its published values
//! hold; with any other seed it gets the seed as 8 little-endian bytes and then the key.
//!
//! Choose `xxh3-64` unless something else already hashes the keys. `siphash-2-4` is for keys
//! that strangers choose. `md5-64` costs some twenty times as much, and `crc32-mix` knows only
//! 2^32 values, so two of 100,000 keys are likely to share one. Bare FNV-1a is offered by
//! [`fnv1a_64`] for comparison only: its values for names that differ in the last letters lie
//! close together, which overloads a node two- to threefold.

use std::{cmp::Reverse, fmt, str::FromStr};

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

mod bare;
mod murmur3;

pub use bare::{SLOTS_OF_CRC16, crc16_hash_tag_slot, crc16_xmodem, fnv1a_64, mix64};

/// A hash function by its name on the wire.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum HashName {
    /// XXH3 with 64 bits and the layout's seed (Yann Collet, xxHash 0.8, 2020). Frozen upstream.
    #[default]
    #[serde(rename = "xxh3-64")]
    Xxh3_64,
    /// SipHash-2-4 under the key (seed, 0) (Aumasson, Bernstein: SipHash, 2012).
    #[serde(rename = "siphash-2-4")]
    SipHash24,
    /// First half (h1) of MurmurHash3 x64 with 128 bits (Austin Appleby, SMHasher, 2011). A seed
    /// below 2^32 agrees with the reference, which takes no larger one.
    #[serde(rename = "murmur3-x64-128")]
    Murmur3X64_128,
    /// First 8 bytes, little-endian, of MD5 (Rivest, RFC 1321, 1992).
    #[serde(rename = "md5-64")]
    Md5_64,
    /// FNV-1a with 64 bits, then MurmurHash3's finaliser [`mix64`].
    #[serde(rename = "fnv1a-mix-64")]
    Fnv1aMix64,
    /// CRC-32 as zlib computes it, then [`mix64`]. Only 2^32 different values.
    #[serde(rename = "crc32-mix")]
    Crc32Mix,
}

/// A hash that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownHash(pub String);

impl UnknownHash {
    /// The known name that begins most like it and, of several, differs in the fewest letters.
    #[must_use]
    pub fn nearest(&self) -> HashName {
        let lower = self.0.to_ascii_lowercase();
        let apart = |known: &HashName| {
            let letters = lower.chars().zip(known.as_str().chars());
            let shared = letters.take_while(|(given, known)| given == known).count();
            let differing = strsim::levenshtein(&lower, known.as_str());
            (Reverse(shared), differing)
        };
        HashName::ALL
            .into_iter()
            .min_by_key(apart)
            .unwrap_or_default()
    }
}

impl fmt::Display for UnknownHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown hash {:?}; nearest is {}",
            self.0,
            self.nearest()
        )?;
        f.write_str("; known:")?;
        HashName::ALL
            .iter()
            .try_for_each(|known| write!(f, " {known}"))
    }
}

impl std::error::Error for UnknownHash {}

impl HashName {
    /// Every hash that a layout may name, the default first.
    pub const ALL: [Self; 6] = [
        Self::Xxh3_64,
        Self::SipHash24,
        Self::Murmur3X64_128,
        Self::Md5_64,
        Self::Fnv1aMix64,
        Self::Crc32Mix,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Xxh3_64 => "xxh3-64",
            Self::SipHash24 => "siphash-2-4",
            Self::Murmur3X64_128 => "murmur3-x64-128",
            Self::Md5_64 => "md5-64",
            Self::Fnv1aMix64 => "fnv1a-mix-64",
            Self::Crc32Mix => "crc32-mix",
        }
    }

    /// Hash of a key, which is a byte string as it stands: never trimmed, never normalised.
    #[must_use]
    #[inline]
    pub fn hash(self, seed: u64, key: &[u8]) -> u64 {
        match self {
            Self::Xxh3_64 => xxhash_rust::xxh3::xxh3_64_with_seed(key, seed),
            Self::SipHash24 => siphasher::sip::SipHasher24::new_with_keys(seed, 0).hash(key),
            Self::Murmur3X64_128 => murmur3::x64_128(seed, key).0,
            Self::Md5_64 => md5_64(seed, key),
            Self::Fnv1aMix64 => {
                let state = seeded(seed).iter().fold(bare::FNV_BASIS, bare::fnv1a_step);
                mix64(key.iter().fold(state, bare::fnv1a_step))
            }
            Self::Crc32Mix => {
                let mut crc = crc32fast::Hasher::new();
                crc.update(seeded(seed).as_slice());
                crc.update(key);
                mix64(crc.finalize().into())
            }
        }
    }
}

/// What goes before the key: nothing for seed 0, else the seed's 8 bytes, little-endian.
fn seeded(seed: u64) -> smallvec::SmallVec<[u8; 8]> {
    match seed {
        0 => smallvec::SmallVec::new(),
        seed => smallvec::SmallVec::from(seed.to_le_bytes()),
    }
}

fn md5_64(seed: u64, key: &[u8]) -> u64 {
    let digest = Md5::new()
        .chain_update(seeded(seed).as_slice())
        .chain_update(key)
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

impl fmt::Display for HashName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for HashName {
    type Err = UnknownHash;
    fn from_str(name: &str) -> Result<Self, UnknownHash> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == name)
            .ok_or_else(|| UnknownHash(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
