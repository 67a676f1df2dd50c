"""A snapshot: what its bytes hash to, whether they may be taken, and what they say.

``open_snapshot`` looks in the order that a receiver must: length, checksum of the bytes, format,
cluster, ring, newer than what is held, predecessor; then the rest is decoded; then it is asked
whether it makes sense. Before the checksum holds, no byte of a section is interpreted. Bytes are
hashed as they were sent, and nobody encodes again to verify.
"""

import hashlib
import re
import struct
from array import array
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import hashes, messages
from .messages import MAX_MEMBERS, MAX_RF, MAX_SLOT_BITS, SLOTS_PER_SECTION
from .packing import NONE, Damage, unpack
from .refused import Refused
from .wire import Malformed, Shape

FORMAT = 1
MAX_WEIGHT = 1_000_000

_DOMAIN = b"annulus snapshot\0"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
# Digits as the servers read them, a plus sign included.
_ENDPOINT = re.compile(r"([!-.0-~]+):\+?([0-9]+)\Z")


class EpochRef(NamedTuple):
    """A place in a ring's history: which snapshot, and what its bytes hash to."""

    generation: int
    epoch: int
    # SHA-256 over the sections, 32 bytes.
    checksum: bytes

    def __str__(self) -> str:
        return "%d/%d (%s..)" % (self.generation, self.epoch, self.checksum.hex()[:8])


class Replication(NamedTuple):
    """Replicas of a range, and how many of them a write and an exact read need."""

    rf: int
    w: int
    r: int


class Member(NamedTuple):
    """A node as a snapshot lists it."""

    node_id: str
    incarnation: int
    # Its small number for life; tables name it by this.
    handle: int
    zone: str
    weight: int
    # host:port
    endpoint: str
    # joining, copying, catching_up, active, draining, removed; or unknown, which serves nothing
    state: str
    # False: to be tried last.
    up: bool


class Transition(NamedTuple):
    """What is moving: the new lists of the changed slots, and how far it is."""

    id: int
    # A number of `messages.STEPS`.
    step: int
    # Sorted, each once.
    slots: Sequence[int]
    # replication.rf (or the snapshot's rf) handles per changed slot.
    flat: "array[int]"
    # Of the new lists, where it differs.
    replication: Optional[Replication]

    @property
    def step_name(self) -> str:
        return messages.STEPS[self.step]


class Snapshot(NamedTuple):
    """Members and lists at one epoch."""

    cluster_id: str
    ring: str
    generation: int
    epoch: int
    previous_checksum: bytes
    # Milliseconds since 1970, for people.
    created_at_ms: int
    placement_version: int
    hash: str
    seed: int
    replication: Replication
    # k: 2^k slots.
    slot_bits: int
    # Sorted by node id.
    members: Tuple[Member, ...]
    # replication.rf handles per slot, owner first, padded with packing.NONE.
    flat: "array[int]"
    transition: Optional[Transition]


class Expect(NamedTuple):
    """What a receiver expects of the next snapshot."""

    # 32 hexadecimal digits, once known; a first snapshot tells it.
    cluster_id: Optional[str]
    ring: str
    # Nothing at or below it is taken.
    held: Optional[EpochRef]


def checksum(format: int, sections: Sequence[bytes]) -> bytes:
    """SHA-256 over the domain tag, the format, the number of sections, then length and SHA-256 of
    each. Numbers are big-endian: format and count in 4 bytes, lengths in 8."""
    whole = hashlib.sha256(_DOMAIN)
    whole.update(struct.pack(">II", format, len(sections)))
    for section in sections:
        whole.update(struct.pack(">Q", len(section)))
        whole.update(hashlib.sha256(section).digest())
    return whole.digest()


def open_snapshot(message: Dict[str, Any], expect: Expect) -> Snapshot:
    """The snapshot in a decoded ``SnapshotBytes``; raises ``Refused``. O(bytes + slots x rf)."""
    header = verify(message, expect)
    snapshot = _decode(message["sections"], header)
    _check(snapshot)
    return snapshot


def verify(message: Dict[str, Any], expect: Expect) -> Dict[str, Any]:
    """The checks that need the header alone; answers it."""
    sections = message["sections"]
    size = sum(map(len, sections))
    if not size or size > messages.MAX_MESSAGE_BYTES or len(sections) > messages.MAX_SECTIONS:
        raise Refused("length", "%d bytes in %d sections" % (size, len(sections)))
    found = checksum(message["format"], sections)
    if found != message["checksum"]:
        told = message["checksum"].hex() or "nothing"
        raise Refused("checksum", "sections hash to %s, the message says %s" % (found.hex(), told))
    _format(message["format"])
    header = _section(messages.SNAPSHOT_HEADER, sections, 0)
    _format(header["format"])
    if len(header["cluster_id"]) != 16:
        raise Refused("malformed", "section 0: cluster_id is not of 16 bytes")
    cluster_id = header["cluster_id"].hex()
    if expect.cluster_id is not None and cluster_id != expect.cluster_id:
        told = "snapshot is of cluster %s, expected %s; check the endpoints"
        raise Refused("foreign-cluster", told % (cluster_id, expect.cluster_id))
    if header["ring"] != expect.ring:
        told = "snapshot is of ring %r, expected %r"
        raise Refused("foreign-ring", told % (header["ring"], expect.ring))
    if expect.held is not None:
        _newer(header, found, expect.held)
    return header


def _format(found: int) -> None:
    if found != FORMAT:
        told = "format %d is not known here, expected %d; upgrade this package"
        raise Refused("format", told % (found, FORMAT))


def _newer(header: Dict[str, Any], found: bytes, held: EpochRef) -> None:
    """Newer than what is held and, when it is the very next, its successor."""
    theirs, ours = (header["generation"], header["epoch"]), held[:2]
    if theirs == ours and found != held.checksum:
        told = "FORK: epoch %d/%d hashes to %s, the one held to %s"
        raise Refused("fork", told % (*theirs, found.hex(), held.checksum.hex()))
    if theirs <= ours:
        raise Refused("not-newer", "epoch %d/%d is not newer than %d/%d" % (*theirs, *ours))
    if theirs == (held.generation, held.epoch + 1):
        previous = _previous(header)
        if previous != held.checksum:
            told = "epoch %d/%d names predecessor %s, the one held hashes to %s"
            raise Refused("chain", told % (*theirs, previous.hex(), held.checksum.hex()))


def _previous(header: Dict[str, Any]) -> bytes:
    if len(header["previous_checksum"]) != 32:
        raise Refused("malformed", "section 0: previous_checksum is not of 32 bytes")
    return header["previous_checksum"]


def _section(shape: Shape, sections: Sequence[bytes], at: int) -> Dict[str, Any]:
    if at >= len(sections):
        raise Refused("malformed", "section %d is missing" % at)
    try:
        return shape.decode(sections[at])
    except Malformed as error:
        raise Refused("malformed", "section %d: %s" % (at, error)) from None


def _need(holds: bool, section: int, what: str) -> None:
    if not holds:
        raise Refused("malformed", "section %d: %s" % (section, what))


def name_is_good(name: str) -> bool:
    """Whether a ring, node or zone may be called so."""
    return _NAME.match(name) is not None


def endpoint_is_good(endpoint: str) -> bool:
    """host:port with a port from 1 to 65535, at most 255 bytes."""
    parts = _ENDPOINT.match(endpoint) if len(endpoint) <= 255 else None
    return parts is not None and 0 < int(parts[2]) < 1 << 16


def _replication(message: Dict[str, Any]) -> Replication:
    """Bounded before anything is allocated by it."""
    for field in ("rf", "w", "r"):
        _need(1 <= message[field] <= MAX_RF, 0, "%s is %d" % (field, message[field]))
    return Replication(message["rf"], message["w"], message["r"])


def _decode(sections: Sequence[bytes], header: Dict[str, Any]) -> Snapshot:
    epoch = header["epoch"]
    if header["layout"] != messages.LAYOUT_SLOTS:
        told = "epoch %d: layout %d is not known here; upgrade this package"
        raise Refused("unknown-layout", told % (epoch, header["layout"]))
    try:
        hashes.of(header["hash"])
    except hashes.UnknownHash as error:
        told = "epoch %d: %s; upgrade this package"
        raise Refused("unknown-hash", told % (epoch, error)) from None
    replication = _replication(header)
    slot_bits = header["slot_bits"]
    _need(1 <= slot_bits <= MAX_SLOT_BITS, 0, "slot_bits is %d" % slot_bits)
    count = header["member_count"]
    _need(count <= MAX_MEMBERS and count < len(sections), 0, "more members than sections")
    members = tuple(_member(sections, at) for at in range(1, count + 1))

    at, slot_count = count + 1, 1 << slot_bits
    flat = array("H")
    for first in range(0, slot_count, SLOTS_PER_SECTION):
        found = _section(messages.SLOT_SECTION, sections, at)
        expected = (first, min(SLOTS_PER_SECTION, slot_count - first))
        _need((found["first"], found["count"]) == expected, at, "not the slots expected here")
        flat.extend(_unpack(at, found, replication.rf, expected[1]))
        at += 1
    transition = None
    if header["transition"] is not None:
        transition, at = _transition(sections, at, header["transition"], replication, slot_count)
    _need(at == len(sections), at, "nothing belongs here")
    _need(name_is_good(header["ring"]), 0, "ring is no name")
    snapshot = Snapshot(
        cluster_id=header["cluster_id"].hex(),
        ring=header["ring"],
        generation=header["generation"],
        epoch=epoch,
        previous_checksum=_previous(header),
        created_at_ms=header["created_at_ms"],
        placement_version=header["placement_version"],
        hash=header["hash"],
        seed=header["seed"],
        replication=replication,
        slot_bits=slot_bits,
        members=members,
        flat=flat,
        transition=transition,
    )
    _strangers_serve_nothing(snapshot)
    return snapshot


def _unpack(at: int, found: Dict[str, Any], rf: int, lists: int) -> "array[int]":
    try:
        return unpack(found["handles"], found["bits"], rf, lists)
    except Damage as damage:
        raise Refused("malformed", "section %d: %s" % (at, damage)) from None


def _member(sections: Sequence[bytes], at: int) -> Member:
    found = _section(messages.MEMBER_SECTION, sections, at)
    _need(name_is_good(found["node_id"]), at, "node_id is no name")
    _need(name_is_good(found["zone"]), at, "zone is no name")
    _need(endpoint_is_good(found["endpoint"]), at, "endpoint is not host:port")
    _need(found["weight"] <= MAX_WEIGHT, at, "weight is %d" % found["weight"])
    _need(found["handle"] <= NONE, at, "handle is %d" % found["handle"])
    _need(found["state"] != 0, at, "state is missing")
    _need(found["availability"] != 0, at, "availability is missing")
    return Member(
        node_id=found["node_id"],
        incarnation=found["incarnation"],
        handle=found["handle"],
        zone=found["zone"],
        weight=found["weight"],
        endpoint=found["endpoint"],
        state=messages.STATES.get(found["state"], "unknown"),
        # What is not known is tried last, which is never wrong.
        up=found["availability"] == messages.UP,
    )


def _transition(
    sections: Sequence[bytes],
    at: int,
    header: Dict[str, Any],
    replication: Replication,
    slot_count: int,
) -> Tuple[Transition, int]:
    """The transition, and the place behind its sections."""
    _need(header["step"] in messages.STEPS, 0, "step is %d" % header["step"])
    new = None if header["replication"] is None else _replication(header["replication"])
    changed = header["changed_slots"]
    _need(changed <= slot_count, 0, "more changed slots than slots")
    slots: List[int] = []
    flat = array("H")
    while len(slots) < changed:
        found = _section(messages.TARGET_SECTION, sections, at)
        count = min(SLOTS_PER_SECTION, changed - len(slots))
        _need(len(found["slots"]) == count, at, "not as many changed slots as expected here")
        slots += found["slots"]
        flat.extend(_unpack(at, found, (new or replication).rf, count))
        at += 1
    return Transition(header["id"], header["step"], slots, flat, new), at


def read_lists(snapshot: Snapshot) -> Tuple[Tuple[int, ...], ...]:
    """Per slot the handles of its read set, owner first: N in the step `switched`, else O."""
    lists = _lists(snapshot.flat, snapshot.replication.rf)
    transition = snapshot.transition
    if transition is not None and transition.step == messages.SWITCHED:
        rf = (transition.replication or snapshot.replication).rf
        for slot, to in zip(transition.slots, _lists(transition.flat, rf)):
            lists[slot] = to
    return tuple(lists)


def _lists(flat: "array[int]", rf: int) -> List[Tuple[int, ...]]:
    """The lists without their padding; equal ones are one object, so that tables stay small."""
    raw, wide = flat.tobytes(), rf * flat.itemsize
    known: Dict[bytes, Tuple[int, ...]] = {}
    lists = []
    for at in range(0, len(raw), wide):
        key = raw[at : at + wide]
        found = known.get(key)
        if found is None:
            found = known[key] = tuple(h for h in array("H", key) if h != NONE)
        lists.append(found)
    return lists


def _strangers_serve_nothing(snapshot: Snapshot) -> None:
    """A member in a state that is not known here counts as not serving, so no read set may name
    it: a client must not route around a member by its own opinion."""
    strangers = {member.handle: member for member in snapshot.members if member.state == "unknown"}
    # A target may name slots out of bounds until `_check` has seen it.
    bound = snapshot.transition is None or all(
        slot < 1 << snapshot.slot_bits for slot in snapshot.transition.slots
    )
    if not strangers or not bound:
        return
    for slot, handles in enumerate(read_lists(snapshot)):
        for handle in handles:
            if handle in strangers:
                told = "epoch %d: slot %d is read at %s, whose state is not known here; upgrade"
                raise Refused(
                    "unknown-state", told % (snapshot.epoch, slot, strangers[handle].node_id)
                )


def _check(snapshot: Snapshot) -> None:
    """Whether it makes sense: sorted, unique, known members, within bounds. It does not judge
    quorums: w and r that may lose a write are the operator's choice."""

    def need(holds: bool, what: str) -> None:
        if not holds:
            raise Refused("sense", "epoch %d: %s" % (snapshot.epoch, what))

    need(snapshot.epoch > 0, "epoch 0 is never published")
    need(_quorums_fit(snapshot.replication), "w and r are 1 to rf")
    before, known = "", set()
    for member in snapshot.members:
        # Names are ASCII, so text compares as bytes do.
        need(before < member.node_id, "member %s out of order or twice" % member.node_id)
        before = member.node_id
        taken = member.handle == NONE or member.handle in known
        need(not taken, "member %s has a taken or reserved handle" % member.node_id)
        known.add(member.handle)

    def lists_make_sense(slots: Sequence[int], lists: Sequence[Tuple[int, ...]]) -> None:
        good = set()
        for slot, handles in zip(slots, lists):
            # Equal lists are one object: each is looked at once.
            if id(handles) in good:
                continue
            need(known.issuperset(handles), "slot %d names a handle that no member has" % slot)
            need(len(set(handles)) == len(handles), "slot %d names a handle twice" % slot)
            good.add(id(handles))

    slot_count = 1 << snapshot.slot_bits
    lists_make_sense(range(slot_count), _lists(snapshot.flat, snapshot.replication.rf))
    transition = snapshot.transition
    if transition is None:
        return
    new = transition.replication
    if new is not None:
        need(_quorums_fit(new), "w and r of the new lists are 1 to their rf")
        need(len(transition.slots) == slot_count, "another replication, and not every slot changes")
    previous = -1
    for slot in transition.slots:
        need(previous < slot < slot_count, "changed slot %d is out of order or bounds" % slot)
        previous = slot
    lists = _lists(transition.flat, (new or snapshot.replication).rf)
    for slot, handles in zip(transition.slots, lists):
        need(bool(handles), "changed slot %d has an empty new list" % slot)
    lists_make_sense(transition.slots, lists)


def _quorums_fit(replication: Replication) -> bool:
    return replication.w <= replication.rf and replication.r <= replication.rf
