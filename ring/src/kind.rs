//! What a ring is for: data that must not be lost, or entries that may.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Whether a ring's ranges are data or entries of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingKind {
    /// Ownership moves only when the data has, verified.
    #[default]
    Durable,
    /// A miss costs time and loses nothing: ranges move warm where they can, and no digest, seal or
    /// permit is asked.
    Cache,
}

impl RingKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Durable, Self::Cache];

    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Cache => "cache",
        }
    }

    /// For `skip_serializing_if`: what was written before there were kinds stays as it was.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        *self == Self::Durable
    }
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A kind that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kind of ring {found:?}; it is durable or cache")]
pub struct UnknownKind {
    /// As given.
    pub found: String,
}

impl FromStr for RingKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| UnknownKind {
            found: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written_and_nothing_else_is() {
        for kind in RingKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let found = "Cache".to_owned();
        assert_eq!("Cache".parse::<RingKind>(), Err(UnknownKind { found }));
    }
}
