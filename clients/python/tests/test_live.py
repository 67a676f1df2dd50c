"""Three servers, four data nodes and a join; then no server at all. Needs ANNULUS_BIN."""

import json
import os
import socket
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from annulus import Client

BINARY = os.environ.get("ANNULUS_BIN")


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ["127.0.0.1:%d" % port for port in ports]


def until(holds, seconds=60):
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError("waited %d s in vain" % seconds)
        time.sleep(0.1)


@unittest.skipUnless(BINARY, "ANNULUS_BIN names no binary")
class Live(unittest.TestCase):
    def start(self, *words):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.addCleanup(log.close)
        process = subprocess.Popen([BINARY, *words], stdout=log, stderr=log)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.wait()

    def run_command(self, *words):
        words = [BINARY, *words, "--endpoints", ",".join(self.servers)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    def must(self, *words):
        until(lambda: self.run_command(*words).returncode == 0)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.servers = free_ports(3)

    def test_it_follows_a_join_and_outlives_the_control_plane(self):
        place = lambda name: os.path.join(self.folder, name)  # noqa: E731
        servers = []
        for at, endpoint in enumerate(self.servers, 1):
            words = ["--listen", endpoint, "--data-dir", place("s%d" % at)]
            servers.append(self.start("serve", "--id", str(at), *words))
        pairs = ["%d=%s" % pair for pair in enumerate(self.servers, 1)]
        self.must("cluster", "init", *pairs)
        self.must("ring", "create", "users", "--slot-bits", "6", "--soak", "1s", "--grace", "2s")
        for at, endpoint in enumerate(free_ports(4), 1):
            words = ["--node", "n%d" % at, "--zone", "z%d" % ((at - 1) % 3 + 1)]
            words += ["--listen", endpoint, "--data-dir", place("n%d" % at)]
            self.start("kv", "serve", "--ring", "users", *words, "--endpoints", ",".join(self.servers))
        self.must("ring", "found", "users", "n1", "n2", "n3")

        cache = place("cache")
        with Client(self.servers, "users", cache) as client:
            changes = client.changes()
            until(lambda: client.status().place and len(client.table().snapshot.members) == 3)
            self.must("node", "join", "users", "n4")
            joined = next(change for change in changes if "n4" in change.joined)
            self.assertLess(joined.before or (0, 0), joined.after)
            until(lambda: client.table().snapshot.transition is None and len(client.table().snapshot.members) == 4)
            keys = ["user:%d" % at for at in range(1_000)]
            with ThreadPoolExecutor(8) as pool:
                self.assertEqual(len(list(pool.map(lambda key: self.agree(client, key), keys))), 1_000)
            self.assertEqual(client.status().refused, {})
            before = [client.lookup(key.encode()) for key in keys]
            self.assertTrue(any("n4" in [node.node_id for node in one.nodes] for one in before))

            for server in servers:
                self.end(server)
            until(lambda: client.status().endpoint is None)
            self.assertEqual([client.lookup(key.encode()) for key in keys], before)
        with Client(self.servers, "users", cache) as client:
            self.assertEqual(client.status().source, "disk")
            self.assertEqual([client.lookup(key.encode()) for key in keys], before)

    def agree(self, client, key):
        """The same answer as the command line's, at the same epoch."""

        def same_epoch():
            ours = client.lookup(key.encode())
            ran = self.run_command("lookup", "users", key, "-o", "json")
            theirs = json.loads(ran.stdout) if ran.returncode == 0 else {"epoch": "0"}
            return int(theirs["epoch"]) == ours.epoch and (ours, theirs)

        ours, theirs = until(same_epoch)
        self.assertEqual("%016x" % ours.hash, theirs["hash"])
        self.assertEqual(["%016x" % end for end in ours.range], list(theirs["range"].values()))
        self.assertEqual([n.node_id for n in ours.nodes], [n["node"] for n in theirs["replicas"]])
