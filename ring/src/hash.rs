//! The hash of a key, named in the layout and so part of the protocol.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A hash function by its name on the wire.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum HashName {
    /// XXH3 with 64 bits and the layout's seed (Yann Collet, xxHash 0.8, 2020). Frozen upstream.
    #[default]
    #[serde(rename = "xxh3-64")]
    Xxh3_64,
}

/// A hash that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown hash {0:?}; known: xxh3-64")]
pub struct UnknownHash(pub String);

impl HashName {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Xxh3_64 => "xxh3-64",
        }
    }

    /// Hash of a key, which is a byte string as it stands: never trimmed, never normalised.
    #[must_use]
    #[inline]
    pub fn hash(self, seed: u64, key: &[u8]) -> u64 {
        match self {
            Self::Xxh3_64 => xxhash_rust::xxh3::xxh3_64_with_seed(key, seed),
        }
    }
}

impl fmt::Display for HashName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for HashName {
    type Err = UnknownHash;
    fn from_str(name: &str) -> Result<Self, UnknownHash> {
        match name {
            "xxh3-64" => Ok(Self::Xxh3_64),
            other => Err(UnknownHash(other.to_owned())),
        }
    }
}
