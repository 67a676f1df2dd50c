"""The last two good snapshots on disk, so that a start needs no control plane.

A file is the ``SnapshotBytes`` message as received, as the Rust client keeps it too. A new one
replaces it whole: temporary file, sync, the old one becomes the previous, rename, sync of the folder.
"""

import os
from pathlib import Path
from typing import Any, Dict, List

from .messages import MAX_MESSAGE_BYTES, SNAPSHOT_BYTES
from .refused import Refused
from .wire import Malformed


def read(path: Path) -> Dict[str, Any]:
    """The message in a file; raises ``Refused`` or ``OSError``."""
    with open(path, "rb") as file:
        data = file.read(MAX_MESSAGE_BYTES + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        raise Refused("length", "%s is longer than any snapshot" % path)
    try:
        return SNAPSHOT_BYTES.decode(data)
    except Malformed as error:
        raise Refused("malformed", "%s: %s" % (path, error)) from None


class Keep:
    """Where a ring's files lie."""

    def __init__(self, directory: str, ring: str):
        self.directory = Path(directory)
        self.newest = self.directory / (ring + ".snapshot")
        self.previous = self.directory / (ring + ".snapshot.previous")

    def paths(self) -> List[Path]:
        return [self.newest, self.previous]

    def store(self, message: Dict[str, Any]) -> None:
        """Replaces the newest; on disk when it returns. Raises ``OSError``."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # Its own name per process: two programs may share the folder.
        temporary = self.directory / ("%s.%d.tmp" % (self.newest.name, os.getpid()))
        try:
            with open(temporary, "wb") as file:
                file.write(SNAPSHOT_BYTES.encode(message))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(self.newest, self.previous)
            except FileNotFoundError:
                pass
            os.replace(temporary, self.newest)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
