//! MurmurHash3 for 64-bit machines, 128 bits wide (Austin Appleby, SMHasher, 2011).

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Both halves, (h1, h2), each starting at `seed`.
pub(super) fn x64_128(seed: u64, key: &[u8]) -> (u64, u64) {
    let (mut h1, mut h2) = (seed, seed);
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let (k1, k2) = lanes(block);
        h1 = (h1 ^ scramble_1(k1)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ scramble_2(k2)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // A lane of zeroes scrambles to zero, so a padded tail needs no count of its bytes.
    let mut padded = [0; 16];
    padded[..tail.len()].copy_from_slice(tail);
    let (k1, k2) = lanes(&padded);
    h2 ^= scramble_2(k2);
    h1 ^= scramble_1(k1);

    let length = key.len() as u64;
    (h1, h2) = (h1 ^ length, h2 ^ length);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (super::mix64(h1), super::mix64(h2));
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

fn lanes(block: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

fn scramble_1(lane: u64) -> u64 {
    lane.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn scramble_2(lane: u64) -> u64 {
    lane.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}
