//! What a request may carry. Checked by the client before it sends and by the node before it does
//! anything.

use bytes::Bytes;

/// Longest key, in bytes; the shortest has 1.
pub const MAX_KEY_BYTES: usize = 1_024;
/// Longest value, in bytes; it may be empty.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
/// Most writes in one batch.
pub const MAX_BATCH_ITEMS: usize = 1_000;
/// Most bytes of keys and values in one batch.
pub const MAX_BATCH_BYTES: usize = 4 << 20;
/// Largest message on this protocol, in bytes; both ends set it. A full batch with what surrounds
/// its keys and values fits.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// A request that breaks a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The empty byte string is no key.
    #[error("the key is empty; 1 to {MAX_KEY_BYTES} bytes are allowed")]
    KeyEmpty,
    /// More than [`MAX_KEY_BYTES`].
    #[error("the key has {found} bytes, at most {MAX_KEY_BYTES} are allowed")]
    KeyTooLong {
        /// Bytes given.
        found: usize,
    },
    /// More than [`MAX_VALUE_BYTES`].
    #[error("the value has {found} bytes, at most {MAX_VALUE_BYTES} are allowed")]
    ValueTooLong {
        /// Bytes given.
        found: usize,
    },
    /// More than [`MAX_BATCH_ITEMS`].
    #[error("the batch has {found} writes, at most {MAX_BATCH_ITEMS} are allowed; split it")]
    BatchTooLong {
        /// Writes given.
        found: usize,
    },
    /// More than [`MAX_BATCH_BYTES`].
    #[error("the batch has {found} bytes, at most {MAX_BATCH_BYTES} are allowed; split it")]
    BatchTooLarge {
        /// Bytes of keys and values given.
        found: usize,
    },
}

impl LimitError {
    /// The name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::KeyEmpty => "KeyEmpty",
            Self::KeyTooLong { .. } => "KeyTooLong",
            Self::ValueTooLong { .. } => "ValueTooLong",
            Self::BatchTooLong { .. } => "BatchTooLong",
            Self::BatchTooLarge { .. } => "BatchTooLarge",
        }
    }
}

/// Checks a key.
///
/// # Errors
/// [`LimitError::KeyEmpty`], [`LimitError::KeyTooLong`].
pub fn check_key(key: &[u8]) -> Result<(), LimitError> {
    match key.len() {
        0 => Err(LimitError::KeyEmpty),
        found if found > MAX_KEY_BYTES => Err(LimitError::KeyTooLong { found }),
        _ => Ok(()),
    }
}

/// Checks a write: its key, and its value where it has one.
///
/// # Errors
/// As [`check_key`], and [`LimitError::ValueTooLong`].
pub fn check_write(key: &[u8], value: Option<&[u8]>) -> Result<(), LimitError> {
    check_key(key)?;
    match value.map_or(0, <[u8]>::len) {
        found if found > MAX_VALUE_BYTES => Err(LimitError::ValueTooLong { found }),
        _ => Ok(()),
    }
}

/// Checks the size of a batch, not its writes.
///
/// # Errors
/// [`LimitError::BatchTooLong`], [`LimitError::BatchTooLarge`].
pub fn check_batch<'a>(
    items: impl ExactSizeIterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
) -> Result<(), LimitError> {
    let found = items.len();
    if found > MAX_BATCH_ITEMS {
        return Err(LimitError::BatchTooLong { found });
    }
    let found = items
        .map(|(key, value)| key.len() + value.map_or(0, Bytes::len))
        .sum();
    if found > MAX_BATCH_BYTES {
        return Err(LimitError::BatchTooLarge { found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive_and_named() {
        assert_eq!(check_key(b""), Err(LimitError::KeyEmpty));
        assert_eq!(check_key(&[0; MAX_KEY_BYTES]), Ok(()));
        let long = check_key(&[0; MAX_KEY_BYTES + 1]).unwrap_err();
        assert_eq!(
            (long.name(), long.to_string().contains("1025")),
            ("KeyTooLong", true)
        );
        assert_eq!(check_write(b"k", Some(&[])), Ok(()));
        assert_eq!(check_write(b"k", Some(&vec![0; MAX_VALUE_BYTES])), Ok(()));
        let value = vec![0; MAX_VALUE_BYTES + 1];
        assert!(matches!(
            check_write(b"k", Some(&value)),
            Err(LimitError::ValueTooLong { .. })
        ));

        let key = Bytes::from_static(b"k");
        let many = vec![(&key, None); MAX_BATCH_ITEMS + 1];
        assert_eq!(
            check_batch(many.into_iter()),
            Err(LimitError::BatchTooLong { found: 1_001 })
        );
        let value = Bytes::from(vec![0; MAX_VALUE_BYTES]);
        let large = vec![(&key, Some(&value)); 4];
        let found = 4 * (MAX_VALUE_BYTES + 1);
        assert_eq!(
            check_batch(large.into_iter()),
            Err(LimitError::BatchTooLarge { found })
        );
    }
}
