//! Why input was refused, where, and what to do about it.

use std::io;

/// Input that makes no sense. [`InputError::next`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file as named.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file breaks off or is damaged, after so many whole lines.
    #[error("{path}, after line {line}: {source}")]
    Damaged {
        /// The file as named.
        path: String,
        /// Whole lines read before it.
        line: u64,
        /// What the reader says.
        source: io::Error,
    },
    /// A line has the wrong number of columns.
    #[error("{path}, line {line}: {found} columns, expected {expected}")]
    Columns {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
        /// Columns found.
        found: usize,
        /// What was expected.
        expected: String,
    },
    /// The first line names columns, but not those that are needed.
    #[error("{path}, line {line}: the header has no column {column:?}")]
    Header {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
        /// The missing column.
        column: &'static str,
    },
    /// A field is no number.
    #[error("{path}, line {line}: {column} is {found:?}, expected a whole number below 2^53")]
    Number {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
        /// Which column.
        column: &'static str,
        /// What was found.
        found: String,
    },
    /// A quoted field does not end on its line.
    #[error("{path}, line {line}: a quote is opened and not closed")]
    Quote {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
    },
    /// A key is empty.
    #[error("{path}, line {line}: the key is empty")]
    EmptyKey {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
    },
    /// A line is longer than lines may be.
    #[error("{path}, line {line}: more than {limit} bytes")]
    LineLength {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// A sum leaves the numbers that JSON readers can hold.
    #[error("{path}, line {line}: the sum of {column} reaches 2^53")]
    Sum {
        /// The file as named.
        path: String,
        /// From 1.
        line: u64,
        /// Which column.
        column: &'static str,
    },
    /// Nothing to measure with.
    #[error("{path}: no line holds a key")]
    NoKeys {
        /// The file as named.
        path: String,
    },
    /// A flag or a key of the scenario has a value that makes no sense.
    #[error("{what} is {found}, expected {expected}")]
    Setting {
        /// The setting as users write it.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A scenario file is not one.
    #[error("{path}: {message}")]
    Scenario {
        /// The file as named.
        path: String,
        /// What is wrong, with its line.
        message: String,
    },
    /// An event that cannot be read or cannot happen.
    #[error("event {text:?}: {problem}")]
    Event {
        /// The event as written.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// A layout cannot do what was asked.
    #[error("layout {layout}: {problem}")]
    Layout {
        /// Its name.
        layout: String,
        /// What it cannot do.
        problem: String,
    },
}

impl InputError {
    /// What to do next, in one sentence.
    #[must_use]
    pub fn next(&self) -> String {
        match self {
            Self::File { .. } => "name a file that this user can read (or write)".into(),
            Self::Damaged { .. } => {
                "fetch or write the file again; `gzip -t` checks a compressed one".into()
            }
            Self::Columns { .. } | Self::Header { .. } => {
                "write key, bytes, requests separated by commas or tabs; a first line with these \
                 names may put them in another order"
                    .into()
            }
            Self::Number { .. } => "write digits alone: no sign, unit, point or blank".into(),
            Self::Quote { .. } => {
                "double quotes inside a quoted field (\"\"); a record is one line".into()
            }
            Self::EmptyKey { .. } => "remove the line or give it a key".into(),
            Self::LineLength { .. } => "shorten the key, or leave the line out".into(),
            Self::Sum { .. } => "split the trace; sums are kept exact below 2^53".into(),
            Self::NoKeys { .. } => "name a file with one key a line".into(),
            Self::Setting { what, .. } => format!("correct {what}"),
            Self::Scenario { .. } => {
                "correct the file; docs/placement.md lists every key with its default".into()
            }
            Self::Event { .. } => {
                "write \"join NODE zone=Z weight=W\", \"join +N\", \"drain NODE\", \"fail NODE\", \
                 \"weight NODE W\" or \"flap NODE TIMES\"; commas put several into one change"
                    .into()
            }
            Self::Layout { .. } => "choose another layout or other nodes".into(),
        }
    }
}

/// A setting that makes no sense.
pub(crate) fn setting(
    what: &'static str,
    found: impl ToString,
    expected: impl ToString,
) -> InputError {
    InputError::Setting {
        what,
        found: found.to_string(),
        expected: expected.to_string(),
    }
}
