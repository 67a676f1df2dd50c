//! One entry on its way: what is left of its TTL, then what `DUMP` gave.

use bytes::{BufMut, Bytes, BytesMut};

/// An entry as one server gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What is left of its life, in ms; 0 = it has no TTL.
    pub ttl_ms: u64,
    /// The server's own serialised form, with version and checksum.
    pub dump: Bytes,
}

impl Entry {
    /// The bytes that travel as a record's value: TTL, 8 bytes big-endian, then the dump.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(8 + self.dump.len());
        bytes.put_u64(self.ttl_ms);
        bytes.put_slice(&self.dump);
        bytes.freeze()
    }

    /// None where the bytes are too short to be one.
    pub(crate) fn from_bytes(bytes: &Bytes) -> Option<Self> {
        let (ttl, _) = bytes.split_first_chunk::<8>()?;
        Some(Self {
            ttl_ms: u64::from_be_bytes(*ttl),
            dump: bytes.slice(8..),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_as_it_went() {
        for (ttl_ms, dump) in [(0, &b"\0dump"[..]), (u64::MAX, b""), (1_500, b"x")] {
            let dump = Bytes::from_static(dump);
            let entry = Entry { ttl_ms, dump };
            assert_eq!(Entry::from_bytes(&entry.to_bytes()), Some(entry));
        }
        assert_eq!(Entry::from_bytes(&Bytes::from_static(b"1234567")), None);
    }
}
