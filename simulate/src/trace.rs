//! Traces: lines of key, bytes, requests, separated by commas or tabs.
//!
//! ```text
//!   key,bytes,requests        a header is allowed, in any order and with more columns
//!   user:17,2048,120
//!   "a,b",64,3                quotes as in RFC 4180, but a record is one line
//! ```

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use crate::{
    InputError,
    keys::{MAX_LINE_BYTES, MAX_SUM, Source, Synthetic, Totals},
    progress::Progress,
};

const NAMES: [&str; 3] = ["key", "bytes", "requests"];

/// How a trace's lines are split, and where its three columns are.
pub(crate) struct Columns {
    reader: csv_core::Reader,
    /// Places of key, bytes, requests.
    at: [usize; 3],
    /// Columns of every line.
    count: usize,
    fields: Vec<u8>,
    ends: Vec<usize>,
}

impl Columns {
    /// Learns the separator from the first line, and whether that line is a header.
    pub fn detect(line: &[u8], path: &str, number: u64) -> Result<(Self, bool), InputError> {
        let tabs = line.contains(&b'\t');
        let mut columns = Self {
            reader: csv_core::ReaderBuilder::new()
                .delimiter(if tabs { b'\t' } else { b',' })
                .quoting(!tabs)
                .build(),
            at: [0, 1, 2],
            count: 3,
            fields: vec![0; MAX_LINE_BYTES + 2],
            ends: vec![0; 64],
        };
        let found = columns.split(line, path, number)?;
        let field = |columns: &Self, at: usize| {
            String::from_utf8_lossy(columns.field(at))
                .trim()
                .to_lowercase()
        };
        let names: Vec<String> = (0..found).map(|at| field(&columns, at)).collect();
        if !names.iter().any(|name| NAMES.contains(&name.as_str())) {
            return Ok((columns, false));
        }
        // A first line whose numbers are numbers is data, even if its key is called "key".
        if found == 3 && names[1..].iter().all(|name| name.parse::<u64>().is_ok()) {
            return Ok((columns, false));
        }
        for (place, column) in columns.at.iter_mut().zip(NAMES) {
            let at = names.iter().position(|name| name == column);
            *place = at.ok_or_else(|| InputError::Header {
                path: path.to_owned(),
                line: number,
                column,
            })?;
        }
        columns.count = found;
        Ok((columns, true))
    }

    /// Key, bytes and requests of a line.
    pub fn parse(
        &mut self,
        line: &[u8],
        path: &str,
        number: u64,
    ) -> Result<(&[u8], u64, u64), InputError> {
        let found = self.split(line, path, number)?;
        if found != self.count {
            let expected = match self.count {
                3 => "3: key, bytes, requests".to_owned(),
                count => format!("{count}, as the header has"),
            };
            return Err(InputError::Columns {
                path: path.to_owned(),
                line: number,
                found,
                expected,
            });
        }
        let [key, bytes, requests] = self.at;
        let bytes = self.number(bytes, "bytes", path, number)?;
        let requests = self.number(requests, "requests", path, number)?;
        let key = self.field(key);
        if key.is_empty() {
            return Err(InputError::EmptyKey {
                path: path.to_owned(),
                line: number,
            });
        }
        Ok((key, bytes, requests))
    }

    fn number(
        &self,
        at: usize,
        column: &'static str,
        path: &str,
        line: u64,
    ) -> Result<u64, InputError> {
        let text = String::from_utf8_lossy(self.field(at));
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(number) if digits && number < MAX_SUM => Ok(number),
            _ => Err(InputError::Number {
                path: path.to_owned(),
                line,
                column,
                found: text.chars().take(40).collect(),
            }),
        }
    }

    fn field(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.fields[start..self.ends[at]]
    }

    /// Splits a line into `fields` and `ends`; gives the number of columns.
    fn split(&mut self, line: &[u8], path: &str, number: u64) -> Result<usize, InputError> {
        self.reader.reset();
        let mut input = line.to_vec();
        input.push(b'\n');
        let (result, _, _, ends) =
            self.reader
                .read_record(&input, &mut self.fields, &mut self.ends);
        match result {
            csv_core::ReadRecordResult::Record => Ok(ends),
            csv_core::ReadRecordResult::OutputEndsFull => Err(InputError::Columns {
                path: path.to_owned(),
                line: number,
                found: ends + 1,
                expected: "at most 64".to_owned(),
            }),
            _ => Err(InputError::Quote {
                path: path.to_owned(),
                line: number,
            }),
        }
    }
}

/// Writes a synthetic trace: with a header, tabs if the name says `.tsv`, gzip if it ends in
/// `.gz`. A line is at most a key of 21 bytes and two numbers; nothing is collected.
///
/// # Errors
/// [`InputError`] when the settings make no sense or the file cannot be written.
pub fn generate(
    synthetic: &Synthetic,
    path: &Path,
    progress: &dyn Progress,
) -> Result<Totals, InputError> {
    synthetic.check()?;
    let refused = |source| InputError::File {
        path: path.display().to_string(),
        source,
    };
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let delimiter = if name.trim_end_matches(".gz").ends_with(".tsv") {
        b'\t'
    } else {
        b','
    };
    let file = BufWriter::new(File::create(path).map_err(refused)?);
    let mut out = if name.ends_with(".gz") {
        Out::Gzip(flate2::write::GzEncoder::new(
            file,
            flate2::Compression::default(),
        ))
    } else {
        Out::Plain(file)
    };
    let mut failed = None;
    let mut writer = csv::WriterBuilder::new()
        .delimiter(delimiter)
        .from_writer(&mut out);
    let mut keep = |written: csv::Result<()>| {
        if let Err(error) = written
            && failed.is_none()
        {
            failed = Some(std::io::Error::from(error));
        }
    };
    keep(writer.write_record(NAMES));
    let totals = Source::Synthetic(*synthetic).visit(progress, |record| {
        let (bytes, requests) = (record.bytes.to_string(), record.requests.to_string());
        keep(writer.write_record([record.key, bytes.as_bytes(), requests.as_bytes()]));
    })?;
    keep(writer.flush().map_err(Into::into));
    drop(writer);
    match failed {
        Some(error) => Err(refused(error)),
        None => out.finish().map_err(refused).map(|()| totals),
    }
}

/// A file, compressed or not.
enum Out {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
}

impl Out {
    /// Writes what is held back, and the end of the stream.
    fn finish(self) -> std::io::Result<()> {
        match self {
            Self::Plain(mut file) => file.flush(),
            Self::Gzip(encoder) => encoder.finish()?.flush(),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            // Flushing would begin a new block; `finish` writes everything.
            Self::Gzip(_) => Ok(()),
        }
    }
}
