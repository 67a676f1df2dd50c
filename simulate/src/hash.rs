//! Hash functions: those that layouts offer, and those that only serve as bad examples.

use std::fmt;

use annulus_ring::{HashName, hash::fnv1a_64};

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
            Self::Fnv1a if seed == 0 => fnv1a_64(key),
            Self::Fnv1a => fnv1a_64(&[&seed.to_le_bytes(), key].concat()),
        }
    }

    /// All hashes, those that layouts offer first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let named = HashName::ALL.into_iter().map(Self::Named);
        named.chain([Self::Fnv1a]).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_hashes() {
        for hash in Hash::all() {
            let name = hash.as_str().trim_end_matches(" (bare)");
            assert_eq!(Hash::parse(name).expect("known"), hash);
        }
        let error = Hash::parse("md4").expect_err("unknown").to_string();
        assert!(
            error.starts_with("--hash is \"md4\", expected xxh3-64, "),
            "{error}"
        );
    }

    #[test]
    fn a_seed_goes_before_the_key() {
        // From the reference vectors of draft-eastlake-fnv.
        assert_eq!(Hash::Fnv1a.hash(0, b"foobar"), 0x8594_4171_f739_67e8);
        assert_ne!(
            Hash::Fnv1a.hash(1, b"foobar"),
            Hash::Fnv1a.hash(0, b"foobar")
        );
    }
}
