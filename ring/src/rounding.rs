//! Binary floating point done with integers, for rules that others wrote down in floats.
//!
//! `jump` and `ketama` are defined by programs that round after every step; a client that rounds
//! otherwise sends some keys elsewhere. Here are the three steps they need, with IEEE 754's
//! rounding (to nearest, ties to even), and no float.

/// A positive number of at most `BITS` significant bits: 24 for single, 53 for double precision.
///
/// Zero has no digits. Exponents stay far from the limits of the formats in what is computed here.
#[derive(Clone, Copy)]
pub(crate) struct Rounded<const BITS: u32> {
    /// The highest of `BITS` bits is set, unless the number is zero.
    digits: u64,
    /// The number is `digits x 2^exponent`.
    exponent: i32,
}

impl<const BITS: u32> Rounded<BITS> {
    /// The nearest number.
    pub fn of(value: u64) -> Self {
        Self::round(value.into(), 0)
    }

    /// `digits x 2^exponent` to the nearest; ties go to even digits.
    fn round(digits: u128, exponent: i32) -> Self {
        let Some(highest) = digits.checked_ilog2() else {
            return Self {
                digits: 0,
                exponent: 0,
            };
        };
        let surplus = highest as i32 + 1 - BITS as i32;
        if surplus <= 0 {
            return Self {
                digits: (digits << -surplus) as u64,
                exponent: exponent + surplus,
            };
        }
        let kept = digits >> surplus;
        let rest = digits & ((1 << surplus) - 1);
        let half = 1_u128 << (surplus - 1);
        let up = rest > half || (rest == half && kept & 1 == 1);
        match kept + u128::from(up) {
            full if full >> BITS == 1 => Self {
                digits: (full >> 1) as u64,
                exponent: exponent + surplus + 1,
            },
            kept => Self {
                digits: kept as u64,
                exponent: exponent + surplus,
            },
        }
    }

    /// The nearest to `self / other`, which is not zero.
    pub fn over(self, other: Self) -> Self {
        // 53 + 70 bits fit; the quotient has at least 69, so what is cut off can only matter by
        // not being zero, which the lowest bit remembers.
        let dividend = u128::from(self.digits) << 70;
        let divisor = u128::from(other.digits);
        let cut = u128::from(!dividend.is_multiple_of(divisor));
        Self::round(
            ((dividend / divisor) << 1) | cut,
            self.exponent - other.exponent - 71,
        )
    }

    /// The nearest to `self x other`.
    pub fn times(self, other: Self) -> Self {
        let product = u128::from(self.digits) * u128::from(other.digits);
        Self::round(product, self.exponent + other.exponent)
    }

    /// The largest integer that is not above it; `u64::MAX` where it does not fit.
    pub fn floor(self) -> u64 {
        match self.exponent {
            down if down <= -64 => 0,
            down if down < 0 => self.digits >> -down,
            up if up <= self.digits.leading_zeros() as i32 => {
                self.digits.checked_shl(up as u32).unwrap_or(0)
            }
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every size, with an eye to those near powers of two.
    fn numbers() -> Vec<u64> {
        let near = (0..40).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        let odd = (1..200_u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 60));
        near.chain(odd).filter(|value| *value > 0).collect()
    }

    #[test]
    fn every_step_rounds_as_the_processor_does() {
        for a in numbers() {
            for b in numbers() {
                let single = Rounded::<24>::of(a).over(Rounded::of(b));
                let machine = a as f32 / b as f32;
                assert_eq!(single.floor(), machine as u64, "{a} / {b} in single");
                let back = single.times(Rounded::of(b));
                assert_eq!(back.floor(), (machine * b as f32) as u64, "{a} / {b} x {b}");

                let double = Rounded::<53>::of(a).over(Rounded::of(b));
                let machine = a as f64 / b as f64;
                assert_eq!(double.floor(), machine as u64, "{a} / {b} in double");
                let back = double.times(Rounded::of(b));
                assert_eq!(back.floor(), (machine * b as f64) as u64, "{a} / {b} x {b}");
            }
        }
    }
}
