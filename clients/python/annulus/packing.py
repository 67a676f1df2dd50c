"""Lists of handles as bits: fixed width, most significant bit first, missing = all ones.

Unpacked, a table is one flat ``array('H')``: rf handles per list, padded with ``NONE``. Where
numpy is installed it unpacks large tables; the answer is the same.
"""

import sys
from array import array
from typing import Sequence

try:
    import numpy as _numpy
except ImportError:
    _numpy = None

# Pads a list that is shorter than rf; never a member's handle.
NONE = 0xFFFF


class Damage(ValueError):
    """Why packed handles were refused."""


def unpack(data: bytes, bits: int, rf: int, lists: int) -> "array[int]":
    """The handles of ``lists`` lists, rf of them each; raises ``Damage``.

    rf and lists are bounded by the caller. O(handles).
    """
    if not 1 <= bits <= 16:
        raise Damage("handles of a width outside 1 to 16 bits")
    count = lists * rf
    if len(data) != -(-count * bits // 8):
        raise Damage("not as many bytes as its handles take")
    spare = len(data) * 8 - count * bits
    if spare and data[-1] & (1 << spare) - 1:
        raise Damage("bits set behind the last handle")
    missing = (1 << bits) - 1
    if _numpy is not None and count >= 512:
        flat = _unpack_by_numpy(data, bits, count, missing)
    else:
        flat = _unpack(data, bits, count, missing)
    if NONE in flat:
        _look_for_holes(flat, rf)
    return flat


def _unpack(data: bytes, bits: int, count: int, missing: int) -> "array[int]":
    if bits == 8:
        flat = array("H", list(data))
    elif bits == 16:
        flat = array("H", data)
        if sys.byteorder == "little":
            flat.byteswap()
        return flat
    else:
        # `bits` bytes hold eight handles.
        padded = data + bytes(-len(data) % bits)
        shifts = tuple(bits * place for place in range(7, -1, -1))
        flat = array("H")
        for at in range(0, len(padded), bits):
            eight = int.from_bytes(padded[at : at + bits], "big")
            flat.extend([eight >> shift & missing for shift in shifts])
        del flat[count:]
    if missing in flat:
        flat = array("H", [NONE if handle == missing else handle for handle in flat])
    return flat


def _unpack_by_numpy(data: bytes, bits: int, count: int, missing: int) -> "array[int]":
    unpacked = _numpy.unpackbits(_numpy.frombuffer(data, _numpy.uint8), count=count * bits)
    weights = 1 << _numpy.arange(bits - 1, -1, -1, dtype=_numpy.uint32)
    handles = unpacked.reshape(count, bits) @ weights
    handles[handles == missing] = NONE
    return array("H", handles.astype(_numpy.uint16).tobytes())


def _look_for_holes(flat: "array[int]", rf: int) -> None:
    for at in range(0, len(flat), rf):
        ended = False
        for handle in flat[at : at + rf]:
            if handle == NONE:
                ended = True
            elif ended:
                raise Damage("a missing handle before a present one")


def pack(flat: Sequence[int]) -> "tuple[int, bytes]":
    """Width and bytes of padded lists. The width follows from these lists alone: the smallest
    that holds the highest handle and leaves all ones free. O(handles)."""
    highest = max((handle for handle in flat if handle != NONE), default=-1)
    bits = max(1, (highest + 1).bit_length())
    missing = (1 << bits) - 1
    out = bytearray()
    pending = count = 0
    for handle in flat:
        pending = pending << bits | (missing if handle == NONE else handle)
        count += bits
        while count >= 8:
            count -= 8
            out.append(pending >> count)
            pending &= (1 << count) - 1
    if count:
        out.append(pending << 8 - count)
    return bits, bytes(out)
