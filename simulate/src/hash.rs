//! Hash functions: those that layouts offer, and those that only serve as bad examples.

use std::fmt;

use annulus_ring::HashName;

use crate::{InputError, error::setting};

/// A hash of keys and of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// One that a layout may name.
    Named(HashName),
    /// FNV-1a with 64 bits and nothing after it (Fowler, Noll, Vo; draft-eastlake-fnv). Not
    /// offered by layouts: what differs at the end of a key hardly reaches the top bits.
    Fnv1a,
}

impl Hash {
    /// Hash of `key`; the bare ones mix the seed in as eight bytes before the key.
    #[must_use]
    #[inline]
    pub fn hash(self, seed: u64, key: &[u8]) -> u64 {
        match self {
            Self::Named(name) => name.hash(seed, key),
            Self::Fnv1a if seed == 0 => fnv1a(FNV_OFFSET, key),
            Self::Fnv1a => fnv1a(fnv1a(FNV_OFFSET, &seed.to_le_bytes()), key),
        }
    }

    /// All hashes, those that layouts offer first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![Self::Named(HashName::Xxh3_64), Self::Fnv1a]
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Named(name) => name.as_str(),
            Self::Fnv1a => "fnv1a (bare)",
        }
    }

    /// Reads a name as users write it.
    ///
    /// # Errors
    /// [`InputError::Setting`] with the names that are known.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        if text == "fnv1a" {
            return Ok(Self::Fnv1a);
        }
        text.parse().map(Self::Named).map_err(|_| {
            let known: Vec<_> = Self::all()
                .into_iter()
                .map(|hash| hash.as_str().trim_end_matches(" (bare)"))
                .collect();
            setting("--hash", format!("{text:?}"), known.join(", "))
        })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv1a(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

/// CRC-16/XMODEM, as Redis Cluster hashes keys (Redis Cluster specification, appendix A).
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for byte in bytes {
        let index = (crc >> 8) as u8 ^ byte;
        crc = (crc << 8) ^ CRC16[usize::from(index)];
    }
    crc
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

/// What Redis Cluster hashes of a key: what stands between the first `{` and the next `}`, if
/// there is anything; else all of it (Redis Cluster specification, "Hash tags").
#[must_use]
pub fn redis_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(close) if close > 0 => &rest[..close],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values_hold() {
        // "123456789" is the check input of the catalogues; 0x31C3 is XMODEM's value.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // From the reference vectors of draft-eastlake-fnv.
        assert_eq!(Hash::Fnv1a.hash(0, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Hash::Fnv1a.hash(0, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Hash::Fnv1a.hash(0, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hash_tags_are_those_of_the_specification() {
        let tag = |key: &'static str| redis_tag(key.as_bytes());
        assert_eq!(tag("{user1000}.following"), b"user1000");
        assert_eq!(tag("foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag("foo{{bar}}zap"), b"{bar");
        assert_eq!(tag("foo{bar}{zap}"), b"bar");
        assert_eq!(tag("plain"), b"plain");
    }
}
