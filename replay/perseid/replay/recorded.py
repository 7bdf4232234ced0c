"""The environments in which the audited epochs ran, as their ledgers name them. Pure.

A ledger's record names the environment of its writer, and it holds up to the next record that names
one. All epochs after the base count, up to the first one that differs: what a worker computed there
is in the state, and comes out later, perhaps on another worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from perseid.replay.verdict import BETWEEN

if TYPE_CHECKING:
    from perseid.topics.records import LedgerRecord


class Environments:
    """Takes a ledger's records in their order, of every partition for itself."""

    def __init__(self, job_uuid: str, layout: int, base_epoch: int) -> None:
        self._own, self._base = (job_uuid, layout), base_epoch
        # By operator partition: from which epoch on it has which; {}: not known.
        self._known: dict[tuple[str, int], list[tuple[int, Mapping[str, str]]]] = {}

    def committed(self, record: LedgerRecord) -> None:
        if (record.job_uuid, record.layout) != self._own:
            return
        known = self._known.setdefault((record.operator, record.partition), [])
        if not known or (record.environment and record.environment != known[-1][1]):
            known.append((record.epoch, record.environment))

    def upto(self, last: int) -> dict[str, str]:
        """What the epochs from the base to `last` ran in; {} if that is not known of all."""
        first = self._base + 1
        found = [
            environment
            for known in self._known.values()
            for (begun, environment), (end, _) in pairwise([(0, {}), *known, (last + 1, {})])
            if end > first and begun <= last
        ]
        if not found or not all(found):
            return {}
        names = sorted({name for one in found for name in one})
        return {
            name: BETWEEN.join(sorted({one[name] for one in found if name in one}))
            for name in names
        }  # fmt: skip
