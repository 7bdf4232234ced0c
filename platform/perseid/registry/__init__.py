"""Entries in ZooKeeper: who leads, who is there, what runs where. See README.md."""

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
