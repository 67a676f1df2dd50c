//! The figures of a run, chosen once from the command line.

use std::{num::NonZeroU32, time::Duration};

use annulus_kv::limits::MAX_KEY_BYTES;
use bytes::Bytes;

use crate::{
    args::DevArgs,
    exit::{Failure, Result},
    key,
};

/// Name of the ring.
pub const RING: &str = "demo";
/// k: the circle is cut into 1,024 ranges.
pub const SLOT_BITS: u8 = 10;
/// How long the old lists get every write after a switch.
pub const SOAK: Duration = Duration::from_secs(1);
/// How long a loser keeps its copy.
pub const GRACE: Duration = Duration::from_secs(2);
/// Control-plane servers.
pub const SERVERS: u64 = 3;
/// Data nodes at founding.
pub const NODES: usize = 6;
/// Zones that they spread over.
pub const ZONES: usize = 3;
/// The node that joins.
pub const JOINER: usize = 7;
/// The node that is drained.
pub const LEAVER: usize = 1;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 64;
/// Writers of the steady load; each reads its own keys back as well.
pub const WRITERS: usize = 32;

/// What differs from run to run.
pub struct Plan {
    /// The keys, each once.
    pub keys: Vec<Bytes>,
    /// Sentences about the keys, for the user.
    pub notes: Vec<String>,
    /// Aim of the steady load, reads and writes together, per second.
    pub ops_per_s: Option<NonZeroU32>,
    /// How long the steady load runs before, between and after the changes.
    pub calm: Duration,
    /// Bytes a second that a gainer copies, so that copying lasts long enough for a leader to be
    /// killed in its middle.
    pub throttle_bytes_per_s: u64,
}

impl Plan {
    /// The plan of these arguments.
    pub fn new(args: &DevArgs) -> Result<Self> {
        let mut notes = Vec::new();
        let keys = match &args.keys {
            Some(path) => {
                let file = key::read_file(path)?;
                if file.empty_lines > 0 {
                    notes.push(format!("{} empty line(s) are no keys", file.empty_lines));
                }
                if file.repeated_lines > 0 {
                    notes.push(format!("{} line(s) repeat a key", file.repeated_lines));
                }
                file.keys
            }
            None => {
                let default = if args.short { 20_000 } else { 100_000 };
                synthetic(args.key_count.unwrap_or(default))
            }
        };
        if let Some(long) = keys.iter().find(|key| key.len() > MAX_KEY_BYTES) {
            return Err(Failure::usage(
                format!(
                    "key {:.40}.. has {} bytes, at most {} are allowed",
                    key::show(long),
                    long.len(),
                    MAX_KEY_BYTES
                ),
                "shorten it, or leave the line away",
            ));
        }
        if keys.len() < 2 * WRITERS {
            return Err(Failure::usage(
                format!("{} keys are too few for {WRITERS} writers", keys.len()),
                format!("give at least {}", 2 * WRITERS),
            ));
        }
        let throttle_bytes_per_s = throttle(&keys);
        let calm = Duration::from_millis(if args.short { 500 } else { 1_500 });
        let keys = keys.into_iter().map(Bytes::from).collect();
        Ok(Self {
            keys,
            notes,
            ops_per_s: NonZeroU32::new(4_000),
            calm,
            throttle_bytes_per_s,
        })
    }
}

/// `count` keys that look like those of a user table.
fn synthetic(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| format!("user:{number:08}").into_bytes())
        .collect()
}

/// A joiner gets about 3 of 7 copies of everything; that shall take 4 s.
fn throttle(keys: &[Vec<u8>]) -> u64 {
    const RECORD_OVERHEAD: usize = 32;
    const SECONDS: usize = 4;
    let all: usize = keys
        .iter()
        .map(|key| key.len() + VALUE_BYTES + RECORD_OVERHEAD)
        .sum();
    let gained = all * 3 / JOINER;
    ((gained / SECONDS) as u64).max(1_024)
}

/// The zone of node `number`.
pub fn zone(number: usize) -> String {
    format!("z{}", (number - 1) % ZONES + 1)
}
