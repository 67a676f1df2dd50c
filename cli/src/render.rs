//! How data is printed: tables for people, JSON for programs.
//!
//! JSON readers that know only doubles bend integers above 2^53, so whatever may exceed that is
//! a string here: epochs, hashes, tokens, positions, counters. Checksums and ids are
//! hexadecimal strings.

use std::{
    fmt,
    io::{self, Write},
};

use comfy_table::{ContentArrangement, Table, presets};
use serde::{Serialize, Serializer};

use crate::{
    args::Output,
    exit::{Failure, Result},
};

/// A number of 64 bits: a decimal string in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wide(pub u64);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}
impl fmt::Display for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl From<u64> for Wide {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

/// A point on the circle or a hash: 16 hexadecimal digits, in JSON too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex64(pub u64);

impl Serialize for Hex64 {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
impl fmt::Display for Hex64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Something that can be printed both ways.
pub trait Render: Serialize {
    /// The form for people; ends with a newline.
    fn table(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Prints `value` to standard output in the form that was asked for.
///
/// # Errors
/// Failed, if standard output cannot be written. A reader that went away (`| head`) is no error.
pub fn print(output: Output, value: &impl Render) -> Result {
    let mut bytes = Vec::new();
    match output {
        Output::Table => value.table(&mut bytes)?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut bytes, value).map_err(io::Error::from)?;
            bytes.push(b'\n');
        }
        Output::Csv => return Err(no_csv()),
    }
    write_all(&bytes)
}

/// Prints `value` as one item of a stream: in JSON, one object a line.
///
/// # Errors
/// See [`print`].
pub fn print_item(output: Output, value: &impl Render) -> Result {
    let mut bytes = Vec::new();
    match output {
        Output::Table => value.table(&mut bytes)?,
        Output::Json => {
            serde_json::to_writer(&mut bytes, value).map_err(io::Error::from)?;
            bytes.push(b'\n');
        }
        Output::Csv => return Err(no_csv()),
    }
    write_all(&bytes)
}

fn no_csv() -> Failure {
    Failure::usage(
        "only `annulus simulate` and `annulus compare` print CSV",
        "say -o json",
    )
}

/// Writes bytes to standard output as they are.
///
/// # Errors
/// See [`print`].
pub fn write_all(bytes: &[u8]) -> Result {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// A table without lines: readable, and easy for `awk`.
#[must_use]
pub fn columns(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}

/// Writes a table with each line's trailing blanks cut.
///
/// # Errors
/// The writer's.
pub fn write_table(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    table
        .lines()
        .try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// A span of time for people, from ms.
#[must_use]
pub fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// A number with thousands set apart.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes for people, from a number of them: three digits, rounded down.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut scale: u64 = 1;
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    let whole = bytes / scale;
    let tenth = u128::from(bytes % scale) * 10 / u128::from(scale);
    if unit == 0 || whole >= 100 {
        format!("{whole} {}", UNITS[unit])
    } else {
        format!("{whole}.{tenth} {}", UNITS[unit])
    }
}

/// How long ago a wall clock in ms since 1970 showed this; clocks of two machines differ.
#[must_use]
pub fn ago(created_at_ms: u64) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
    format!("{} ago", span(now.saturating_sub(created_at_ms)))
}

/// The first 8 digits of a checksum, for tables.
#[must_use]
pub fn short(hex: &str) -> &str {
    hex.get(..8).unwrap_or(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_numbers_survive_readers_that_know_only_doubles() {
        // Case C10: 2^53 + 1 is the first integer that a double cannot hold.
        for number in [0, 1, (1 << 53) + 1, u64::MAX] {
            let json = serde_json::to_string(&Wide(number)).expect("serializes");
            assert_eq!(json, format!("\"{number}\""));
        }
        assert_eq!(
            serde_json::to_string(&Hex64(u64::MAX)).expect("ok"),
            "\"ffffffffffffffff\""
        );
    }

    #[test]
    fn numbers_and_spans_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(span(999), "999 ms");
        assert_eq!(span(2_340), "2.3 s");
        assert_eq!(span(125_000), "2 min 5 s");
        assert_eq!(span(7_260_000), "2 h 1 min");
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1_023), "1023 B");
        assert_eq!(size(1_024), "1.0 KiB");
        assert_eq!(size(203 << 30), "203 GiB");
        assert_eq!(size(u64::MAX), "15.9 EiB");
    }

    #[test]
    fn tables_have_no_trailing_blanks() {
        let mut table = columns(&["NODE", "ZONE"]);
        table.add_row(["n1", "z1"]).add_row(["longer", "z"]);
        let mut out = Vec::new();
        write_table(&mut out, &table).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
        assert_eq!(text.lines().count(), 3);
    }
}
