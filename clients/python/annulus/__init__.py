"""Which node owns which key, for programs in Python: a client of the Annulus control plane."""

from .client import Change, Client, NoSnapshot, Stale, Status
from .refused import REASONS, Refused
from .snapshot import EpochRef, Member
from .table import Lookup, NoOwner, Table

__all__ = [
    "Change", "Client", "EpochRef", "Lookup", "Member", "NoOwner", "NoSnapshot", "REASONS",
    "Refused", "Stale", "Status", "Table",
]
