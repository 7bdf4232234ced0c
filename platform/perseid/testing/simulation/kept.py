"""Checks that nothing a restore may need is deleted, whenever a log is trimmed.

The token log keeps the token of every retained checkpoint, and each ledger partition keeps its last
record. What a running restore needs is checked implicitly: without it the owner fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from perseid.registry import Registry
from perseid.testing.kafka_model import ModelKafka, ModelLog
from perseid.testing.simulation import job
from perseid.testing.simulation.check import LEDGER, TOKENS
from perseid.testing.simulation.engine import Defect
from perseid.topics import codec
from perseid.topics.records import LedgerRecord


@dataclass
class Kept:
    """Checks one job's token log and ledger."""

    kafka: ModelKafka
    registry: Registry
    trims: int = 0  # of the token log, so far
    _asked: int = 0  # trims of any log that were looked at
    _starts: dict[tuple[str, int], int] = field(default_factory=dict)

    def look(self) -> None:
        """Raises Defect."""
        if self._asked == self.kafka.trims:
            return
        self._asked = self.kafka.trims
        for topic, partition, log in self._logs():
            if log.start > self._starts.get((topic, partition), 0):
                self._starts[topic, partition] = log.start
                if topic == TOKENS:
                    self._look_at_tokens(log)
                elif not self.kafka.lost_tails:
                    self._look_at_ledger(partition, log)

    def _look_at_tokens(self, log: ModelLog) -> None:
        self.trims += 1
        pointers = self.registry.pointers(job.JOB)
        for pointer in pointers.pointers if pointers is not None else ():
            if pointer.token_offset < log.start:
                raise Defect(
                    f"the token log begins with offset {log.start}, and the checkpoint of epoch "
                    f"{pointer.epoch}, which is kept, needs {pointer.token_offset}"
                )

    def _look_at_ledger(self, partition: int, log: ModelLog) -> None:
        committed = list(_committed(log))
        if not committed:
            raise Defect(f"ledger partition {partition}: its last record is deleted")
        pointers = self.registry.pointers(job.JOB)
        kept = min((p.epoch for p in pointers.pointers), default=0) if pointers else 0
        first = next((entry for entry in committed if entry.epoch > kept), None)
        if first is not None and not first.environment:
            raise Defect(
                f"ledger partition {partition} begins with {first}, after the checkpoint of epoch "
                f"{kept}: the environment of its writer is not known any more"
            )

    def _logs(self) -> Iterator[tuple[str, int, ModelLog]]:
        for topic in (TOKENS, LEDGER):
            if topic in self.kafka.topics:
                for partition, log in enumerate(self.kafka.topics[topic].logs):
                    yield topic, partition, log


def _committed(log: ModelLog) -> Iterator[LedgerRecord]:
    for record in log.records:
        decided = record.transaction is not None and record.transaction.state == "committed"
        if decided and not record.marker:
            yield codec.decode_ledger((LEDGER, 0), record.offset, record.value or b"")
