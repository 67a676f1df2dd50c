//! Numbers from a seed, and requests shared out by popularity.

use crate::keys::Popularity;

/// A bijection of `index` for every `seed`, well mixed (splitmix64: Steele, Lea, Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014; finaliser by David Stafford).
#[must_use]
pub fn mix(seed: u64, index: u64) -> u64 {
    let mut z = index
        .wrapping_add(seed.wrapping_mul(0xd134_2543_de82_ef95))
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Shares `total` requests out over `count` keys in order, exactly: the parts add up to it.
///
/// No part is drawn by chance. The sum of the first i parts is the whole number nearest below
/// what the first i keys ought to have together.
pub(crate) struct Apportion {
    popularity: Popularity,
    total: u64,
    /// Sum of all weights.
    whole: f64,
    /// Sum of the weights so far.
    sum: f64,
    given: u64,
    index: u64,
    count: u64,
}

impl Apportion {
    pub fn new(popularity: Popularity, count: u64, total: u64) -> Self {
        let whole = (1..=count).map(|rank| weight(popularity, rank)).sum();
        Self {
            popularity,
            total,
            whole,
            sum: 0.0,
            given: 0,
            index: 0,
            count,
        }
    }

    /// The next key's requests.
    pub fn next(&mut self) -> u64 {
        self.index += 1;
        self.sum += weight(self.popularity, self.index);
        let upto = if self.index >= self.count {
            self.total
        } else {
            (self.sum / self.whole * self.total as f64).min(self.total as f64) as u64
        };
        let part = upto.saturating_sub(self.given);
        self.given += part;
        part
    }
}

fn weight(popularity: Popularity, rank: u64) -> f64 {
    match popularity {
        Popularity::Uniform => 1.0,
        Popularity::Zipf(1.0) => 1.0 / rank as f64,
        Popularity::Zipf(exponent) => (rank as f64).powf(-exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(popularity: Popularity, count: u64, total: u64) -> Vec<u64> {
        let mut apportion = Apportion::new(popularity, count, total);
        (0..count).map(|_| apportion.next()).collect()
    }

    #[test]
    fn parts_add_up_and_follow_the_law() {
        assert_eq!(parts(Popularity::Uniform, 4, 10), [2, 3, 2, 3]);
        // 1 + 1/2 + 1/3 + 1/4 = 25/12; of 25 requests: 12, 6, 4, 3.
        assert_eq!(parts(Popularity::Zipf(1.0), 4, 25), [12, 6, 4, 3]);
        for total in [0, 1, 999, 1_000_000] {
            let sum: u64 = parts(Popularity::Zipf(0.9), 1_000, total).iter().sum();
            assert_eq!(sum, total);
        }
    }

    #[test]
    fn mixing_gives_no_number_twice() {
        let all: std::collections::HashSet<u64> = (0..10_000).map(|at| mix(7, at)).collect();
        assert_eq!(all.len(), 10_000);
        assert_ne!(mix(1, 0), mix(2, 0));
    }
}
