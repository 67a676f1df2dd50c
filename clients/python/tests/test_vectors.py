"""Every answer that all clients must give alike."""

import unittest

from annulus import hashes, packing

from .common import cases


class Vectors(unittest.TestCase):
    def test_hashes_in_pure_python_and_by_the_package(self):
        seen = set()
        for case in cases("hashes.json"):
            key = bytes.fromhex(case["key"]) * case["times"]
            functions = [hashes.of(case["hash"])]
            if case["hash"] == "xxh3-64":
                functions.append(hashes.xxh3_64_pure)
            for function in functions:
                self.assertEqual("%016x" % function(int(case["seed"], 16), key), case["value"], case)
            seen.add(case["hash"])
        self.assertEqual(seen, set(hashes.NAMES))

    def test_slots_are_found_by_the_top_bits(self):
        [ring] = [case for case in cases("slots.json") if case["name"] == "eight slots"]
        found = [case for case in cases("lookups.json") if case["name"] == "eight slots"]
        self.assertTrue(found)
        for case in found:
            slot = int(case["hash"], 16) >> 64 - ring["bits"]
            self.assertEqual(ring["lists"][slot], case["list"], case)

    def test_packing_with_and_without_numpy_and_back(self):
        kept = packing._numpy
        self.addCleanup(setattr, packing, "_numpy", kept)
        for highest in (0, 1, 2, 3, 6, 7, 100, 254, 255, 1000, 65534):
            flat = [n * 7919 % (highest + 1) for n in range(1199)] + [highest]
            bits, data = packing.pack(flat)
            for module in (None, kept):
                packing._numpy = module
                self.assertEqual(list(packing.unpack(data, bits, 1, 1200)), flat)
