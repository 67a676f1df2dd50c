//! A copy's digest tree: the sum over a copy ([`crate::digest`]) is its root, and sums over keys
//! that fall together are its leaves. Pure.
//!
//! ```text
//!   root: evidence of a transition             sum of all
//!                                        /     |     ...    \
//!   leaves: 2^depth of them           sum 0  sum 1       sum 2^depth - 1
//!   records: by the first bits of a hash of their keys
//! ```
//!
//! Leaves are asked for only where roots differ, or where a copy begins with what its node kept of
//! before. Then the two sides compare leaves, tell each other's records of those that differ, and
//! nothing else is fetched. One level of leaves is enough: 4,096 of them are 128 KiB, and with a
//! million records in a range a difference costs some 250 keys on the wire.
//!
//! The two sides are not read at the same cut. A record that is written meanwhile makes its leaf
//! differ for nothing and is fetched once more than needed; merging is by version, so that harms
//! nobody, and the digest at one cut, which follows, is what proves anything.

use std::collections::{BTreeSet, HashMap};

use annulus_ring::Position;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::{
    digest::{self, Sum},
    store::{Record, StoreError},
};

/// Deepest tree: 4,096 leaves.
pub(crate) const MAX_DEPTH: u32 = 12;
/// Records that one leaf should stand for.
const RECORDS_PER_LEAF: u64 = 64;
/// Most records, and bytes of their keys, that are told in one question; a leaf at least.
const TOLD_RECORDS: u64 = 16_384;
const TOLD_KEY_BYTES: u64 = 1 << 20;

/// The leaf of a key in a tree of this depth.
pub(crate) fn leaf_of(key: &[u8], depth: u32) -> u32 {
    let hash = Sha256::new_with_prefix(b"annulus leaf v1")
        .chain_update(key)
        .finalize();
    let first = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    first.checked_shr(u32::BITS - depth).unwrap_or(0)
}

#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    sum: Sum,
    key_bytes: u64,
}

/// The leaves over some records.
#[derive(Clone, Debug)]
pub(crate) struct Leaves {
    depth: u32,
    leaves: Vec<Leaf>,
}

impl Leaves {
    /// Of these records. One pass, two hashes a record.
    pub(crate) fn of(
        records: impl Iterator<Item = Result<Record, StoreError>>,
        depth: u32,
    ) -> Result<Self, StoreError> {
        let mut leaves = vec![Leaf::default(); 1 << depth];
        for record in records {
            let record = record?;
            let leaf = &mut leaves[leaf_of(&record.key, depth) as usize];
            leaf.sum.add(digest::hash(&record));
            leaf.key_bytes += record.key.len() as u64;
        }
        Ok(Self { depth, leaves })
    }

    /// As deep as the number of records is worth: neighbours are added up.
    pub(crate) fn fitted(mut self) -> Self {
        let records: u64 = self.leaves.iter().map(|leaf| leaf.sum.records).sum();
        let worth = (records / RECORDS_PER_LEAF).checked_ilog2().unwrap_or(0);
        while self.depth > worth {
            self.depth -= 1;
            let pairs = self.leaves.chunks_exact(2).map(|pair| {
                let mut both = pair[0];
                both.sum.append(pair[1].sum);
                both.key_bytes += pair[1].key_bytes;
                both
            });
            self.leaves = pairs.collect();
        }
        self
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// What is sent: 32 bytes a leaf.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let sums = self.leaves.iter().flat_map(|leaf| leaf.sum.to_bytes());
        sums.collect::<Vec<u8>>().into()
    }

    /// Leaves that are unlike the other side's; none, if that is not the bytes of a tree of this
    /// depth.
    pub(crate) fn unlike(&self, other: &[u8]) -> Option<Vec<u32>> {
        if other.len() != self.leaves.len() * 32 {
            return None;
        }
        let pairs = (0..).zip(self.leaves.iter().zip(other.chunks_exact(32)));
        let differ = pairs.filter(|(_, (leaf, other))| leaf.sum.to_bytes() != *other);
        Some(differ.map(|(at, _)| at).collect())
    }

    /// Cuts leaves into questions of bounded size.
    pub(crate) fn questions(&self, leaves: Vec<u32>) -> Vec<BTreeSet<u32>> {
        let mut questions: Vec<BTreeSet<u32>> = Vec::new();
        let (mut records, mut key_bytes) = (0, 0);
        for at in leaves {
            let leaf = self.leaves[at as usize];
            records += leaf.sum.records;
            key_bytes += leaf.key_bytes;
            match questions.last_mut() {
                Some(last) if records <= TOLD_RECORDS && key_bytes <= TOLD_KEY_BYTES => {
                    last.insert(at);
                }
                _ => {
                    (records, key_bytes) = (leaf.sum.records, leaf.key_bytes);
                    questions.push(BTreeSet::from([at]));
                }
            }
        }
        questions
    }
}

/// A record as it is told of: its value is in the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub key: Bytes,
    pub version: Position,
    pub hash: u64,
}

impl Told {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            key: record.key.clone(),
            version: record.version,
            hash: digest::hash(record).0[0],
        }
    }
}

/// What an owner holds otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The asker lacks this record, or has it older.
    Missing(Record),
    /// The record at this place of the question stands so at the owner, or not at all.
    Stray { at: u32, instead: Option<Record> },
}

/// Compares the owner's records in these leaves with what is told of the asker's. Ends early when
/// `found` says that nobody reads on. One pass over `records`.
pub(crate) fn compare(
    records: impl Iterator<Item = Result<Record, StoreError>>,
    depth: u32,
    leaves: &BTreeSet<u32>,
    told: Vec<Told>,
    mut found: impl FnMut(Difference) -> bool,
) -> Result<(), StoreError> {
    let mut told: HashMap<Bytes, (u32, Told)> = (0..)
        .zip(told)
        .map(|(at, told)| (told.key.clone(), (at, told)))
        .collect();
    for record in records {
        let record = record?;
        if !leaves.contains(&leaf_of(&record.key, depth)) {
            continue;
        }
        let difference = match told.remove(&record.key) {
            Some((_, other)) if other == Told::of(&record) => continue,
            Some((at, other)) if other.version >= record.version => Difference::Stray {
                at,
                instead: Some(record),
            },
            Some(_) | None => Difference::Missing(record),
        };
        if !found(difference) {
            return Ok(());
        }
    }
    let absent: BTreeSet<u32> = told.into_values().map(|(at, _)| at).collect();
    for at in absent {
        if !found(Difference::Stray { at, instead: None }) {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use annulus_ring::Epoch;

    use super::*;

    fn record(key: u32, seq: u64, value: &'static str) -> Record {
        Record {
            key: Bytes::from(key.to_string()),
            version: Position::new(Epoch(1), seq),
            value: Some(Bytes::from_static(value.as_bytes())),
        }
    }

    fn some(count: u32) -> Vec<Record> {
        (0..count)
            .map(|n| record(n, u64::from(n) + 1, "v"))
            .collect()
    }

    fn leaves(records: &[Record], depth: u32) -> Leaves {
        Leaves::of(records.iter().cloned().map(Ok), depth).unwrap()
    }

    /// What an asker with `held` is told by an owner with `records`, over all leaves that differ.
    fn told(held: &[Record], records: &[Record]) -> Vec<Difference> {
        let here = leaves(held, MAX_DEPTH).fitted();
        let there = leaves(records, here.depth()).to_bytes();
        let mut found = Vec::new();
        for question in here.questions(here.unlike(&there).unwrap()) {
            let in_question =
                |record: &&Record| question.contains(&leaf_of(&record.key, here.depth()));
            let held = held.iter().filter(in_question).map(Told::of).collect();
            let records = records.iter().cloned().map(Ok);
            compare(records, here.depth(), &question, held, |difference| {
                found.push(difference);
                true
            })
            .unwrap();
        }
        found
    }

    #[test]
    fn trees_of_one_depth_agree_however_they_were_made() {
        let records = some(10_000);
        let fitted = leaves(&records, MAX_DEPTH).fitted();
        assert_eq!(
            fitted.depth(),
            7,
            "10,000 records / 64 = 156 leaves, cut down to 128"
        );
        assert_eq!(fitted.to_bytes(), leaves(&records, 7).to_bytes());
        assert_eq!(leaves(&[], MAX_DEPTH).fitted().to_bytes().len(), 32);
        assert_eq!(leaf_of(b"any", 0), 0);
    }

    #[test]
    fn equal_copies_have_nothing_to_tell() {
        let records = some(1_000);
        assert_eq!(told(&records, &records), []);
        assert_eq!(told(&[], &[]), []);
    }

    #[test]
    fn every_difference_is_told_and_nothing_else() {
        let owner = some(5_000);
        let mut held = owner.clone();
        held.retain(|record| record.key != "17");
        let position = |held: &[Record], key: &str| held.iter().position(|one| one.key == key);
        let at = position(&held, "18").unwrap();
        held[at].value = Some(Bytes::from_static(b"w"));
        let at = position(&held, "19").unwrap();
        held[at].version.seq = 0;
        let at = position(&held, "20").unwrap();
        held[at].version.seq += 9_000;
        held.push(record(6_000, 1, "extra"));
        let (mut missing, mut instead, mut absent) = (Vec::new(), Vec::new(), 0);
        for difference in told(&held, &owner) {
            match difference {
                Difference::Missing(record) => missing.push(record.key),
                Difference::Stray {
                    instead: Some(record),
                    ..
                } => instead.push(record.key),
                Difference::Stray { instead: None, .. } => absent += 1,
            }
        }
        missing.sort();
        instead.sort();
        assert_eq!(missing, ["17", "19"], "lacked, and older");
        assert_eq!(
            instead,
            ["18", "20"],
            "another value, and newer than the owner's"
        );
        assert_eq!(absent, 1, "6000");
    }

    #[test]
    fn an_empty_copy_is_told_everything() {
        let owner = some(300);
        assert_eq!(told(&[], &owner).len(), 300);
        assert_eq!(told(&owner, &[]).len(), 300);
    }

    #[test]
    fn a_tree_of_another_size_is_none() {
        let here = leaves(&some(10), 2);
        assert_eq!(here.unlike(&[0; 32]), None);
        assert_eq!(here.unlike(&here.to_bytes()), Some(vec![]));
    }

    #[test]
    fn questions_are_bounded() {
        let records = some(100_000);
        let here = leaves(&records, 8);
        let questions = here.questions((0..256).collect());
        let asked: usize = questions.iter().map(BTreeSet::len).sum();
        assert_eq!(asked, 256, "each leaf once");
        for question in &questions {
            let leaves = question.iter().map(|at| here.leaves[*at as usize]);
            assert!(leaves.map(|leaf| leaf.sum.records).sum::<u64>() <= TOLD_RECORDS);
        }
        assert_eq!(questions.len(), 7, "100,000 / 16,384, rounded up");
        // A leaf that is too large alone is asked about alone.
        let single = leaves(&records, 0);
        assert_eq!(single.questions(vec![0]), [BTreeSet::from([0])]);
    }
}
