"""Entries in ZooKeeper: the leader, the members, and the jobs with their plans. See README.md."""

from perseid.registry.facade import EpochEntry, Registry, Stored
from perseid.registry.fenced import Fence, FencedRegistry, lead
from perseid.registry.port import (
    ConflictError,
    Coordination,
    FenceLostError,
    SessionState,
    UnknownOutcomeError,
)

__all__ = [
    "ConflictError",
    "Coordination",
    "EpochEntry",
    "Fence",
    "FenceLostError",
    "FencedRegistry",
    "Registry",
    "SessionState",
    "Stored",
    "UnknownOutcomeError",
    "lead",
]
