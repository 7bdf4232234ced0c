"""Limits, periods and sizes of production code, drawn with extremes for some seeds.

The protocol must hold with any of these values: they decide how soon and how much, never what is
right. What a value may break by its meaning (how often an epoch may end its process before its code
is blamed, how long an unknown transaction is awaited) is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from random import Random
from typing import NamedTuple
from unittest.mock import patch

SHARE = 0.3  # of the constants of a seed that draws them


class Constant(NamedTuple):
    """`module`: where it is read, below `perseid`. `values`: to be drawn, besides its own."""

    module: str
    name: str
    values: Sequence[float]


CONSTANTS = (
    Constant("coordinator.issue", "IDLE_TOKEN_S", (1.0, 30.0)),
    Constant("coordinator.issue", "AHEAD_MAX", (1, 2, 5)),
    Constant("coordinator.issue", "LATE_S", (0.0, 0.05, 5.0)),
    Constant("coordinator.issue", "SIZE_MIN", (1, 3)),
    Constant("coordinator.checkpoints", "COLLECTING_MAX_S", (3.0, 10.0)),
    Constant("coordinator.checkpoints", "REPLAY_TOKENS_MAX", (1, 3)),
    Constant("coordinator.holding", "TOKENS_MAX", (1, 5)),
    Constant("coordinator.holding", "RANGES_MAX", (1, 20)),
    Constant("coordinator.input_checks", "CARRIED_BYTES_MAX", (1, 40, 200)),
    Constant("coordinator.input_checks", "WAITING_BYTES_MAX", (1, 80, 400)),
    Constant("coordinator.switching", "FINAL_AGAIN_S", (0.0, 10.0)),
    Constant("coordinator.failing", "RETRY_FIRST_S", (0.01, 3.0)),
    Constant("coordinator.failing", "RETRY_MAX_S", (0.1, 5.0)),
    Constant("coordinator.job.standby", "RETRY_FIRST_S", (0.01, 5.0)),
    Constant("coordinator.job.switch", "LOAD_AGAIN_S", (0.01, 5.0)),
    Constant("coordinator.watching", "REGISTRY_S", (0.1, 5.0)),
    Constant("coordinator.watching", "RETRY_S", (0.01, 3.0)),
    Constant("coordinator.watching", "IDENTITY_S", (0.2, 20.0)),
    Constant("coordinator.core", "LOAD_RETRY_S", (0.01, 5.0)),
    Constant("coordinator.replicas", "LAG_MAX", (0, 1, 1000)),
    Constant("coordinator.log_trimming", "LOOK_OFFSETS", (1, 3)),
    Constant("coordinator.log_trimming", "LOOKS_MAX", (1,)),
    Constant("coordinator.watermark", "IDLE_MS", (1, 2000)),
    Constant("engine.last_word", "LOOK_S", (0.2, 20.0)),
    Constant("engine.comparison", "WAITING_MAX", (1, 3)),
    Constant("engine.acknowledged", "AGAIN_S", (0.01, 5.0)),
    Constant("engine.fragment", "READ_TIMEOUT_S", (1.0,)),
    Constant("worker.checkpoint.part_orders", "LOOK_S", (0.1, 20.0)),
    Constant("worker.checkpoint.parts", "LOG_BYTES", (1, 2000)),
    Constant("worker.epoch.inbox", "LOOK_S", (0.2, 20.0)),
    Constant("worker.epoch.inbox", "FRAGMENT_BYTES_MAX", (1, 2000, 20_000)),
    Constant("worker.sink.audit", "LOOK_S", (0.1, 10.0)),
    Constant("worker.sink.audit", "WAITING_MAX", (1, 3)),
    Constant("worker.sink.transaction", "_BACKOFF_S", (0.001, 3.0)),
    Constant("worker.sink.committed", "LEDGER_TIMEOUT_S", (15.0,)),
    Constant("state.durability.checkpoint", "LINKS_MAX", (0, 1, 2)),
    Constant("state.durability.pieces", "PIECE_BYTES", (64, 500)),
    Constant("state.durability.pieces", "CHUNK_BYTES", (16, 100)),
    Constant("state.primitives.arrow", "BATCH_ROWS", (1, 3)),
    Constant("state.primitives.arrow", "_LARGE_BYTES", (1, 100)),
    Constant("state.primitives.backup", "CAPACITY_MIN", (1, 2)),
    Constant("state.primitives.chunks", "CHUNK_ROWS", (1, 2, 5)),
    Constant("state.primitives.deltas", "JOINED_ROWS", (1, 3)),
    Constant("state.primitives.index", "PLACES_MIN", (2, 8)),
    Constant("state.primitives.rows", "CAPACITY_MIN", (1, 2)),
    Constant("state.primitives.texts", "HEAP_MIN", (1, 16)),
)


def drawn(chance: Random) -> dict[Constant, float]:
    """The values of one seed."""
    return {one: chance.choice(one.values) for one in CONSTANTS if chance.random() < SHARE}


@contextmanager
def set_to(values: dict[Constant, float]) -> Iterator[None]:
    """Lets production code read these values."""
    with ExitStack() as stack:
        for one, value in values.items():
            module = import_module(f"perseid.{one.module}")
            stack.enter_context(patch.object(module, one.name, value))
        yield


def described(values: dict[Constant, float]) -> str:
    return ", ".join(f"{one.module}.{one.name}={value}" for one, value in values.items())
