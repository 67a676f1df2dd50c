"""The six hashes of keys, each named on the wire and so part of the protocol.

``of(name)`` gives a function (seed, key) -> u64. All are pure Python; ``xxh3-64`` is left to the
package ``xxhash`` where that is installed, which answers the same in a tenth of the time or less.
``ring/src/hash.rs`` says which function, half, byte order and place of the seed each name means.
"""

import hashlib
import struct
import zlib
from typing import Callable, Dict

try:
    import xxhash as _xxhash
except ImportError:
    _xxhash = None

Hash = Callable[[int, bytes], int]

_M32 = (1 << 32) - 1
_M64 = (1 << 64) - 1


class UnknownHash(ValueError):
    """A name that is none of ``NAMES``: keys cannot be placed, so this package is too old."""


def mix64(x: int) -> int:
    """MurmurHash3's finaliser (Austin Appleby, 2011)."""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _M64
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _M64
    return x ^ x >> 33


def _rotl(x: int, n: int) -> int:
    return (x << n | x >> 64 - n) & _M64


def _before(seed: int, key: bytes) -> bytes:
    """Seed 0 leaves the key alone, so that published values of the function hold."""
    return key if seed == 0 else seed.to_bytes(8, "little") + key


# SipHash-2-4 (Aumasson, Bernstein: SipHash, 2012) under the key (seed, 0).


def _sip_rounds(v0: int, v1: int, v2: int, v3: int, count: int):
    for _ in range(count):
        v0 = v0 + v1 & _M64
        v1 = _rotl(v1, 13) ^ v0
        v0 = _rotl(v0, 32)
        v2 = v2 + v3 & _M64
        v3 = _rotl(v3, 16) ^ v2
        v0 = v0 + v3 & _M64
        v3 = _rotl(v3, 21) ^ v0
        v2 = v2 + v1 & _M64
        v1 = _rotl(v1, 17) ^ v2
        v2 = _rotl(v2, 32)
    return v0, v1, v2, v3


def siphash_2_4(seed: int, key: bytes) -> int:
    v0, v1 = seed ^ 0x736F6D6570736575, 0x646F72616E646F6D
    v2, v3 = seed ^ 0x6C7967656E657261, 0x7465646279746573
    # Whole words, then what is left with the length in the last byte.
    padded = key + bytes(7 - len(key) % 8) + bytes((len(key) & 0xFF,))
    for (word,) in struct.iter_unpack("<Q", padded):
        v0, v1, v2, v3 = _sip_rounds(v0, v1, v2, v3 ^ word, 2)
        v0 ^= word
    v0, v1, v2, v3 = _sip_rounds(v0, v1, v2 ^ 0xFF, v3, 4)
    return v0 ^ v1 ^ v2 ^ v3


# MurmurHash3 x64 with 128 bits (Austin Appleby, SMHasher, 2011), first half.


def murmur3_x64_128(seed: int, key: bytes) -> int:
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = seed
    whole = len(key) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", key, at)
        h1 ^= _rotl(k1 * c1 & _M64, 31) * c2 & _M64
        h1 = (_rotl(h1, 27) + h2) * 5 + 0x52DCE729 & _M64
        h2 ^= _rotl(k2 * c2 & _M64, 33) * c1 & _M64
        h2 = (_rotl(h2, 31) + h1) * 5 + 0x38495AB5 & _M64
    k1, k2 = struct.unpack("<QQ", key[whole:].ljust(16, b"\0"))
    h1 ^= (_rotl(k1 * c1 & _M64, 31) * c2 & _M64) ^ len(key)
    h2 ^= (_rotl(k2 * c2 & _M64, 33) * c1 & _M64) ^ len(key)
    h1 = h1 + h2 & _M64
    h2 = h2 + h1 & _M64
    return mix64(h1) + mix64(h2) & _M64


def _md5(data: bytes):
    return hashlib.md5(data)


try:
    hashlib.md5(b"", usedforsecurity=False)
except TypeError:  # A Python whose hashlib predates the flag on this build.
    pass
else:

    def _md5(data: bytes):  # noqa: F811
        # A placement is no secret; machines that forbid MD5 for secrets still allow this.
        return hashlib.md5(data, usedforsecurity=False)


def md5_64(seed: int, key: bytes) -> int:
    """First 8 bytes, little-endian, of MD5 (RFC 1321)."""
    return int.from_bytes(_md5(_before(seed, key)).digest()[:8], "little")


def fnv1a_mix_64(seed: int, key: bytes) -> int:
    """FNV-1a (Fowler, Noll, Vo) with 64 bits, then ``mix64``."""
    state = 0xCBF29CE484222325
    for byte in _before(seed, key):
        state = (state ^ byte) * 0x100000001B3 & _M64
    return mix64(state)


def crc32_mix(seed: int, key: bytes) -> int:
    """CRC-32 as zlib computes it, widened, then ``mix64``."""
    return mix64(zlib.crc32(_before(seed, key)))


# XXH3 with 64 bits (Yann Collet, xxHash 0.8, 2020; doc/xxhash_spec.md).

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_P64_3, _P64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
_P64_5 = 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_word32 = struct.Struct("<I").unpack_from
_word64 = struct.Struct("<Q").unpack_from
_stripe = struct.Struct("<8Q").unpack_from


def _secret64(at: int) -> int:
    return _word64(_SECRET, at)[0]


# Words of the secret that short keys are mixed with, by what the length is.
_UP_TO_3 = _word32(_SECRET, 0)[0] ^ _word32(_SECRET, 4)[0]
_UP_TO_8 = _secret64(8) ^ _secret64(16)
_UP_TO_16 = (_secret64(24) ^ _secret64(32), _secret64(40) ^ _secret64(48))
_NONE = _secret64(56) ^ _secret64(64)


def _fold(a: int, b: int) -> int:
    """Both halves of the product of 128 bits, one over the other."""
    product = a * b
    return (product ^ product >> 64) & _M64


def _avalanche(h: int) -> int:
    h = (h ^ h >> 37) * _MX1 & _M64
    return h ^ h >> 32


def _avalanche64(h: int) -> int:
    """XXH64's own finaliser."""
    h = (h ^ h >> 33) * _P64_2 & _M64
    h = (h ^ h >> 29) * _P64_3 & _M64
    return h ^ h >> 32


def _mix16(seed: int, key: bytes, at: int, secret_at: int) -> int:
    low = _word64(key, at)[0] ^ (_secret64(secret_at) + seed & _M64)
    high = _word64(key, at + 8)[0] ^ (_secret64(secret_at + 8) - seed & _M64)
    return _fold(low, high)


def _xxh3_short(seed: int, key: bytes) -> int:
    size = len(key)
    if size > 8:
        low = _word64(key, 0)[0] ^ (_UP_TO_16[0] + seed & _M64)
        high = _word64(key, size - 8)[0] ^ (_UP_TO_16[1] - seed & _M64)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high) & _M64)
    if size >= 4:
        low32 = seed & _M32
        seed ^= int.from_bytes(low32.to_bytes(4, "little"), "big") << 32
        joined = _word32(key, size - 4)[0] + (_word32(key, 0)[0] << 32)
        h = joined ^ (_UP_TO_8 - seed & _M64)
        h ^= _rotl(h, 49) ^ _rotl(h, 24)
        h = h * _MX2 & _M64
        h ^= (h >> 35) + size
        h = h * _MX2 & _M64
        return h ^ h >> 28
    if size:
        joined = key[0] << 16 | key[size >> 1] << 24 | key[size - 1] | size << 8
        return _avalanche64(joined ^ (_UP_TO_3 + seed & _M64))
    return _avalanche64(seed ^ _NONE)


def _xxh3_middle(seed: int, key: bytes) -> int:
    size = len(key)
    total = size * _P64_1
    if size <= 128:
        for at in range((size - 1) // 32, -1, -1):
            total += _mix16(seed, key, 16 * at, 32 * at)
            total += _mix16(seed, key, size - 16 * (at + 1), 32 * at + 16)
        return _avalanche(total & _M64)
    for at in range(8):
        total += _mix16(seed, key, 16 * at, 16 * at)
    total = _avalanche(total & _M64)
    for at in range(8, size // 16):
        total += _mix16(seed, key, 16 * at, 16 * (at - 8) + 3)
    total += _mix16(seed, key, size - 16, 136 - 17)
    return _avalanche(total & _M64)


def _accumulate(lanes, key: bytes, at: int, secret: bytes, secret_at: int) -> None:
    words, keys = _stripe(key, at), _stripe(secret, secret_at)
    for lane in range(8):
        word = words[lane]
        keyed = word ^ keys[lane]
        lanes[lane ^ 1] += word
        lanes[lane] += (keyed & _M32) * (keyed >> 32)


def _xxh3_long(seed: int, key: bytes) -> int:
    if seed:
        words = struct.unpack("<24Q", _SECRET)
        secret = struct.pack(
            "<24Q",
            *(word + (-seed if at & 1 else seed) & _M64 for at, word in enumerate(words)),
        )
    else:
        secret = _SECRET
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    size = len(key)
    # 16 stripes of 64 bytes use the secret up, 8 bytes further on each; then lanes are scrambled.
    blocks = (size - 1) // 1024
    scramble = _stripe(secret, 192 - 64)
    for block in range(blocks):
        for stripe in range(16):
            _accumulate(lanes, key, block * 1024 + stripe * 64, secret, stripe * 8)
        for lane in range(8):
            value = lanes[lane] & _M64
            lanes[lane] = (value ^ value >> 47 ^ scramble[lane]) * _P32_1 & _M64
    for stripe in range((size - 1 - blocks * 1024) // 64):
        _accumulate(lanes, key, blocks * 1024 + stripe * 64, secret, stripe * 8)
    _accumulate(lanes, key, size - 64, secret, 192 - 64 - 7)
    total = size * _P64_1
    merge = _stripe(secret, 11)
    for lane in range(0, 8, 2):
        low, high = lanes[lane] & _M64, lanes[lane + 1] & _M64
        total += _fold(low ^ merge[lane], high ^ merge[lane + 1])
    return _avalanche(total & _M64)


def xxh3_64_pure(seed: int, key: bytes) -> int:
    """XXH3 with its own seed, in Python alone: some 2 microseconds for a short key."""
    if len(key) <= 16:
        return _xxh3_short(seed, key)
    return _xxh3_middle(seed, key) if len(key) <= 240 else _xxh3_long(seed, key)


if _xxhash is None:
    xxh3_64 = xxh3_64_pure
else:
    _fast = _xxhash.xxh3_64_intdigest

    def xxh3_64(seed: int, key: bytes) -> int:
        """XXH3 with its own seed, by the package ``xxhash``."""
        return _fast(key, seed)


NAMES: Dict[str, Hash] = {
    "xxh3-64": xxh3_64,
    "siphash-2-4": siphash_2_4,
    "murmur3-x64-128": murmur3_x64_128,
    "md5-64": md5_64,
    "fnv1a-mix-64": fnv1a_mix_64,
    "crc32-mix": crc32_mix,
}


def of(name: str) -> Hash:
    """The function of this name; ``UnknownHash`` for any other."""
    try:
        return NAMES[name]
    except KeyError:
        known = " ".join(NAMES)
        raise UnknownHash("unknown hash %r; known: %s" % (name, known)) from None
