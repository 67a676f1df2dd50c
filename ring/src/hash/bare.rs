//! Plain functions beneath the named ones, and those that other systems place keys with.
//!
//! FNV-1a alone and CRC-16 are for comparison with those systems: no layout may name them.

/// Offset basis of FNV with 64 bits.
pub(super) const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Slots of a Redis Cluster, each a value of CRC-16 modulo this number.
pub const SLOTS_OF_CRC16: u16 = 16_384;

pub(super) fn fnv1a_step(state: u64, byte: &u8) -> u64 {
    (state ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
}

/// FNV-1a with 64 bits, as published (Fowler, Noll, Vo; RFC 9923). Not a layout's hash: its top
/// bits hardly depend on the last bytes of a key.
#[must_use]
pub fn fnv1a_64(key: &[u8]) -> u64 {
    key.iter().fold(FNV_BASIS, fnv1a_step)
}

/// MurmurHash3's finaliser of 64 bits (Appleby, 2011): a bijection in which each bit of the input
/// changes each bit of the output about half the time. Maps 0 to 0.
#[must_use]
#[inline]
pub fn mix64(value: u64) -> u64 {
    let value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ value >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 33
}

/// CRC-16/XMODEM: polynomial 0x1021, start 0, not reflected. One step per bit: for comparison
/// tools, not for a hot path.
#[must_use]
pub fn crc16_xmodem(key: &[u8]) -> u16 {
    key.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let carry = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            crc << 1 ^ carry
        })
    })
}

/// The slot of a key in a Redis Cluster: CRC-16 of the hash tag, modulo [`SLOTS_OF_CRC16`].
///
/// The tag is what stands between the first `{` and the first `}` after it, when that is not
/// empty; otherwise the whole key (Redis Cluster specification, "Hash tags").
#[must_use]
pub fn crc16_hash_tag_slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[open..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    crc16_xmodem(tag().unwrap_or(key)) % SLOTS_OF_CRC16
}
