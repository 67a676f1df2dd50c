"""The client: one thread that watches, one reference that lookups read."""

import random
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import delta, keep, messages
from .refused import Refused
from .snapshot import EpochRef, Expect, endpoint_is_good, name_is_good
from .table import Lookup, Table
from .wire import Malformed

_BYE = {
    1: "it stops",
    2: "it has lost its leader",
    3: "the ring is not known there",
    4: "it has not reached our epoch yet",
}
_FOLLOWED_HINTS = 16


class NoSnapshot(RuntimeError):
    """Nothing is held yet: no server answered so far, and there is no file."""


class Stale(RuntimeError):
    """What is held is older than the caller allows."""


class Status(NamedTuple):
    """A picture of the client at one moment."""

    ring: str
    place: Optional[EpochRef]
    # none, disk, file, or the endpoint whose stream brought it.
    source: str
    # Seconds since a server that follows its leader last said that this is the newest; for a
    # file, since it was written.
    age: Optional[float]
    # The server whose stream is open.
    endpoint: Optional[str]
    last_error: Optional[str]
    accepted: int
    # How often something was refused, by reason.
    refused: Dict[str, int]
    # The alarm: one epoch was seen with two checksums. Set once, and for good.
    fork: bool


class Change(NamedTuple):
    """What changed between two snapshots that were held one after the other."""

    before: Optional[EpochRef]
    after: EpochRef
    joined: Tuple[str, ...]
    left: Tuple[str, ...]
    # Nodes of both whose entry differs.
    altered: Tuple[str, ...]
    # Slots (of the finer table) that are read elsewhere, or in another order.
    moved: Tuple[int, ...]


def difference(before: Optional[Table], after: Table) -> Change:
    """O(members + slots)."""
    new = {member.node_id: member for member in after.snapshot.members}
    if before is None:
        return Change(None, after.place, tuple(new), (), (), tuple(range(len(after.lists))))
    old = {member.node_id: member for member in before.snapshot.members}
    count = max(len(before.lists), len(after.lists))

    def names(table: Table, slot: int) -> List[str]:
        return [member.node_id for member in table.lists[slot * len(table.lists) // count]]

    return Change(
        before.place,
        after.place,
        tuple(node for node in new if node not in old),
        tuple(node for node in old if node not in new),
        tuple(node for node in new if node in old and new[node] != old[node]),
        tuple(slot for slot in range(count) if names(before, slot) != names(after, slot)),
    )


class Client:
    """Routes keys of one ring.

    ``endpoints`` are servers of the control plane, "host:port"; ``directory`` keeps the last two
    good snapshots for a start without them; ``file`` is read once, for use without any server.
    Lookups go on by what is held for as long as it takes, unless ``refuse_after`` (seconds) says
    that older knowledge must raise ``Stale``. Times are in seconds.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        ring: str,
        directory: Optional[str] = None,
        *,
        file: Optional[str] = None,
        cluster_id: Optional[str] = None,
        name: str = "annulus-python",
        refuse_after: Optional[float] = None,
        silence: float = 15.0,
        connect_timeout: float = 2.0,
        backoff: Tuple[float, float] = (0.1, 5.0),
    ):
        if not name_is_good(ring):
            raise ValueError("%r is no name of a ring" % ring)
        for endpoint in endpoints:
            if not endpoint_is_good(endpoint):
                raise ValueError("endpoint %r is not host:port" % endpoint)
        if not endpoints and file is None:
            raise ValueError("neither an endpoint nor a file")
        if len(name.encode()) > 128 or not name.isprintable():
            raise ValueError("name: at most 128 printable bytes")
        if silence <= 0 or connect_timeout <= 0 or not 0 < backoff[0] <= backoff[1]:
            raise ValueError("times are above 0, the backoff's cap not below its base")
        self._ring, self._name, self._cluster_id = ring, name, cluster_id
        self._endpoints, self._refuse_after = list(endpoints), refuse_after
        self._silence, self._connect_timeout, self._backoff = silence, connect_timeout, backoff
        self._table: Optional[Table] = None
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._source, self._endpoint, self._last_error = "none", None, None
        self._confirmed: Optional[float] = None
        self._accepted, self._refused, self._fork = 0, {}, False  # type: ignore[var-annotated]
        self._without_base = False
        self._keep = None if directory is None else keep.Keep(directory, ring)
        self._call: Any = None
        if file is not None:
            self._offer(keep.read(Path(file)), "file", _written(Path(file)))
        if self._keep is not None:
            self._start_from_disk(self._keep)
        self._thread = threading.Thread(target=self._watch, name="annulus", daemon=True)
        if endpoints:
            self._thread.start()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch and every ``changes``; lookups go on."""
        self._closed.set()
        call = self._call
        if call is not None:
            call.cancel()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def table(self) -> Table:
        """What is held, for many lookups at one epoch; raises ``NoSnapshot`` or ``Stale``."""
        table = self._table
        if table is None:
            raise NoSnapshot("ring %s: %s" % (self._ring, self._last_error or "no answer yet"))
        if self._refuse_after is not None:
            age = self._age()
            if age is not None and age > self._refuse_after:
                raise Stale("epoch %d was confirmed %.1f s ago" % (table.place.epoch, age))
        return table

    def lookup(self, key: bytes) -> Lookup:
        """Where ``key`` lives: asks nobody, waits for nothing."""
        return self.table().lookup(key)

    def status(self) -> Status:
        with self._changed:
            return Status(
                self._ring,
                None if self._table is None else self._table.place,
                self._source,
                self._age(),
                self._endpoint,
                self._last_error,
                self._accepted,
                dict(self._refused),
                self._fork,
            )

    def wait_for(self, epoch: int = 1, timeout: Optional[float] = None) -> bool:
        """Waits until this epoch or a newer one is held; whether it is."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._has(epoch), timeout)
            return self._has(epoch)

    def changes(self) -> Iterator[Change]:
        """What changes from now on, until the client is closed. A slow reader gets several epochs
        as one change, so nothing is queued."""
        # Taken here and not in the generator, which begins only when it is first asked.
        return self._changes_since(self._table)

    def _changes_since(self, before: Optional[Table]) -> Iterator[Change]:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed.is_set() or self._table is not before
                )
                after = self._table
            if after is None or after is before:
                return
            yield difference(before, after)
            before = after

    def _has(self, epoch: int) -> bool:
        return self._table is not None and self._table.place.epoch >= epoch

    def _age(self) -> Optional[float]:
        confirmed = self._confirmed
        return None if confirmed is None else max(0.0, time.monotonic() - confirmed)

    def _start_from_disk(self, files: keep.Keep) -> None:
        for path in files.paths():
            try:
                self._offer(keep.read(path), "disk", _written(path))
                return
            except FileNotFoundError:
                continue
            except Refused as error:
                self._note(error, str(path))
                # Or the next good snapshot would push the damaged one over the previous.
                try:
                    path.replace(str(path) + ".damaged")
                except OSError as failed:
                    self._note(failed, str(path))
            except OSError as error:
                self._note(error, str(path))

    def _note(self, error: Exception, where: str) -> None:
        with self._changed:
            self._last_error = "%s: %s" % (where, error)
            if isinstance(error, Refused):
                self._refused[error.why] = self._refused.get(error.why, 0) + 1
                self._fork = self._fork or error.why == "fork"

    def _offer(self, message: Dict[str, Any], source: str, confirmed: float) -> None:
        """Checks, compiles, then swaps one reference; nothing changes when it raises."""
        held = self._table
        place = None if held is None else held.place
        table = Table.open(message, Expect(self._cluster_id, self._ring, place))
        with self._changed:
            self._table = table
            self._cluster_id = table.snapshot.cluster_id
            self._source, self._confirmed = source, confirmed
            self._accepted += 1
            self._changed.notify_all()

    def _watch(self) -> None:
        ceiling, queue, hints = self._backoff[0], [], []  # type: ignore[var-annotated]
        while not self._closed.is_set():
            if not queue:
                queue = random.sample(self._endpoints, len(self._endpoints))
            by_hint = bool(hints)
            endpoint = hints.pop(0) if hints else queue.pop(0)
            accepted, given = self._accepted, []  # type: ignore[var-annotated]
            try:
                given = self._follow(endpoint)
            except Exception as error:  # The thread that watches must outlive any surprise.
                self._note(error, endpoint)
            self._endpoint = None
            # Hints of a hinted server are not followed: two could name each other for ever.
            if not by_hint:
                hints = given
            if self._accepted != accepted:
                ceiling, queue = self._backoff[0], []
            # Full jitter, so that a crowd that lost one server does not come back together.
            self._closed.wait(random.uniform(0, ceiling))
            ceiling = min(ceiling * 2, self._backoff[1])

    def _follow(self, endpoint: str) -> List[str]:
        """One stream to its end; answers endpoints to try instead."""
        import grpc

        options = [
            ("grpc.max_receive_message_length", messages.MAX_MESSAGE_BYTES),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.max_pings_without_data", 0),
            # Pauses are ours, and servers of the control plane are near.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ]
        table = None if self._without_base else self._table
        request = {"ring": self._ring, "watcher": self._name}
        if table is not None:
            request["have"] = table.place._asdict()  # type: ignore[assignment]
        with grpc.insecure_channel(endpoint, options) as channel:
            watch = channel.unary_stream("/annulus.v1.Watch/Watch")
            report = channel.unary_unary("/annulus.v1.Watch/ReportApplied")
            call = self._call = watch(messages.WATCH_REQUEST.encode(request))
            patience = _Patience(self._connect_timeout, call.cancel)
            try:
                if self._closed.is_set():
                    return []
                call.initial_metadata()
                self._endpoint = endpoint
                self._report(report, endpoint)
                patience.extend(self._silence)
                for raw in call:
                    patience.extend(self._silence)
                    hints = self._take(raw, endpoint, report)
                    if hints is not None:
                        return hints
                raise ConnectionError("ended the stream")
            except grpc.RpcError as error:
                if patience.over:
                    raise TimeoutError("was silent for too long") from None
                raise ConnectionError(error.details() or str(error.code())) from None
            finally:
                patience.stop()
                call.cancel()
                self._call = None

    def _take(self, raw: bytes, endpoint: str, report: Callable) -> Optional[List[str]]:
        """One event; raises ``Refused``; answers hints if it was a farewell."""
        try:
            event = messages.WATCH_EVENT.decode(raw)
        except Malformed as error:
            raise Refused("malformed", str(error)) from None
        message = event["full"]
        if event["delta"] is not None:
            # Whatever is wrong with it, the next stream asks for the full snapshot.
            self._without_base = True
            table = self._table
            if table is None:
                raise Refused("base", "a delta, and nothing is held")
            message = delta.apply(table.place, table.message, table.snapshot, event["delta"])
        if message is not None:
            try:
                self._offer(message, endpoint, time.monotonic())
            except Refused as error:
                if error.why != "not-newer":
                    raise
                # Asked for whole, a server that has nothing newer says what is held.
                self._note(error, endpoint)
                self._without_base = False
                return None
            self._without_base = False
            self._report(report, endpoint)
            if self._keep is not None:
                try:
                    self._keep.store(message)
                except OSError as error:
                    self._note(error, "cannot keep the snapshot")
        progress = event["progress"]
        if progress is not None and self._table is not None:
            if self._table.place[:2] == (progress["generation"], progress["epoch"]):
                self._confirmed = time.monotonic() - progress["behind_ms"] / 1000
        if event["bye"] is not None:
            reason = _BYE.get(event["bye"]["reason"], "no reason given")
            self._note(ConnectionError("said bye: " + reason), endpoint)
            tries = event["bye"]["try_endpoints"][:_FOLLOWED_HINTS]
            return [hint for hint in tries if endpoint_is_good(hint)]
        return None

    def _report(self, report: Callable, endpoint: str) -> None:
        """Tells the server what is applied: for adoption, and so that it can notice a fork."""
        table = self._table
        if table is None:
            return
        request = {"ring": self._ring, "watcher": self._name, "applied": table.place._asdict()}
        raw = messages.REPORT_APPLIED_REQUEST.encode(request)
        future = report.future(raw, timeout=self._connect_timeout)  # type: ignore[attr-defined]
        future.add_done_callback(lambda done: self._reported(done, endpoint))

    def _reported(self, done: Any, endpoint: str) -> None:
        # Nothing hangs on a report: the next epoch brings the next one.
        if done.cancelled() or done.exception() is not None:
            return
        try:
            fork = messages.REPORT_APPLIED_RESPONSE.decode(done.result())["fork"]
        except Malformed:
            return
        if fork:
            self._note(Refused("fork", "the server knows this epoch otherwise"), endpoint)


class _Patience:
    """Cancels a call that was silent for too long."""

    def __init__(self, seconds: float, cancel: Callable[[], Any]):
        self.over = False
        self._cancel, self._until = cancel, time.monotonic() + seconds
        self._stopped = threading.Condition()
        self._stop = False
        threading.Thread(target=self._run, name="annulus-patience", daemon=True).start()

    def extend(self, seconds: float) -> None:
        with self._stopped:
            self._until = time.monotonic() + seconds
            self._stopped.notify()

    def stop(self) -> None:
        with self._stopped:
            self._stop = True
            self._stopped.notify()

    def _run(self) -> None:
        with self._stopped:
            while not self._stop:
                left = self._until - time.monotonic()
                if left <= 0:
                    self.over = True
                    break
                self._stopped.wait(left)
        if self.over:
            self._cancel()


def _written(path: Path) -> float:
    """When a file was written, on the monotonic clock."""
    return time.monotonic() - max(0.0, time.time() - path.stat().st_mtime)
