"""Checks that nothing is deleted which audits of a job's horizon need.

An epoch of the horizon that could be audited if nothing was ever deleted can be audited with what
is there: the token log, a checkpoint to begin with and its files, and the archive of its revision.
What an audit needs is decided by the audit's own rules, over two pasts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from perseid.coordinator import store_sweep
from perseid.errors import RefusedError
from perseid.records import CheckpointPointer, CheckpointPointers
from perseid.registry import Registry
from perseid.replay import programs, ranges
from perseid.replay.ranges import Past, Range
from perseid.replay.request import Request
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation import job
from perseid.testing.simulation.check import TOKENS
from perseid.testing.simulation.engine import Defect
from perseid.topics import codec
from perseid.topics.records import Token, TokenRecord


@dataclass
class Horizon:
    """Checks one job, in histories that damage no file and lose no record.

    `whole`: whether all files of a checkpoint are in the store.
    """

    kafka: ModelKafka
    registry: Registry
    whole: Callable[[CheckpointPointer], bool]
    horizon_ms: int
    archives: dict[str, str] = field(default_factory=lambda: {"r1": "archive-1"})  # by revision
    audits: int = 0  # epochs that were looked at
    _seen: tuple[CheckpointPointers | None, int] = (None, 0)  # pointers and trims
    _log: dict[int, TokenRecord] = field(default_factory=dict)  # by offset, never trimmed
    _ever: dict[int, CheckpointPointer] = field(default_factory=dict)  # by offset of its token

    def look(self) -> None:
        """Raises Defect."""
        found = self.registry.pointers(job.JOB)
        if found is None or self._seen == (found, self.kafka.trims):
            return
        self._seen = found, self.kafka.trims
        self._ever |= {pointer.token_offset: pointer for pointer in found.pointers}
        log = self.kafka.log(TOKENS, 0)
        there = {
            r.offset: codec.decode_token(TOKENS, r.offset, r.value or b"") for r in log.records
        }
        self._log |= there
        ever = ranges.past(self._log.items(), trimmed=False)
        left = ranges.past(there.items(), trimmed=log.start > 0)
        newest = found.pointers[0]
        spans = [
            self._audited(token, ever, left, found)
            for token in (ever.tokens.values() if ever is not None else ())
            if token.epoch <= newest.epoch and token.time_ms >= newest.time_ms - self.horizon_ms
        ]
        for pointer in {span.checkpoint for span in spans if span is not None}:
            if pointer is not None and not self.whole(pointer):
                raise Defect(f"audits begin with epoch {pointer.epoch}, whose files are gone")
        kept = store_sweep.named(self.registry).archives
        for revision in sorted({span.revision for span in spans if span is not None}):
            self._look_at(revision, found, kept)

    def _audited(
        self, token: Token, ever: Past | None, left: Past | None, found: CheckpointPointers
    ) -> Range | None:
        """The audit of one epoch; None if there could never be one."""
        asked = Request(epochs=(token.epoch, token.epoch))
        newest = found.pointers[0].epoch
        resolve = partial(ranges.resolve, job=job.JOB, committed_epoch=newest, now_ms=0)
        try:
            resolve(asked, ever, self._ever.values())
        except RefusedError:
            return None
        self.audits += 1
        try:
            return resolve(asked, left, found.every)
        except RefusedError as error:
            raise Defect(f"the horizon has epoch {token.epoch}: {error}") from error

    def _look_at(self, revision: str, found: CheckpointPointers, kept: Collection[str]) -> None:
        entry, plan = self.registry.job_entry(job.JOB), self.registry.plan(job.JOB)
        assert entry is not None
        program = programs.recorded(revision, entry.value, plan, found)
        if program is None or program.archive != self.archives[revision]:
            raise Defect(f"the horizon has revision {revision}, and its files are {program}")
        if program.archive not in kept:
            raise Defect(f"the horizon has revision {revision}, and its archive is not kept")
