"""The watch, against a server that sends what the test says."""

import queue
import unittest
from concurrent.futures import ThreadPoolExecutor

import grpc

from annulus import Client, messages

from .common import bent, fixture, opened
from .test_live import until


class Server(grpc.GenericRpcHandler):
    """Each stream takes the next script: events, and then silence until it is cancelled."""

    def __init__(self, *scripts):
        self.scripts, self.requests, self.reports = list(scripts), [], queue.Queue()

    def service(self, call):
        if call.method == "/annulus.v1.Watch/Watch":
            return grpc.unary_stream_rpc_method_handler(self.watch)
        return grpc.unary_unary_rpc_method_handler(self.report)

    def watch(self, raw, context):
        self.requests.append(messages.WATCH_REQUEST.decode(raw))
        ended = queue.Queue()
        context.add_callback(lambda: ended.put(None))
        context.send_initial_metadata(())
        if self.scripts:
            for event in self.scripts.pop(0):
                yield event if isinstance(event, bytes) else messages.WATCH_EVENT.encode(event)
        ended.get()

    def report(self, raw, _context):
        self.reports.put(messages.REPORT_APPLIED_REQUEST.decode(raw))
        return b""


class Watching(unittest.TestCase):
    def setUp(self):
        self.first = fixture()
        self.place = opened(self.first).place
        self.second = bent(self.first, epoch=8, previous_checksum=self.place.checksum)
        self.delta = {
            **messages.DELTA.empty(), "base": self.place._asdict(), "format": 1,
            "checksum": self.second["checksum"], "header": self.second["sections"][0],
        }

    def client(self, *scripts, **settings):
        handler = Server(*scripts)
        server = grpc.server(ThreadPoolExecutor(8), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        client = Client(["127.0.0.1:%d" % port], "orders", backoff=(0.01, 0.05), **settings)
        # Last in, first out: the client goes before its server.
        self.addCleanup(lambda: server.stop(None).wait())
        self.addCleanup(client.close)
        return client, handler

    def test_a_delta_is_applied_and_reported(self):
        client, server = self.client([{"full": self.first}, {"delta": self.delta}])
        self.assertTrue(client.wait_for(8, timeout=10))
        self.assertEqual(client.table().message, self.second)
        self.assertEqual(client.status().refused, {})
        until(lambda: server.reports.get(timeout=10)["applied"]["epoch"] == 8, 10)
        self.assertEqual(len(server.requests), 1)

    def test_a_refused_delta_makes_it_ask_for_the_full_snapshot(self):
        lie = {**self.delta, "checksum": bytes(32)}
        client, server = self.client(
            [{"full": self.first}, {"delta": lie}], [{"full": self.second}]
        )
        self.assertTrue(client.wait_for(8, timeout=10))
        self.assertEqual([request["have"] for request in server.requests], [None, None])
        self.assertEqual(client.status().refused, {"checksum": 1})

    def test_it_resumes_from_what_it_holds_after_rubbish_a_farewell_and_silence(self):
        client, server = self.client(
            [{"full": self.first}, b"\xff"],
            [{"bye": {"reason": 1, "try_endpoints": ["no endpoint"]}}],
            [],
            [{"full": self.second}],
            silence=0.3,
        )
        self.assertTrue(client.wait_for(8, timeout=10))
        have = [request["have"] for request in server.requests]
        self.assertEqual(have[0], None)
        self.assertEqual(have[1:4], [self.place._asdict()] * 3)

    def test_a_fork_is_an_alarm_and_changes_nothing(self):
        client, _ = self.client([{"full": self.first}, {"full": bent(self.first, created_at_ms=1)}])
        until(lambda: client.status().fork, 10)
        self.assertEqual(client.status().place, self.place)
