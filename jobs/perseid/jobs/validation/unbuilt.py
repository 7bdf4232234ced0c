"""Features that job.yaml documents but this version lacks: refused, never silently ignored.

A documented default (`replicas: {budget: 0}`, `recovery: {priority: 1}`) has no effect and is
accepted, so a file may contain all defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perseid.jobs.validation import document as doc

Refusal = tuple[tuple[str, ...], str]  # path inside the block, and the reason with the remedy


def fault_tolerance(block: doc.FaultTolerance) -> Iterator[Refusal]:
    if block.mode != "exact":
        yield ("mode",), f"mode {block.mode} is not built yet; write `mode: exact`"
    if block.replicas.budget not in {0, "all"}:
        yield (
            ("replicas", "budget"),
            "a budget in operator partitions is not built yet; write `all` or 0",
        )
    if block.recovery.priority != 1:
        yield ("recovery", "priority"), "recovery by priority is not built yet; write `priority: 1`"
    if block.recovery.adaptiveBufferingAfter not in {0, 2}:
        yield (
            ("recovery", "adaptiveBufferingAfter"),
            "adaptive buffering is not built yet; remove the line",
        )


def operator(block: doc.Operator) -> Iterator[Refusal]:
    if block.edge not in {None, "full"}:
        yield ("edge",), f"edge {block.edge} is not built yet; write `edge: full`"
    if block.errors.operator == "bisect" and block.sql is not None:
        yield ("errors", "operator"), (
            "bisecting an SQL operator is not built; write `operator: stop`, and what may fail on "
            "a record in Python (`use:`) or with TRY_CAST and its like"
        )


def all_of(kind: str, block: Any) -> Iterator[Refusal]:
    """The refusals of a block of one of the named sections."""
    if kind == "operators":
        yield from operator(block)
