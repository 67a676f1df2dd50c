import json
from pathlib import Path

from annulus import Refused, Table, messages
from annulus.keep import read
from annulus.snapshot import Expect, checksum

ROOT = Path(__file__).resolve().parents[3]


def cases(name):
    with open(ROOT / "vectors" / name) as file:
        return json.load(file)["cases"]


def fixture(name="steady"):
    return read(ROOT / "proto/fixtures/v1" / (name + ".snapshot"))


def opened(message, held=None, cluster=None, ring="orders"):
    return Table.open(message, Expect(cluster, ring, held))


def why(message, **expect):
    """Why it is refused; None if it is taken."""
    try:
        opened(message, **expect)
    except Refused as refused:
        return refused.why
    return None


def bent(message, at=0, shape=messages.SNAPSHOT_HEADER, **fields):
    """The message with fields of one section changed and the checksum made to fit."""
    section = shape.decode(message["sections"][at])
    section.update(fields)
    return with_section(message, at, shape.encode(section))


def with_section(message, at, raw):
    sections = list(message["sections"])
    sections[at] = raw
    format = message["format"]
    return {"format": format, "sections": sections, "checksum": checksum(format, sections)}
