"""Bytes that may be hostile: taken whole, or refused by name."""

import unittest

from annulus import EpochRef, Refused, delta, messages
from annulus.wire import Malformed

from .common import bent, fixture, opened, why, with_section


class Snapshots(unittest.TestCase):
    def test_the_servers_fixtures_open(self):
        for name in ("steady", "transition"):
            table = opened(fixture(name))
            self.assertEqual(table.place.epoch, 7)
            for nodes in table.lists:
                self.assertEqual(len(set(nodes)), len(nodes))

    def test_every_flipped_byte_and_every_truncation_is_refused(self):
        for name in ("steady", "transition"):
            raw = messages.SNAPSHOT_BYTES.encode(fixture(name))
            for at in range(len(raw)):
                for flip in (1, 0x80, 0xFF):
                    self.refuse(raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :])
                self.refuse(raw[:at])

    def refuse(self, raw):
        try:
            message = messages.SNAPSHOT_BYTES.decode(raw)
        except Malformed:
            return
        # A field that is not known may come and go: then the message is the same.
        if message != fixture("steady") and message != fixture("transition"):
            self.assertIsNotNone(why(message), raw.hex())

    def test_a_mistaken_sender_is_refused_or_makes_sense(self):
        good = fixture("transition")
        for at, section in enumerate(good["sections"]):
            for place in range(len(section)):
                for flip in (1, 0x80, 0xFF):
                    raw = section[:place] + bytes([section[place] ^ flip]) + section[place + 1 :]
                    why(with_section(good, at, raw))  # Anything but Refused is an error here.
                why(with_section(good, at, section[:place]))

    def test_each_reason_has_its_name(self):
        good = fixture()
        held = opened(good).place
        self.assertEqual(why({**good, "sections": []}), "length")
        self.assertEqual(why({**good, "checksum": bytes(32)}), "checksum")
        self.assertEqual(why(bent(good, format=2)), "format")
        self.assertEqual(why(good, cluster="00" * 16), "foreign-cluster")
        self.assertEqual(why(good, ring="other"), "foreign-ring")
        self.assertEqual(why(good, held=held), "not-newer")
        self.assertEqual(why(good, held=EpochRef(1, 9, bytes(32))), "not-newer")
        self.assertEqual(why(bent(good, created_at_ms=1), held=held), "fork")
        self.assertEqual(why(bent(good, epoch=8), held=held), "chain")
        follows = bent(good, epoch=8, previous_checksum=held.checksum)
        self.assertIsNone(why(follows, held=held))
        self.assertIsNone(why(bent(good, epoch=9), held=held), "a jump is no damage")
        self.assertIsNone(why(bent(good, generation=2, epoch=1), held=held))
        self.assertEqual(why(bent(good, layout=2)), "unknown-layout")
        self.assertEqual(why(bent(good, hash="fnv1a")), "unknown-hash")
        member = messages.MEMBER_SECTION
        self.assertEqual(why(bent(good, 1, member, state=99)), "unknown-state")
        self.assertEqual(why(bent(good, 1, member, node_id="zz")), "sense")
        self.assertEqual(why(bent(good, epoch=0)), "sense")
        self.assertEqual(why(bent(good, slot_bits=30)), "malformed")
        self.assertEqual(why(with_section(good, 0, good["sections"][0] * 2)), "malformed")


class Deltas(unittest.TestCase):
    def setUp(self):
        self.base = fixture("transition")
        self.table = opened(self.base)

    def delta(self, to, **fields):
        place = dict(self.table.place._asdict())
        return {
            **messages.DELTA.empty(), "base": place, "checksum": to["checksum"],
            "format": to["format"], "header": to["sections"][0], **fields,
        }

    def apply(self, message):
        message = messages.DELTA.decode(messages.DELTA.encode(message))
        place, snapshot = self.table.place, self.table.snapshot
        return delta.apply(place, self.base, snapshot, message)

    def test_it_gives_the_bytes_of_the_full_snapshot(self):
        member = messages.MEMBER_SECTION
        to = bent(self.base, epoch=8, previous_checksum=self.table.place.checksum)
        to = bent(to, 1, member, endpoint="10.0.0.9:1")
        found = self.apply(self.delta(to, members=[to["sections"][1]]))
        self.assertEqual(found, to)
        self.assertEqual(opened(found, held=self.table.place).place.epoch, 8)

    def test_changed_and_settled_slots_are_packed_as_the_server_packs_them(self):
        # The same lists again: every section comes out byte for byte.
        flat, rf = self.table.snapshot.flat, self.table.snapshot.replication.rf
        bits, handles = delta.pack(flat)
        slots = len(flat) // rf
        pairs = {"gaps": [0] + [1] * (slots - 1), "bits": bits, "handles": handles}
        to = bent(self.base, epoch=8, previous_checksum=self.table.place.checksum)
        self.assertEqual(self.apply(self.delta(to, slots=pairs)), to)

    def test_another_base_is_refused_and_a_lie_is_found(self):
        to = bent(self.base, epoch=8, previous_checksum=self.table.place.checksum)
        with self.assertRaises(Refused) as refused:
            self.apply(self.delta(to, base={"generation": 1, "epoch": 6, "checksum": b""}))
        self.assertEqual(refused.exception.why, "base")
        self.assertEqual(why(self.apply(self.delta(to, checksum=bytes(32)))), "checksum")
        with self.assertRaises(Refused):
            self.apply(self.delta(bent(to, generation=2)))
        with self.assertRaises(Refused):
            self.apply(self.delta(to, removed=["nobody"]))
