//! Lists of handles as bits: fixed width, most significant bit first, missing = all ones.

use annulus_ring::{Handle, List};
use bytes::Bytes;

/// Why packed handles were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Not 1 to 16.
    Width,
    /// Not the bytes that so many handles take.
    Length,
    /// Bits behind the last handle are not zero.
    Padding,
    /// A missing handle before a present one.
    Hole,
}

impl Damage {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Width => "handles of a width outside 1 to 16 bits",
            Self::Length => "not as many bytes as its handles take",
            Self::Padding => "bits set behind the last handle",
            Self::Hole => "a missing handle before a present one",
        }
    }
}

/// The smallest width that holds every handle of `lists` and leaves all ones free.
fn width<'a>(lists: impl Iterator<Item = &'a [Handle]>) -> u32 {
    let highest = lists.flatten().map(|handle| handle.0).max();
    // `Handle::NONE` is never in a list, so `highest` + 1 fits and the width is at most 16.
    highest.map_or(1, |highest| u16::BITS - (highest + 1).leading_zeros())
}

/// Packs lists, each padded to `rf` handles. The width follows from these lists alone, so that
/// equal lists have equal bytes whoever else is a member.
pub(crate) fn pack<'a>(
    lists: impl Iterator<Item = &'a [Handle]> + Clone,
    rf: usize,
) -> (u32, Bytes) {
    let width = width(lists.clone());
    let missing = (1_u32 << width) - 1;
    let total = lists.clone().count() * rf * width as usize;
    let mut bytes = Vec::with_capacity(total.div_ceil(8));
    // Bits not yet written, right-aligned: below 32 before each push, so 32 + 16 bits at most.
    let (mut pending, mut count) = (0_u64, 0_u32);
    for list in lists {
        let padding = rf - list.len().min(rf);
        let handles = list.iter().take(rf).map(|handle| u32::from(handle.0));
        for handle in handles.chain(std::iter::repeat_n(missing, padding)) {
            pending = pending << width | u64::from(handle);
            count += width;
            if count >= u32::BITS {
                count -= u32::BITS;
                bytes.extend(((pending >> count) as u32).to_be_bytes());
                pending &= (1 << count) - 1;
            }
        }
    }
    // The rest from the left, zero-padded to whole bytes.
    let rest = ((pending << (u32::BITS - count)) as u32).to_be_bytes();
    bytes.extend(&rest[..count.div_ceil(8) as usize]);
    (width, bytes.into())
}

/// Unpacks `lists` lists of at most `rf` handles and gives each to `take`, in order.
pub(crate) fn unpack(
    bytes: &[u8],
    width: u32,
    rf: usize,
    lists: usize,
    mut take: impl FnMut(List),
) -> Result<(), Damage> {
    if !(1..=16).contains(&width) {
        return Err(Damage::Width);
    }
    // Both factors are bounded by the caller: at most 1,024 lists of at most 7 handles.
    if bytes.len() != (lists * rf * width as usize).div_ceil(8) {
        return Err(Damage::Length);
    }
    let missing = (1_u32 << width) - 1;
    let mut input = bytes.iter();
    let (mut pending, mut count) = (0_u32, 0_u32);
    for _ in 0..lists {
        let mut list = List::new();
        let mut ended = false;
        for _ in 0..rf {
            while count < width {
                let byte = input.next().ok_or(Damage::Length)?;
                pending = pending << 8 | u32::from(*byte);
                count += 8;
            }
            count -= width;
            let handle = pending >> count;
            pending &= (1 << count) - 1;
            if handle == missing {
                ended = true;
            } else if ended {
                return Err(Damage::Hole);
            } else {
                list.push(Handle(handle as u16));
            }
        }
        take(list);
    }
    if pending == 0 {
        Ok(())
    } else {
        Err(Damage::Padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(numbers: &[&[u16]]) -> Vec<List> {
        numbers
            .iter()
            .map(|list| list.iter().copied().map(Handle).collect())
            .collect()
    }

    fn round_trip(lists: &[List], rf: usize) -> (u32, Bytes) {
        let (width, bytes) = pack(lists.iter().map(List::as_slice), rf);
        let mut back = Vec::new();
        unpack(&bytes, width, rf, lists.len(), |list| back.push(list)).expect("packed just now");
        assert_eq!(back, lists);
        (width, bytes)
    }

    #[test]
    fn width_leaves_all_ones_free() {
        for (highest, expected) in [(0, 1), (1, 2), (2, 2), (3, 3), (6, 3), (7, 4), (65534, 16)] {
            let (width, _) = round_trip(&lists(&[&[highest]]), 2);
            assert_eq!(width, expected, "highest {highest}");
        }
        assert_eq!(round_trip(&lists(&[&[], &[]]), 3).0, 1);
    }

    #[test]
    fn handles_are_packed_from_the_most_significant_bit() {
        // Two bits each: 00 01 | 10 11(missing).
        let (width, bytes) = round_trip(&lists(&[&[0, 1], &[2]]), 2);
        assert_eq!((width, &bytes[..]), (2, &[0b0001_1011][..]));
    }

    #[test]
    fn damage_is_named() {
        let unpack = |bytes: &[u8], width, rf, count| unpack(bytes, width, rf, count, |_| {});
        assert_eq!(unpack(&[0], 0, 1, 1), Err(Damage::Width));
        assert_eq!(unpack(&[0], 17, 1, 1), Err(Damage::Width));
        assert_eq!(unpack(&[0, 0], 2, 2, 2), Err(Damage::Length));
        assert_eq!(unpack(&[0b0001_0001], 2, 1, 2), Err(Damage::Padding));
        assert_eq!(unpack(&[0b1101_0000], 2, 2, 1), Err(Damage::Hole));
    }
}
