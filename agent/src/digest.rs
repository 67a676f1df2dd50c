//! A copy's digest: a sum over its records that does not depend on their order.
//!
//! Each record is hashed with SHA-256 over an unambiguous encoding; the hash is read as four
//! numbers of 64 bits, which are added lane by lane, wrapping. So a record can be taken out
//! again (what an owner needs to say what its copy was at an older cut), and a copy can be
//! digested in any order, in pieces. The count of records goes with the sum.
//!
//! This finds damage, omission and software that errs, not an adversary who may choose records:
//! additive multiset hashes of 64-bit lanes can be solved for (D. Clarke and others, Incremental
//! Multiset Hash Functions and Their Application to Memory Integrity Checking, 2003).

use annulus_ring::Position;
use sha2::{Digest as _, Sha256};

use crate::store::Record;

/// One record's hash, as four lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHash(pub [u64; 4]);

/// Hashes one record: key (length first), reign, seq, whether it is a tombstone, value (length
/// first). Cost: one SHA-256 over the record.
#[must_use]
pub fn hash_parts(key: &[u8], version: Position, value: Option<&[u8]>) -> RecordHash {
    let mut hasher = Sha256::new_with_prefix(b"annulus record v1");
    hasher.update((key.len() as u64).to_be_bytes());
    hasher.update(key);
    hasher.update(version.reign.0.to_be_bytes());
    hasher.update(version.seq.to_be_bytes());
    // A tombstone and an empty value are told apart by the flag, not by the length.
    hasher.update([u8::from(value.is_none())]);
    let value = value.unwrap_or_default();
    hasher.update((value.len() as u64).to_be_bytes());
    hasher.update(value);
    let bytes: [u8; 32] = hasher.finalize().into();
    let mut lanes = [0; 4];
    for (lane, chunk) in lanes.iter_mut().zip(bytes.chunks_exact(8)) {
        *lane = u64::from_be_bytes(chunk.try_into().expect("chunks of 8 bytes"));
    }
    RecordHash(lanes)
}

/// Hashes one record.
#[must_use]
pub fn hash(record: &Record) -> RecordHash {
    hash_parts(&record.key, record.version, record.value.as_deref())
}

/// The running sum over a multiset of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    lanes: [u64; 4],
    /// Records in the sum.
    pub records: u64,
}

impl Sum {
    /// Of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a record in.
    pub fn add(&mut self, record: RecordHash) {
        for (lane, one) in self.lanes.iter_mut().zip(record.0) {
            *lane = lane.wrapping_add(one);
        }
        self.records = self.records.wrapping_add(1);
    }

    /// Takes a record out that was put in, or that will be: the order does not matter.
    pub fn remove(&mut self, record: RecordHash) {
        for (lane, one) in self.lanes.iter_mut().zip(record.0) {
            *lane = lane.wrapping_sub(one);
        }
        self.records = self.records.wrapping_sub(1);
    }

    /// Puts all records of another sum in.
    pub fn append(&mut self, other: Self) {
        for (lane, one) in self.lanes.iter_mut().zip(other.lanes) {
            *lane = lane.wrapping_add(one);
        }
        self.records = self.records.wrapping_add(other.records);
    }

    /// The 32 bytes that are compared and reported.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, lane) in bytes.chunks_exact_mut(8).zip(self.lanes) {
            chunk.copy_from_slice(&lane.to_be_bytes());
        }
        bytes
    }
}

impl<'a> FromIterator<&'a Record> for Sum {
    fn from_iter<T: IntoIterator<Item = &'a Record>>(records: T) -> Self {
        let mut sum = Self::new();
        records.into_iter().for_each(|record| sum.add(hash(record)));
        sum
    }
}

#[cfg(test)]
mod tests {
    use annulus_ring::Epoch;
    use bytes::Bytes;

    use super::*;

    fn record(key: &'static str, seq: u64, value: Option<&'static str>) -> Record {
        Record {
            key: Bytes::from_static(key.as_bytes()),
            version: Position::new(Epoch(3), seq),
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
        }
    }

    fn sum(records: &[Record]) -> ([u8; 32], u64) {
        let sum: Sum = records.iter().collect();
        (sum.to_bytes(), sum.records)
    }

    #[test]
    fn the_order_of_records_does_not_matter() {
        let mut records: Vec<_> = (0..100)
            .map(|seq| Record {
                version: Position::new(Epoch(1), seq),
                ..record("k", 0, None)
            })
            .collect();
        let forwards = sum(&records);
        records.reverse();
        records.swap(3, 77);
        assert_eq!(sum(&records), forwards);
    }

    #[test]
    fn a_record_taken_out_was_never_in() {
        let (a, b) = (record("a", 1, Some("x")), record("b", 2, None));
        let mut both: Sum = [&a, &b].into_iter().collect();
        both.remove(hash(&b));
        assert_eq!((both.to_bytes(), both.records), sum(&[a]));
    }

    #[test]
    fn any_difference_shows() {
        let base = [record("a", 1, Some("x")), record("b", 2, Some(""))];
        let others: [(&str, Vec<Record>); 7] = [
            (
                "a bit of a value",
                vec![record("a", 1, Some("y")), base[1].clone()],
            ),
            ("a missing record", vec![base[0].clone()]),
            (
                "a record twice",
                vec![base[0].clone(), base[0].clone(), base[1].clone()],
            ),
            (
                "a tombstone for an empty value",
                vec![base[0].clone(), record("b", 2, None)],
            ),
            (
                "another version",
                vec![record("a", 3, Some("x")), base[1].clone()],
            ),
            (
                "another key",
                vec![record("c", 1, Some("x")), base[1].clone()],
            ),
            (
                "a byte moved from value to key",
                vec![record("ax", 1, Some("")), base[1].clone()],
            ),
        ];
        for (what, other) in others {
            assert_ne!(sum(&base), sum(&other), "{what}");
        }
    }
}
