//! What a key may hold, and what is to be thought of what it holds. Pure.

use annulus_ring::Position;
use bytes::Bytes;
use tokio::time::Instant;

use crate::client::Found;

/// Makes values that say which write they are of.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// Tells this run's values from another's.
    run: u64,
    bytes: usize,
}

impl Values {
    pub fn new(bytes: usize) -> Self {
        Self {
            run: fastrand::u64(..),
            bytes,
        }
    }

    /// The value of a key's n-th write.
    pub fn make(&self, index: usize, write: u64) -> Bytes {
        let mut value = format!("{:016x}-{index}-{write}-", self.run).into_bytes();
        value.resize(self.bytes.max(value.len()), b'x');
        value.into()
    }

    /// Which write of this run a value is of.
    fn parse(&self, index: usize, value: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.splitn(4, '-');
        let run = u64::from_str_radix(parts.next()?, 16).ok()?;
        let of: usize = parts.next()?.parse().ok()?;
        let write: u64 = parts.next()?.parse().ok()?;
        // Every byte must be as written, the padding as well.
        (run == self.run && of == index && *value == *self.make(index, write)).then_some(write)
    }
}

/// What a key may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: never written, or deleted.
    Absent,
    /// The n-th write of this run.
    Write(u64),
    /// A value of another run.
    Foreign(Bytes),
}

/// What a judgement came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    /// An acknowledged write is not seen.
    Lost(String),
    /// A deleted key is back.
    Resurrected(String),
    /// Anything else that cannot be.
    Wrong(String),
}

/// One key's history.
#[derive(Debug)]
pub(super) struct History {
    pub key: Bytes,
    /// The key's number in the load.
    pub index: usize,
    /// Empty: anything. Else the last state that is sure to have been, then what may have
    /// followed, in order.
    possible: Vec<State>,
    /// Whether the first of `possible` was acknowledged (and not only observed).
    acknowledged: bool,
    /// Writes begun.
    writes: u64,
    /// The newest version acknowledged or found.
    version: Position,
    /// Not to be touched before: a write whose outcome is unknown may still be under way.
    pub rests_until: Option<Instant>,
}

impl History {
    pub fn new(key: Bytes, index: usize) -> Self {
        Self {
            key,
            index,
            possible: Vec::new(),
            acknowledged: false,
            writes: 0,
            version: Position::default(),
            rests_until: None,
        }
    }

    /// The number of the put that begins now.
    pub fn begin_put(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// A put (its number) or delete (`None`) was acknowledged.
    pub fn acknowledged(&mut self, write: Option<u64>, version: Position) -> Verdict {
        self.possible.clear();
        self.possible
            .push(write.map_or(State::Absent, State::Write));
        self.acknowledged = true;
        let before = std::mem::replace(&mut self.version, version);
        if version <= before {
            return Verdict::Wrong(format!(
                "key {}: a write got version {version}, {before} was given before",
                self.key.escape_ascii()
            ));
        }
        Verdict::Right
    }

    /// The outcome of a put (its number) or delete (`None`) is unknown; no later operation may
    /// begin before `rests_until`, when it has surely taken its place in the order or never will.
    pub fn unknown(&mut self, write: Option<u64>, rests_until: Instant) {
        self.rests_until = Some(rests_until);
        // Where anything was possible, it stays so.
        if !self.possible.is_empty() {
            self.possible
                .push(write.map_or(State::Absent, State::Write));
        }
    }

    /// What an exact read found.
    pub fn judge(&mut self, values: &Values, found: &Found) -> Verdict {
        let state = match &found.value {
            None => State::Absent,
            Some(value) => match values.parse(self.index, value) {
                Some(write) => State::Write(write),
                None => State::Foreign(value.clone()),
            },
        };
        let verdict = self.verdict(&state, found);
        let at = self.possible.iter().position(|possible| *possible == state);
        match at {
            // What comes before it has been replaced; what comes after may still follow.
            Some(0) => {}
            Some(at) => {
                self.possible.drain(..at);
                self.acknowledged = false;
            }
            None => {
                // Counted once: from here on what was found is what is held.
                self.possible = vec![state];
                self.acknowledged = false;
            }
        }
        if let Some(version) = found.version {
            self.version = self.version.max(version);
        }
        verdict
    }

    fn verdict(&self, state: &State, found: &Found) -> Verdict {
        if self.possible.is_empty() || self.possible.contains(state) {
            return Verdict::Right;
        }
        let key = self.key.escape_ascii();
        let version = found
            .version
            .map_or("none".to_owned(), |version| version.to_string());
        let text = format!(
            "key {key}: expected {:?} (version {}), found {state:?} (version {version}) at epoch {}",
            self.possible, self.version, found.epoch
        );
        match (&self.possible[0], state) {
            _ if !self.acknowledged => Verdict::Wrong(text),
            (State::Absent, _) => Verdict::Resurrected(text),
            (State::Write(_) | State::Foreign(_), State::Absent) => Verdict::Lost(text),
            (State::Write(expected), State::Write(found)) if found < expected => {
                Verdict::Lost(text)
            }
            (State::Write(_), State::Foreign(_)) => Verdict::Lost(text),
            (State::Write(_) | State::Foreign(_), State::Write(_) | State::Foreign(_)) => {
                Verdict::Wrong(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use annulus_ring::Epoch;

    use super::*;

    struct Case {
        values: Values,
        history: History,
        seq: u64,
    }

    impl Case {
        fn new() -> Self {
            let history = History::new(Bytes::from_static(b"k"), 3);
            Self {
                values: Values::new(64),
                history,
                seq: 0,
            }
        }

        fn put(&mut self) -> u64 {
            let write = self.history.begin_put();
            self.seq += 1;
            let version = Position::new(Epoch(1), self.seq);
            assert_eq!(
                self.history.acknowledged(Some(write), version),
                Verdict::Right
            );
            write
        }

        fn delete(&mut self) {
            self.seq += 1;
            let version = Position::new(Epoch(1), self.seq);
            assert_eq!(self.history.acknowledged(None, version), Verdict::Right);
        }

        fn unknown_put(&mut self) -> u64 {
            let write = self.history.begin_put();
            self.history.unknown(Some(write), Instant::now());
            write
        }

        fn find(&mut self, write: Option<u64>) -> Verdict {
            let value = write.map(|write| self.values.make(3, write));
            self.find_value(value)
        }

        fn find_value(&mut self, value: Option<Bytes>) -> Verdict {
            let found = Found {
                value,
                version: None,
                watermark: None,
                epoch: Epoch(1),
            };
            self.history.judge(&self.values, &found)
        }
    }

    #[test]
    fn the_last_acknowledged_write_must_be_found() {
        let mut case = Case::new();
        let first = case.put();
        let second = case.put();
        assert_eq!(case.find(Some(second)), Verdict::Right);
        assert!(matches!(case.find(Some(first)), Verdict::Lost(_)));
        assert_eq!(case.find(Some(first)), Verdict::Right, "counted once");
        case.put();
        assert!(matches!(case.find(None), Verdict::Lost(_)));
    }

    #[test]
    fn a_deleted_key_must_not_come_back() {
        let mut case = Case::new();
        let write = case.put();
        case.delete();
        assert_eq!(case.find(None), Verdict::Right);
        assert!(matches!(case.find(Some(write)), Verdict::Resurrected(_)));
    }

    #[test]
    fn an_unknown_write_may_be_seen_or_not_until_it_is_seen_or_replaced() {
        let mut case = Case::new();
        let sure = case.put();
        let maybe = case.unknown_put();
        assert_eq!(case.find(Some(sure)), Verdict::Right, "not yet");
        assert_eq!(case.find(Some(maybe)), Verdict::Right, "now");
        assert!(
            matches!(case.find(Some(sure)), Verdict::Wrong(_)),
            "and no way back"
        );

        let mut case = Case::new();
        case.put();
        let maybe = case.unknown_put();
        let replaced_by = case.put();
        assert!(matches!(case.find(Some(maybe)), Verdict::Lost(_)));
        case.find(Some(replaced_by));
    }

    #[test]
    fn an_unknown_delete_may_be_seen() {
        let mut case = Case::new();
        let sure = case.put();
        case.history.unknown(None, Instant::now());
        assert_eq!(case.find(Some(sure)), Verdict::Right);
        assert_eq!(case.find(None), Verdict::Right);
        assert!(matches!(case.find(Some(sure)), Verdict::Wrong(_)));
    }

    #[test]
    fn a_key_never_looked_at_may_hold_anything_once() {
        let mut case = Case::new();
        case.unknown_put();
        assert_eq!(
            case.find_value(Some(Bytes::from_static(b"of another run"))),
            Verdict::Right
        );
        assert!(matches!(case.find(None), Verdict::Wrong(_)));
    }

    #[test]
    fn a_value_that_differs_in_one_byte_is_foreign() {
        let mut case = Case::new();
        let write = case.put();
        let mut value = case.values.make(3, write).to_vec();
        *value.last_mut().unwrap() = b'y';
        assert!(matches!(
            case.find_value(Some(value.into())),
            Verdict::Lost(_)
        ));
    }

    #[test]
    fn versions_of_a_key_rise() {
        let mut case = Case::new();
        case.put();
        let again = case.history.acknowledged(None, Position::new(Epoch(1), 1));
        assert!(matches!(again, Verdict::Wrong(_)));
    }
}
