//! The `jump` layout: numbered buckets, no table at all.
//!
//! A key's bucket among n is followed from 0 upwards by jumps whose lengths a small generator
//! draws from the key; growing to n + 1 moves 1/(n+1) of the keys, all into the new bucket. Only
//! the last bucket may leave, and there are no weights and no zones: for caches whose shards
//! are numbered.
//!
//! (Lamping, Veach: A Fast, Minimal Memory, Consistent Hash Algorithm, 2014. The paper divides and
//! multiplies in double precision; the same roundings are done here with integers, so that
//! buckets agree with its program for every key.)

use crate::{Handle, HashName, rounding::Rounded};

/// Multiplier of the paper's generator.
const STEP: u64 = 2_862_933_555_777_941_757;

/// The bucket of a hash among `buckets`, from 0; `None` among none. O(log buckets) jumps.
#[must_use]
pub fn bucket(hash: u64, buckets: u32) -> Option<u32> {
    let last = u64::from(buckets.checked_sub(1)?);
    let (mut state, mut at) = (hash, 0);
    loop {
        state = state.wrapping_mul(STEP).wrapping_add(1);
        let drawn = (state >> 33) + 1;
        // The paper: (at + 1) * (double(2^31) / double(drawn)), cut to an integer.
        let stretch = Rounded::<53>::of(1 << 31).over(Rounded::of(drawn));
        let next = Rounded::of(at + 1).times(stretch).floor();
        if next > last {
            return u32::try_from(at).ok();
        }
        at = next;
    }
}

/// Buckets in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    hash: HashName,
    seed: u64,
    buckets: Vec<Handle>,
}

/// Why a bucket was refused or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JumpError {
    /// Another number than the last would leave.
    #[error(
        "handle {handle} has bucket {bucket}; only the last, {last}, may leave, or other keys \
         than its own would move"
    )]
    NotLast {
        /// Who would leave.
        handle: u16,
        /// Its bucket.
        bucket: u32,
        /// The last bucket.
        last: u32,
    },
    /// Nobody has this handle.
    #[error("handle {handle} has no bucket")]
    Unknown {
        /// The handle.
        handle: u16,
    },
    /// The handle has a bucket already, or is the one that pads lists.
    #[error("handle {handle} has a bucket already, or is reserved")]
    Handle {
        /// The handle.
        handle: u16,
    },
}

impl Jump {
    /// No buckets yet.
    #[must_use]
    pub fn new(hash: HashName, seed: u64) -> Self {
        Self {
            hash,
            seed,
            buckets: Vec::new(),
        }
    }

    /// Adds a bucket after the last.
    ///
    /// # Errors
    /// [`JumpError::Handle`].
    pub fn push(&mut self, handle: Handle) -> Result<(), JumpError> {
        if handle == Handle::NONE || self.buckets.contains(&handle) {
            return Err(JumpError::Handle { handle: handle.0 });
        }
        self.buckets.push(handle);
        Ok(())
    }

    /// Takes the last bucket away, if it is this node's.
    ///
    /// # Errors
    /// [`JumpError::NotLast`], [`JumpError::Unknown`]; nothing changes then.
    pub fn remove(&mut self, handle: Handle) -> Result<(), JumpError> {
        let Some(bucket) = self.buckets.iter().position(|other| *other == handle) else {
            return Err(JumpError::Unknown { handle: handle.0 });
        };
        let last = self.buckets.len() - 1;
        if bucket != last {
            return Err(JumpError::NotLast {
                handle: handle.0,
                // Handles are unique and have 16 bits.
                bucket: bucket as u32,
                last: last as u32,
            });
        }
        self.buckets.pop();
        Ok(())
    }

    /// Who has each bucket, by number.
    #[must_use]
    pub fn buckets(&self) -> &[Handle] {
        &self.buckets
    }

    /// The owner of `key`; `None` without buckets. O(log buckets).
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> Option<Handle> {
        self.owner_of_hash(self.hash.hash(self.seed, key))
    }

    /// The same for a key's hash.
    #[must_use]
    pub fn owner_of_hash(&self, hash: u64) -> Option<Handle> {
        let buckets = u32::try_from(self.buckets.len()).ok()?;
        let bucket = bucket(hash, buckets)?;
        self.buckets.get(bucket as usize).copied()
    }
}
