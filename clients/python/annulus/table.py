"""A snapshot laid out for lookup: immutable, so one reference is enough to swap it."""

from typing import Any, Dict, NamedTuple, Tuple

from . import hashes
from .snapshot import EpochRef, Expect, Member, Snapshot, open_snapshot, read_lists

_M64 = (1 << 64) - 1


class NoOwner(LookupError):
    """The ring has no node for this key: it is not founded yet."""


class Lookup(NamedTuple):
    """Where a key lives, at one epoch."""

    # Of the read set, owner first; never empty.
    nodes: Tuple[Member, ...]
    epoch: int
    generation: int
    hash: int
    slot: int
    slot_bits: int

    @property
    def owner(self) -> Member:
        return self.nodes[0]

    @property
    def range(self) -> Tuple[int, int]:
        """(start, end]: the piece of the circle that the key is in."""
        shift = 64 - self.slot_bits
        return (self.slot << shift) - 1 & _M64, (self.slot + 1 << shift) - 1

    @property
    def to_try(self) -> Tuple[Member, ...]:
        """The same nodes, those marked down last."""
        return tuple(sorted(self.nodes, key=lambda member: not member.up))


class Table:
    """A verified snapshot, its bytes and its read lists. O(slots x rf) to make."""

    def __init__(self, message: Dict[str, Any], snapshot: Snapshot):
        self.message = message
        self.snapshot = snapshot
        self.place = EpochRef(snapshot.generation, snapshot.epoch, message["checksum"])
        self._hash = hashes.of(snapshot.hash)
        self._shift = 64 - snapshot.slot_bits
        by_handle = {member.handle: member for member in snapshot.members}
        made: Dict[Tuple[int, ...], Tuple[Member, ...]] = {}
        lists = []
        for handles in read_lists(snapshot):
            if handles not in made:
                made[handles] = tuple(by_handle[handle] for handle in handles)
            lists.append(made[handles])
        self.lists = tuple(lists)

    @classmethod
    def open(cls, message: Dict[str, Any], expect: Expect) -> "Table":
        """Checks a decoded ``SnapshotBytes`` and compiles it; raises ``Refused``."""
        return cls(message, open_snapshot(message, expect))

    def lookup(self, key: bytes) -> Lookup:
        """Where ``key`` lives; raises ``NoOwner``. A key is bytes as they stand."""
        if not isinstance(key, bytes):
            if not isinstance(key, (bytearray, memoryview)):
                raise TypeError("a key is bytes, not %s" % type(key).__name__)
            key = bytes(key)
        return self.lookup_hash(self._hash(self.snapshot.seed, key))

    def lookup_hash(self, hashed: int) -> Lookup:
        """Where keys of this hash live; raises ``NoOwner``."""
        slot = hashed >> self._shift
        nodes, (generation, epoch, _) = self.lists[slot], self.place
        if not nodes:
            raise NoOwner("epoch %d: nobody owns slot %d" % (epoch, slot))
        return Lookup(nodes, epoch, generation, hashed, slot, self.snapshot.slot_bits)
