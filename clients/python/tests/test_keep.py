"""A start without a control plane, and what is held when something is refused."""

import tempfile
import unittest

from annulus import Client, NoSnapshot, Refused, Stale
from annulus.keep import Keep

from .common import bent, fixture, opened

# Nobody listens there: port 9 is "discard", which no machine serves any more.
NOBODY = ["127.0.0.1:9"]


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.keep = Keep(self.folder, "orders")
        self.first = fixture()
        place = opened(self.first).place
        self.second = bent(self.first, epoch=8, previous_checksum=place.checksum)

    def client(self, **settings):
        client = Client(NOBODY, "orders", self.folder, **settings)
        self.addCleanup(client.close)
        return client

    def test_the_newest_file_is_used_and_a_damaged_one_gives_way_to_the_one_before(self):
        with self.assertRaises(NoSnapshot):
            self.client().lookup(b"a")
        self.keep.store(self.first)
        self.keep.store(self.second)
        self.assertEqual(self.client().lookup(b"a").epoch, 8)
        raw = bytearray(self.keep.newest.read_bytes())
        raw[-1] ^= 1
        self.keep.newest.write_bytes(raw)
        client = self.client()
        self.assertEqual(client.lookup(b"a").epoch, 7)
        self.assertEqual(client.status().refused, {"checksum": 1})
        self.assertEqual(client.status().source, "disk")
        # The previous is not lost by the next store.
        self.keep.store(self.second)
        self.assertTrue(self.keep.newest.with_name("orders.snapshot.damaged").exists())

    def test_what_is_refused_changes_nothing(self):
        self.keep.store(self.second)
        client = self.client()
        table = client.table()
        for message in (self.first, bent(self.second, created_at_ms=5)):
            with self.assertRaises(Refused):
                client._offer(message, "test", 0.0)
        self.assertIs(client.table(), table)

    def test_staleness_is_the_callers_choice(self):
        self.keep.store(self.first)
        self.assertEqual(self.client().lookup(b"a").epoch, 7)
        with self.assertRaises(Stale):
            self.client(refuse_after=-1.0).lookup(b"a")

    def test_a_file_is_enough(self):
        self.keep.store(self.first)
        client = Client([], "orders", file=str(self.keep.newest))
        self.assertEqual(client.lookup(b"a"), opened(self.first).lookup(b"a"))
        self.assertRaises(TypeError, client.lookup, "a")
        client.close()
