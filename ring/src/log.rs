//! Logarithms in fixed point, for weighted rendezvous: integers only, the same everywhere.
//!
//! `log2(x)` for 1 <= x < 2^64 in units of 2^-57: the place of the highest bit, and for the rest
//! a straight line between two of 2,049 table entries. Entry i is `floor(2^57 x log2(1 + i/2048))`
//! but for the last bits, found by repeated squaring in 64 bits (Knuth, The Art of Computer
//! Programming, volume 1, section 1.2.2, on computing logarithms).
//!
//! - Monotone: the table rises, and a line is rounded down.
//! - Error: a chord lies below the curve by at most (1/2048)^2 / (8 ln 2), that is 4.4 x 10^-8,
//!   and by rounding 2^-55 more.
//! - [`cost`], which is `64 - log2`, is too large by at most one part in 2^12 of itself: it is
//!   smallest next to a table entry, where the line is nearest to the curve. Rounding adds up to
//!   two units of 2^-57, which shows only in hashes so near to 2^64 that one key in 2^40 has one.

/// Bits behind the point.
pub const FRACTION_BITS: u32 = 57;
/// Intervals of the table: 2^11.
const INDEX_BITS: u32 = 11;
/// Entries of the table; the last is log2(2).
pub const TABLE_LEN: usize = (1 << INDEX_BITS) + 1;

/// `log2(1 + i/2048)` in units of 2^-57.
pub static TABLE: [u64; TABLE_LEN] = table();

const fn table() -> [u64; TABLE_LEN] {
    let mut table = [0; TABLE_LEN];
    let mut at = 0;
    while at + 1 < TABLE_LEN {
        table[at] = by_squaring((1 << INDEX_BITS) + at as u64);
        at += 1;
    }
    table[at] = 1 << FRACTION_BITS;
    table
}

/// log2(x / 2^11) for 2^11 <= x < 2^12: squaring doubles the logarithm, and whether it passes 1
/// is its next bit.
const fn by_squaring(x: u64) -> u64 {
    let mut value = x << (63 - INDEX_BITS); // 1.0 is 2^63
    let mut log = 0;
    let mut bit = 0;
    while bit < FRACTION_BITS {
        let square = (value as u128 * value as u128) >> 63;
        let carry = (square >> 64) as u64;
        value = (square >> carry) as u64;
        log = log << 1 | carry;
        bit += 1;
    }
    log
}

/// `log2(x)` in units of 2^-57, rounded down as the module says; `x` 0 counts as 1.
#[must_use]
pub fn log2(x: u64) -> u64 {
    let x = x.max(1);
    let highest = x.ilog2();
    // Below the highest bit: 11 bits that choose the interval, 52 that go along it.
    let below = (x << (63 - highest)) << 1 >> 1;
    let rest_bits = 63 - INDEX_BITS;
    let at = (below >> rest_bits) as usize;
    let along = u128::from(below & ((1 << rest_bits) - 1));
    let rise = u128::from(TABLE[at + 1] - TABLE[at]);
    let line = ((rise * along) >> rest_bits) as u64;
    (u64::from(highest) << FRACTION_BITS) + TABLE[at] + line
}

/// `-log2(x / 2^64)` in units of 2^-57: from 1 for the largest hash to 2^63 for 0 and 1. Falls as
/// `x` rises.
#[must_use]
pub fn cost(x: u64) -> u64 {
    (64 << FRACTION_BITS) - log2(x)
}
