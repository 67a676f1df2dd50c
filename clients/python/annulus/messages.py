"""The messages that a client reads and writes, after ``proto/annulus/v1/{common,watch}.proto``.

Only what a client needs is listed; everything else in a message is passed over.
"""

from .wire import Field, Shape

# Largest message that is read or sent, in bytes: the servers' own limit.
MAX_MESSAGE_BYTES = 64 << 20
SLOTS_PER_SECTION = 1_024
MAX_MEMBERS = 10_000
MAX_SLOT_BITS = 20
MAX_RF = 7
# A header, every member, every slot and every slot's target.
MAX_SECTIONS = 1 + MAX_MEMBERS + 2 * ((1 << MAX_SLOT_BITS) // SLOTS_PER_SECTION)
# Most other endpoints that a server's farewell may name and have read.
MAX_HINTS = 1_000

LAYOUT_SLOTS = 1
STATES = {1: "joining", 2: "copying", 3: "catching_up", 4: "active", 5: "draining", 6: "removed"}
UP = 1
STEPS = {
    1: "prepared",
    2: "writing",
    3: "copying",
    4: "catching_up",
    5: "verified",
    6: "joint",
    7: "switched",
    # The way back from 7; 8 is the end, and no step.
    9: "flipping_back",
}
SWITCHED = 7

SNAPSHOT_BYTES = Shape(
    "SnapshotBytes",
    {
        1: Field("format", "u32"),
        2: Field("checksum", "bytes"),
        3: Field("sections", "bytes", most=MAX_SECTIONS),
    },
)

REPLICATION_HEADER = Shape(
    "ReplicationHeader",
    {1: Field("rf", "u32"), 2: Field("w", "u32"), 3: Field("r", "u32")},
)

TRANSITION_HEADER = Shape(
    "TransitionHeader",
    {
        1: Field("id", "u64"),
        2: Field("step", "u32"),
        3: Field("changed_slots", "u32"),
        4: Field("replication", REPLICATION_HEADER),
    },
)

SNAPSHOT_HEADER = Shape(
    "SnapshotHeader",
    {
        1: Field("format", "u32"),
        2: Field("cluster_id", "bytes"),
        3: Field("ring", "text"),
        4: Field("generation", "u64"),
        5: Field("epoch", "u64"),
        6: Field("previous_checksum", "bytes"),
        7: Field("created_at_ms", "u64"),
        8: Field("placement_version", "u32"),
        9: Field("hash", "text"),
        10: Field("seed", "u64"),
        11: Field("rf", "u32"),
        12: Field("w", "u32"),
        13: Field("r", "u32"),
        14: Field("layout", "enum"),
        15: Field("slot_bits", "u32"),
        16: Field("member_count", "u32"),
        17: Field("transition", TRANSITION_HEADER),
        18: Field("signature", "bytes"),
    },
)

MEMBER_SECTION = Shape(
    "MemberSection",
    {
        1: Field("node_id", "text"),
        2: Field("incarnation", "u64"),
        3: Field("handle", "u32"),
        4: Field("zone", "text"),
        5: Field("weight", "u32"),
        6: Field("endpoint", "text"),
        7: Field("state", "enum"),
        8: Field("availability", "enum"),
    },
)

SLOT_SECTION = Shape(
    "SlotSection",
    {
        1: Field("first", "u32"),
        2: Field("count", "u32"),
        3: Field("bits", "u32"),
        4: Field("handles", "bytes"),
    },
)

TARGET_SECTION = Shape(
    "TargetSection",
    {
        1: Field("slots", "u32", most=SLOTS_PER_SECTION),
        2: Field("bits", "u32"),
        3: Field("handles", "bytes"),
    },
)

EPOCH_REF = Shape(
    "EpochRef",
    {1: Field("generation", "u64"), 2: Field("epoch", "u64"), 3: Field("checksum", "bytes")},
)

SLOT_PAIRS = Shape(
    "SlotPairs",
    {
        1: Field("gaps", "u32", most=1 << MAX_SLOT_BITS),
        2: Field("bits", "u32"),
        3: Field("handles", "bytes"),
    },
)

DELTA = Shape(
    "Delta",
    {
        1: Field("base", EPOCH_REF),
        2: Field("checksum", "bytes"),
        4: Field("format", "u32"),
        5: Field("header", "bytes"),
        6: Field("members", "bytes", most=MAX_MEMBERS),
        7: Field("removed", "text", most=MAX_MEMBERS),
        8: Field("settled", "bool"),
        9: Field("slots", SLOT_PAIRS),
        10: Field("target", SLOT_PAIRS),
    },
)

PROGRESS = Shape(
    "Progress",
    {1: Field("generation", "u64"), 2: Field("epoch", "u64"), 3: Field("behind_ms", "u64")},
)

BYE = Shape(
    "Bye",
    {1: Field("reason", "enum"), 2: Field("try_endpoints", "text", most=MAX_HINTS)},
)

WATCH_REQUEST = Shape(
    "WatchRequest",
    {1: Field("ring", "text"), 2: Field("have", EPOCH_REF), 3: Field("watcher", "text")},
)

WATCH_EVENT = Shape(
    "WatchEvent",
    {
        1: Field("full", SNAPSHOT_BYTES),
        2: Field("delta", DELTA),
        3: Field("progress", PROGRESS),
        4: Field("bye", BYE),
    },
)

REPORT_APPLIED_REQUEST = Shape(
    "ReportAppliedRequest",
    {1: Field("ring", "text"), 2: Field("watcher", "text"), 3: Field("applied", EPOCH_REF)},
)

REPORT_APPLIED_RESPONSE = Shape("ReportAppliedResponse", {1: Field("fork", "bool")})
