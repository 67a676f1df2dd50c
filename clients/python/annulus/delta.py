"""A delta applied: the sections of the full snapshot, byte for byte, or a refusal.

Nothing of a delta is believed: what it leads to is opened like any other snapshot, and unless its
sections hash to what the sender has, the caller keeps what it holds and asks for the full one.
"""

from array import array
from typing import Any, Dict, List, Sequence, Tuple

from . import messages
from .messages import MAX_RF, SLOTS_PER_SECTION
from .packing import Damage, pack, unpack
from .refused import Refused
from .snapshot import EpochRef, Snapshot
from .wire import Malformed

# (slot, its rf handles) pairs, sorted by slot.
_Pairs = Tuple[List[int], "array[int]"]


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise Refused("malformed", "delta: %s" % what)


def apply(
    held: EpochRef, base: Dict[str, Any], snapshot: Snapshot, delta: Dict[str, Any]
) -> Dict[str, Any]:
    """The ``SnapshotBytes`` that a decoded ``Delta`` leads to from ``base``, not yet verified."""
    start = delta["base"] or messages.EPOCH_REF.empty()
    if (start["generation"], start["epoch"], start["checksum"]) != tuple(held):
        raise Refused("base", "delta from epoch %d, held is %s" % (start["epoch"], held))
    _need(delta["format"] == base["format"], "another format than its base has")
    try:
        header = messages.SNAPSHOT_HEADER.decode(delta["header"])
    except Malformed:
        raise Refused("malformed", "delta: a header that is none") from None
    rf = snapshot.replication.rf
    same = (header["generation"], header["slot_bits"], header["rf"])
    _need(same == (held.generation, snapshot.slot_bits, rf), "another generation, k or rf")

    sections = [delta["header"]]
    sections += _members(base["sections"], snapshot, delta)
    sections += _slots(base["sections"], snapshot, delta)
    if header["transition"] is None:
        _need(delta["target"] is None, "a target without its transition")
    else:
        sections += _target(snapshot, delta, header["transition"])
    return {"format": delta["format"], "checksum": delta["checksum"], "sections": sections}


def _rises(names: Sequence[str]) -> bool:
    return all(one < other for one, other in zip(names, names[1:]))


def _members(base: Sequence[bytes], snapshot: Snapshot, delta: Dict[str, Any]) -> List[bytes]:
    """The base's without those that are gone, with those that are new or differ, by node id."""
    try:
        new = [messages.MEMBER_SECTION.decode(raw)["node_id"] for raw in delta["members"]]
    except Malformed:
        raise Refused("malformed", "delta: a member that is none") from None
    gone = delta["removed"]
    _need(_rises(new) and _rises(gone), "members out of order or twice")
    merged = {member.node_id: base[at] for at, member in enumerate(snapshot.members, 1)}
    for node_id in gone:
        _need(merged.pop(node_id, None) is not None, "a member is gone that the base has not")
    merged.update(zip(new, delta["members"]))
    return [merged[node_id] for node_id in sorted(merged)]


def _pairs(message: Dict[str, Any], rf: int, slot_count: int) -> _Pairs:
    slots, slot = [], 0
    for at, gap in enumerate(message["gaps"]):
        _need(at == 0 or gap > 0, "a slot twice")
        slot += gap
        _need(slot < slot_count, "a slot out of bounds")
        slots.append(slot)
    try:
        return slots, unpack(message["handles"], message["bits"], rf, len(slots))
    except Damage as damage:
        raise Refused("malformed", "delta: %s" % damage) from None


def _slots(base: Sequence[bytes], snapshot: Snapshot, delta: Dict[str, Any]) -> List[bytes]:
    """The base's slot sections, those with changed lists packed again."""
    rf, count = snapshot.replication.rf, 1 << snapshot.slot_bits
    first = 1 + len(snapshot.members)
    sections = list(base[first : first + -(-count // SLOTS_PER_SECTION)])
    flat, touched = array("H", snapshot.flat), set()
    changes: List[_Pairs] = []
    if delta["settled"]:
        transition = snapshot.transition
        _need(transition is not None, "a target has settled that the base has not")
        _need((transition.replication or snapshot.replication).rf == rf, "another rf has settled")
        changes.append((list(transition.slots), transition.flat))
    if delta["slots"] is not None:
        changes.append(_pairs(delta["slots"], rf, count))
    for slots, lists in changes:
        for at, slot in enumerate(slots):
            flat[slot * rf : slot * rf + rf] = lists[at * rf : at * rf + rf]
            touched.add(slot // SLOTS_PER_SECTION)
    for at in touched:
        start = at * SLOTS_PER_SECTION
        size = min(SLOTS_PER_SECTION, count - start)
        bits, handles = pack(flat[start * rf : (start + size) * rf])
        message = {"first": start, "count": size, "bits": bits, "handles": handles}
        sections[at] = messages.SLOT_SECTION.encode(message)
    return sections


def _target(snapshot: Snapshot, delta: Dict[str, Any], header: Dict[str, Any]) -> List[bytes]:
    new = header["replication"]
    rf = snapshot.replication.rf if new is None else new["rf"]
    _need(1 <= rf <= MAX_RF, "an rf that no ring has")
    if delta["target"] is not None:
        slots, flat = _pairs(delta["target"], rf, 1 << snapshot.slot_bits)
    else:
        old = snapshot.transition
        _need(old is not None, "a transition without its target")
        same = (old.replication or snapshot.replication).rf == rf
        _need(same, "another rf than its base has, without the lists")
        slots, flat = list(old.slots), old.flat
    sections = []
    for at in range(0, len(slots), SLOTS_PER_SECTION):
        chunk = slots[at : at + SLOTS_PER_SECTION]
        bits, handles = pack(flat[at * rf : (at + len(chunk)) * rf])
        message = {"slots": chunk, "bits": bits, "handles": handles}
        sections.append(messages.TARGET_SECTION.encode(message))
    return sections
