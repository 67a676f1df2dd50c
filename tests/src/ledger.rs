//! What was written, what was acknowledged, and so what a read may answer.
//!
//! Each key has one writer, who numbers its writes 1, 2, 3, ... and makes them one after the other.
//! A value carries its number, so an answer alone tells which write it is from:
//!
//! ```text
//!   writes of one key    1 acked    2 acked    3 refused    4 unknown    (no more)
//!   a read may answer               2                       2 or 4       never 1, never 3
//! ```
//!
//! A key whose last write has an unknown outcome gets no further one: that write may still take
//! effect, and after a later one it would look like a loss.

use annulus_ring::{Epoch, Position, Slot};

/// An acknowledged write.
#[derive(Clone, Debug)]
pub struct Ack {
    /// Which key.
    pub key: Vec<u8>,
    /// Its slot.
    pub slot: Slot,
    /// It was a delete.
    pub delete: bool,
    /// The position that the owner gave it.
    pub version: Position,
    /// The epoch by which the owner judged it.
    pub epoch: Epoch,
}

/// One key and its writes.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its slot.
    pub slot: Slot,
    /// Number of the last write issued.
    issued: u64,
    /// What is to be read: the last acknowledged write.
    settled: Content,
    /// A write of unknown outcome, which may be read instead.
    maybe: Option<Content>,
}

/// What a key holds after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing was ever acknowledged.
    Never,
    /// The value of this write.
    Value(u64),
    /// This write deleted it.
    Deleted(u64),
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it may be.
    Right,
    /// An acknowledged write is not there.
    Lost,
    /// A deleted key is there.
    Resurrected,
    /// A value that nobody wrote to this key, or that was refused.
    Foreign,
}

impl Key {
    /// A key that was never written.
    #[must_use]
    pub fn new(bytes: Vec<u8>, slot: Slot) -> Self {
        Self {
            bytes,
            slot,
            issued: 0,
            settled: Content::Never,
            maybe: None,
        }
    }

    /// Whether it takes no more writes.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.maybe.is_some()
    }

    /// Whether a write of it was acknowledged.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.settled != Content::Never
    }

    /// Whether a delete of it was the last that was acknowledged.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        matches!(self.settled, Content::Deleted(_))
    }

    /// Begins the next write: its content, and its value unless it is a delete.
    pub fn begin(&mut self, delete: bool, value_bytes: usize) -> (Content, Option<Vec<u8>>) {
        self.issued += 1;
        if delete {
            return (Content::Deleted(self.issued), None);
        }
        (
            Content::Value(self.issued),
            Some(value(self.issued, value_bytes)),
        )
    }

    /// The write was acknowledged.
    pub fn acknowledged(&mut self, content: Content) {
        self.settled = content;
    }

    /// The write may or may not have happened, or may yet.
    pub fn unknown(&mut self, content: Content) {
        self.maybe = Some(content);
    }

    /// Judges the answer of an exact read that began after the last write ended.
    #[must_use]
    pub fn judge(&self, answer: Option<&[u8]>) -> Verdict {
        let number = answer.map(number_of);
        let explains = |content: Content| match (content, number) {
            (Content::Never | Content::Deleted(_), None) => true,
            (Content::Value(written), Some(found)) => found == Some(written),
            _ => false,
        };
        if explains(self.settled) || self.maybe.is_some_and(explains) {
            return Verdict::Right;
        }
        match (self.settled, number) {
            (_, None) => Verdict::Lost,
            (_, Some(None)) => Verdict::Foreign,
            (Content::Deleted(at), Some(Some(found))) if found < at => Verdict::Resurrected,
            (Content::Value(at), Some(Some(found))) if found < at => Verdict::Lost,
            _ => Verdict::Foreign,
        }
    }
}

const NUMBER_BYTES: usize = 8;

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(bytes.max(NUMBER_BYTES), number as u8);
    value
}

fn number_of(value: &[u8]) -> Option<u64> {
    let (number, padding) = value.split_at_checked(NUMBER_BYTES)?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    padding
        .iter()
        .all(|byte| *byte == number as u8)
        .then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new(b"k".to_vec(), Slot(0))
    }

    fn write(key: &mut Key, delete: bool) -> Option<Vec<u8>> {
        let (content, value) = key.begin(delete, 16);
        key.acknowledged(content);
        value
    }

    #[test]
    fn an_acknowledged_write_must_be_read() {
        let mut key = key();
        assert_eq!(key.judge(None), Verdict::Right);
        let first = write(&mut key, false);
        let second = write(&mut key, false);
        assert_eq!(key.judge(second.as_deref()), Verdict::Right);
        assert_eq!(key.judge(first.as_deref()), Verdict::Lost);
        assert_eq!(key.judge(None), Verdict::Lost);
    }

    #[test]
    fn a_deleted_key_must_not_come_back() {
        let mut key = key();
        let first = write(&mut key, false);
        write(&mut key, true);
        assert_eq!(key.judge(None), Verdict::Right);
        assert_eq!(key.judge(first.as_deref()), Verdict::Resurrected);
    }

    #[test]
    fn a_write_of_unknown_outcome_may_be_read_or_not() {
        let mut key = key();
        let first = write(&mut key, false);
        let (content, flying) = key.begin(false, 16);
        key.unknown(content);
        assert_eq!(key.judge(first.as_deref()), Verdict::Right);
        assert_eq!(key.judge(flying.as_deref()), Verdict::Right);
        assert_eq!(key.judge(None), Verdict::Lost);
        assert!(key.is_retired());
    }

    #[test]
    fn a_refused_write_must_not_be_read() {
        let mut key = key();
        write(&mut key, false);
        let (_, refused) = key.begin(false, 16);
        assert_eq!(key.judge(refused.as_deref()), Verdict::Foreign);
        assert_eq!(key.judge(Some(b"short")), Verdict::Foreign);
    }
}
