//! Where keys come from: made from a seed, read from a list, or read from a trace.
//!
//! Keys are streamed, never collected: what is kept is one line at a time (at most
//! [`MAX_LINE_BYTES`]) and, for files, the 64-bit hashes and request counts of the first [`MAX_REMEMBERED`] keys, so
//! that a key that comes again adds its requests and is not counted as a second key.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use annulus_ring::HashName;

use crate::{
    InputError,
    error::setting,
    progress::Progress,
    trace::Columns,
    zipf::{Apportion, mix},
};

/// Longest line of a key list or a trace, in bytes.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// Distinct keys of a file that are remembered to recognise repeats: at most 144 MiB.
pub const MAX_REMEMBERED: usize = 4 << 20;
/// Sums of bytes and requests stay below this, so that every JSON reader holds them exactly.
pub const MAX_SUM: u64 = 1 << 53;
/// Most synthetic keys.
pub const MAX_SYNTHETIC: u64 = 1_000_000_000;
/// How many keys pass between two signs of progress.
const TELL_EVERY: u64 = 1 << 16;

/// One key with what it weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its bytes, as they stand.
    pub key: &'a [u8],
    /// How large its value is.
    pub bytes: u64,
    /// How often it is asked for.
    pub requests: u64,
    /// Requests of this key up to and with this record.
    pub so_far: u64,
    /// Whether this is the first record with this key.
    pub first: bool,
}

/// How popularity falls from key to key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// The i-th key gets requests in proportion to 1 / i^s (G. K. Zipf, 1949).
    Zipf(f64),
}

/// How values are sized: every size from `least` to `most` bytes, evenly by order of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Smallest, in bytes.
    pub least: u64,
    /// Largest, in bytes.
    pub most: u64,
}

impl Sizes {
    fn of(self, seed: u64, index: u64) -> u64 {
        if self.least == self.most {
            return self.least;
        }
        // 53 random bits fill a double's fraction.
        let part = (mix(seed ^ 0x0051_57e5, index) >> 11) as f64 / (1_u64 << 53) as f64;
        let (low, high) = ((self.least.max(1) as f64).ln(), (self.most as f64).ln());
        ((low + part * (high - low)).exp().round() as u64).clamp(self.least, self.most)
    }
}

/// Keys made from a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synthetic {
    /// How many.
    pub count: u64,
    /// Equal seeds give equal keys, sizes and requests.
    pub seed: u64,
    /// Who is asked for how often.
    pub popularity: Popularity,
    /// Requests over all keys.
    pub requests: u64,
    /// Sizes of values.
    pub sizes: Sizes,
    /// `user:1`, `user:2`, ..: the pattern of real ids, on which weak hashes show. Else 16
    /// hexadecimal digits after `user:`.
    pub sequential: bool,
}

/// A list of keys in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyList {
    /// The file; gzip is recognised by its first bytes.
    pub path: PathBuf,
    /// Seed of the sizes.
    pub seed: u64,
    /// Who is asked for how often: the first line most.
    pub popularity: Popularity,
    /// Requests over all lines; 0 for ten a line.
    pub requests: u64,
    /// Sizes of values.
    pub sizes: Sizes,
}

/// Where keys come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Made up.
    Synthetic(Synthetic),
    /// One key a line.
    Keys(KeyList),
    /// Key, bytes, requests.
    Trace(PathBuf),
}

/// What a source held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Distinct keys, as far as repeats were recognised.
    pub keys: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Requests over all of them.
    pub requests: u64,
    /// Lines that named a key seen before.
    pub repeated: u64,
    /// Lines without a key.
    pub empty_lines: u64,
    /// Whether more keys came than are remembered, so that later repeats count as keys.
    pub repeats_unknown: bool,
}

impl Source {
    /// Calls `each` with every record, in order, and says what there was.
    ///
    /// # Errors
    /// [`InputError`]: the first line that makes no sense.
    pub fn visit(
        &self,
        progress: &dyn Progress,
        mut each: impl FnMut(Record<'_>),
    ) -> Result<Totals, InputError> {
        match self {
            Self::Synthetic(synthetic) => synthetic.visit(progress, each),
            Self::Keys(list) => list.visit(progress, &mut each),
            Self::Trace(path) => visit_trace(path, progress, &mut each),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Synthetic(synthetic) => format!(
                "{} synthetic {}keys, seed {}, {}",
                crate::text::grouped(synthetic.count),
                if synthetic.sequential {
                    "sequential "
                } else {
                    ""
                },
                synthetic.seed,
                synthetic.popularity
            ),
            Self::Keys(list) => format!("keys of {}, {}", list.path.display(), list.popularity),
            Self::Trace(path) => format!("trace {}", path.display()),
        }
    }
}

impl std::fmt::Display for Popularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf {exponent}"),
        }
    }
}

impl Synthetic {
    /// Checks the bounds.
    ///
    /// # Errors
    /// [`InputError::Setting`].
    pub fn check(&self) -> Result<(), InputError> {
        if self.count == 0 || self.count > MAX_SYNTHETIC {
            return Err(setting("--key-count", self.count, "1 to 1,000,000,000"));
        }
        check_weights(self.requests, self.popularity, self.sizes)?;
        let most = u128::from(self.count) * u128::from(self.sizes.most);
        if most >= u128::from(MAX_SUM) {
            let found = format!("{} for {} keys", self.sizes.most, self.count);
            return Err(setting("--value-bytes", found, "a sum below 2^53 bytes"));
        }
        Ok(())
    }

    /// Writes the key with this index into `key`.
    pub fn key(&self, index: u64, key: &mut Vec<u8>) {
        use std::io::Write;
        key.clear();
        // Writing to memory cannot fail.
        let _ = if self.sequential {
            write!(key, "user:{}", index + 1)
        } else {
            // `mix` is a bijection of the index for one seed: no key comes twice.
            write!(key, "user:{:016x}", mix(self.seed, index))
        };
    }

    fn visit(
        &self,
        progress: &dyn Progress,
        mut each: impl FnMut(Record<'_>),
    ) -> Result<Totals, InputError> {
        self.check()?;
        let mut parts = Apportion::new(self.popularity, self.count, self.requests);
        let mut totals = Totals::default();
        let mut key = Vec::with_capacity(32);
        progress.start("keys", Some(self.count));
        for index in 0..self.count {
            self.key(index, &mut key);
            let requests = parts.next();
            let record = Record {
                key: &key,
                bytes: self.sizes.of(self.seed, index),
                requests,
                so_far: requests,
                first: true,
            };
            totals.keys += 1;
            totals.bytes += record.bytes;
            totals.requests += record.requests;
            each(record);
            if index.is_multiple_of(TELL_EVERY) {
                progress.at(index);
            }
        }
        Ok(totals)
    }
}

/// Bounds that hold for synthetic keys and for lists.
pub(crate) fn check_weights(
    requests: u64,
    popularity: Popularity,
    sizes: Sizes,
) -> Result<(), InputError> {
    if requests >= MAX_SUM {
        return Err(setting("--requests", requests, "less than 2^53"));
    }
    if let Popularity::Zipf(exponent) = popularity
        && !(0.0..=5.0).contains(&exponent)
    {
        return Err(setting("--zipf", exponent, "0 to 5; 0.8 to 1.2 are common"));
    }
    if sizes.least > sizes.most {
        let found = format!("{}..{}", sizes.least, sizes.most);
        return Err(setting("--value-bytes", found, "least..most"));
    }
    Ok(())
}

impl KeyList {
    fn visit(
        &self,
        progress: &dyn Progress,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<Totals, InputError> {
        check_weights(self.requests, self.popularity, self.sizes)?;
        // Shares of requests need the number of lines first: a pass that only counts.
        let mut count = 0;
        let mut lines = Lines::open(&self.path, progress, "counting keys")?;
        while let Some(line) = lines.next()? {
            count += u64::from(!line.is_empty());
        }
        let requests = match self.requests {
            0 => count * 10,
            requests => requests,
        };
        let mut requests = Apportion::new(self.popularity, count, requests);
        let mut tally = Tally::new(&self.path);
        let mut lines = Lines::open(&self.path, progress, "keys")?;
        while let Some(line) = lines.next()? {
            if line.is_empty() {
                tally.totals.empty_lines += 1;
                continue;
            }
            let bytes = self.sizes.of(self.seed, tally.totals.keys);
            let (key, at) = (line.to_vec(), lines.number);
            each(tally.record(&key, bytes, requests.next(), at)?);
        }
        tally.end()
    }
}

fn visit_trace(
    path: &Path,
    progress: &dyn Progress,
    each: &mut dyn FnMut(Record<'_>),
) -> Result<Totals, InputError> {
    let mut tally = Tally::new(path);
    let mut lines = Lines::open(path, progress, "trace")?;
    let shown = lines.path.clone();
    let mut columns = None;
    while let Some(line) = lines.next()? {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            tally.totals.empty_lines += 1;
            continue;
        }
        let line = line.to_vec();
        let at = lines.number;
        let columns = match &mut columns {
            Some(columns) => columns,
            None => {
                let (found, is_header) = Columns::detect(&line, &shown, at)?;
                let columns = columns.insert(found);
                if is_header {
                    continue;
                }
                columns
            }
        };
        let (key, bytes, requests) = columns.parse(&line, &shown, at)?;
        each(tally.record(key, bytes, requests, at)?);
    }
    tally.end()
}

/// Sums of a file, and which keys it has named.
struct Tally {
    path: String,
    totals: Totals,
    /// Hash of a key to its requests so far.
    seen: HashMap<u64, u64>,
}

impl Tally {
    fn new(path: &Path) -> Self {
        Self {
            path: path.display().to_string(),
            totals: Totals::default(),
            seen: HashMap::new(),
        }
    }

    fn record<'a>(
        &mut self,
        key: &'a [u8],
        bytes: u64,
        requests: u64,
        line: u64,
    ) -> Result<Record<'a>, InputError> {
        let hash = HashName::Xxh3_64.hash(0x5eed, key);
        let room = self.seen.len() < MAX_REMEMBERED;
        let (first, so_far) = match self.seen.get_mut(&hash) {
            Some(sum) => {
                *sum += requests;
                (false, *sum)
            }
            None => {
                if room {
                    self.seen.insert(hash, requests);
                }
                self.totals.repeats_unknown |= !room;
                (true, requests)
            }
        };
        let totals = &mut self.totals;
        if first {
            totals.keys += 1;
            totals.bytes += bytes;
        } else {
            totals.repeated += 1;
        }
        totals.requests += requests;
        let over = [("bytes", totals.bytes), ("requests", totals.requests)];
        if let Some((column, _)) = over.into_iter().find(|(_, sum)| *sum >= MAX_SUM) {
            let path = self.path.clone();
            return Err(InputError::Sum { path, line, column });
        }
        Ok(Record {
            key,
            bytes,
            requests,
            so_far,
            first,
        })
    }

    fn end(self) -> Result<Totals, InputError> {
        match self.totals.keys {
            0 => Err(InputError::NoKeys { path: self.path }),
            _ => Ok(self.totals),
        }
    }
}

/// Lines of a file, gzip or not, each at most [`MAX_LINE_BYTES`].
pub(crate) struct Lines<'a> {
    reader: Box<dyn BufRead>,
    progress: &'a dyn Progress,
    /// Bytes of the file read so far, compressed if it is.
    read: Arc<AtomicU64>,
    line: Vec<u8>,
    /// The file as named.
    pub path: String,
    /// Of the line that was given last, from 1.
    pub number: u64,
}

/// Counts what passes.
struct Counting {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<'a> Lines<'a> {
    pub fn open(path: &Path, progress: &'a dyn Progress, what: &str) -> Result<Self, InputError> {
        let shown = path.display().to_string();
        let refused = |source| InputError::File {
            path: shown.clone(),
            source,
        };
        let file = File::open(path).map_err(refused)?;
        let length = file.metadata().map_err(refused)?.len();
        let read = Arc::new(AtomicU64::new(0));
        let counting = Counting {
            file,
            read: Arc::clone(&read),
        };
        let mut plain = BufReader::with_capacity(1 << 16, counting);
        let gzip = plain
            .fill_buf()
            .map_err(refused)?
            .starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn BufRead> = if gzip {
            let inner = flate2::bufread::MultiGzDecoder::new(plain);
            Box::new(BufReader::with_capacity(1 << 16, inner))
        } else {
            Box::new(plain)
        };
        progress.start(what, (length > 0).then_some(length));
        Ok(Self {
            reader,
            progress,
            read,
            line: Vec::new(),
            path: shown,
            number: 0,
        })
    }

    /// The next line without its `\n`, or nothing at the end.
    pub fn next(&mut self) -> Result<Option<&[u8]>, InputError> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        let read = self.reader.by_ref().take(limit);
        let count = { read }
            .read_until(b'\n', &mut self.line)
            .map_err(|source| InputError::Damaged {
                path: self.path.clone(),
                line: self.number,
                source,
            })?;
        if count == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.number.is_multiple_of(TELL_EVERY) {
            self.progress.at(self.read.load(Ordering::Relaxed));
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if count as u64 == limit {
            return Err(InputError::LineLength {
                path: self.path.clone(),
                line: self.number,
                limit: MAX_LINE_BYTES,
            });
        }
        Ok(Some(&self.line))
    }
}
