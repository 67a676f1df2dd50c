//! Names as people write them, checked once at the border.
//!
//! Every name is compared byte by byte: `Z1` and `z1` are two zones.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Longest node id, zone or ring name, in bytes.
pub const MAX_NAME_BYTES: usize = 63;
/// Longest endpoint, in bytes.
pub const MAX_ENDPOINT_BYTES: usize = 255;

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("{what} is empty")]
    Empty {
        /// Which kind of name.
        what: &'static str,
    },
    /// More bytes than allowed.
    #[error("{what} has {found} bytes, at most {limit} are allowed")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// Bytes given.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A character that is not allowed, with its byte offset.
    #[error(
        "{what} {value:?} has {found:?} at byte {at}; letters, digits, '.', '_' and '-' are \
         allowed, the first a letter or digit"
    )]
    Character {
        /// Which kind of name.
        what: &'static str,
        /// The name as given.
        value: String,
        /// The offending character.
        found: char,
        /// Its byte offset.
        at: usize,
    },
    /// Not `host:port`.
    #[error("endpoint {value:?} is not host:port with a port from 1 to 65535")]
    Endpoint {
        /// The endpoint as given.
        value: String,
    },
}

fn check(what: &'static str, value: &str) -> Result<(), NameError> {
    if value.is_empty() {
        return Err(NameError::Empty { what });
    }
    if value.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong {
            what,
            found: value.len(),
            limit: MAX_NAME_BYTES,
        });
    }
    for (at, found) in value.char_indices() {
        let inner = found.is_ascii_alphanumeric() || (at > 0 && matches!(found, '.' | '_' | '-'));
        if !inner {
            return Err(NameError::Character {
                what,
                value: value.to_owned(),
                found,
                at,
            });
        }
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps `value`.
            ///
            /// # Errors
            /// [`NameError`], which names the kind, the value and what is allowed.
            pub fn new(value: impl AsRef<str>) -> Result<Self, NameError> {
                let value = value.as_ref();
                $check($what, value)?;
                Ok(Self(value.into()))
            }

            /// The name as written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(value: String) -> Result<Self, NameError> {
                Self::new(value)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(value: &str) -> Result<Self, NameError> {
                Self::new(value)
            }
        }
    };
}

name!(
    /// A machine's name in one ring: 1 to 63 bytes.
    NodeId, "node id", check
);
name!(
    /// A ring's name: 1 to 63 bytes.
    RingName, "ring name", check
);
name!(
    /// A failure domain that a range's replicas spread over: 1 to 63 bytes.
    Zone, "zone", check
);
name!(
    /// Where a node listens, as `host:port`: up to 255 bytes.
    Endpoint, "endpoint", check_endpoint
);

fn check_endpoint(what: &'static str, value: &str) -> Result<(), NameError> {
    if value.is_empty() {
        return Err(NameError::Empty { what });
    }
    if value.len() > MAX_ENDPOINT_BYTES {
        return Err(NameError::TooLong {
            what,
            found: value.len(),
            limit: MAX_ENDPOINT_BYTES,
        });
    }
    let plain = value.bytes().all(|byte| byte.is_ascii_graphic());
    let parts = value.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if plain && good {
        Ok(())
    } else {
        Err(NameError::Endpoint {
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_the_border() {
        assert!(NodeId::new("n-1.rack_2").is_ok());
        assert_eq!(Zone::new(""), Err(NameError::Empty { what: "zone" }));
        assert!(matches!(
            NodeId::new("a\u{7}"),
            Err(NameError::Character { at: 1, .. })
        ));
        assert!(matches!(
            NodeId::new("-a"),
            Err(NameError::Character { at: 0, .. })
        ));
        assert!(matches!(
            RingName::new("x".repeat(64)),
            Err(NameError::TooLong { .. })
        ));
        assert_ne!(Zone::new("Z1"), Zone::new("z1"));
    }

    #[test]
    fn endpoints_are_host_and_port() {
        assert!(Endpoint::new("127.0.0.1:7000").is_ok());
        assert!(Endpoint::new("[::1]:7000").is_ok());
        for bad in [
            "host",
            "host:",
            "host:0",
            "host:70000",
            ":1",
            "http://h:1",
            "h o:1",
        ] {
            assert!(Endpoint::new(bad).is_err(), "{bad}");
        }
    }
}
