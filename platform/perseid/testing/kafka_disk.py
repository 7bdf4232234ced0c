"""The disk of the model of Kafka: lost tails, and retention.

A broker acknowledges what its page cache holds. A power failure loses what was not flushed, for
each partition independently, so records of one transaction may survive in one log and be lost in
another. The broker's own records (producer epochs, how transactions ended) are kept.
"""

from __future__ import annotations

import random
from dataclasses import replace

from perseid.testing.kafka_model import ModelKafka, ModelLog, ModelRecord, ModelTransaction
from perseid.topics.admin import Partition


class ModelDisk:
    """The disk of one model broker."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka
        self._durable: dict[tuple[str, int], int] = {}  # by topic id and partition

    def flush(self) -> None:
        """Makes everything written so far survive a power failure."""
        for place, log in self._logs():
            self._durable[self._identity(place)] = log.end

    def power_failure(self, chance: random.Random) -> dict[Partition, int]:
        """Cuts every log at or after its durable end; returns the new ends of those cut."""
        ends = {}
        for place, log in self._logs():
            low = max(log.start, self._durable.get(self._identity(place), 0))
            end = chance.randint(low, log.end)
            if end < log.end:
                ends[place] = end
        for place, end in ends.items():
            self.cut(place, end)
        return ends

    def cut(self, place: Partition, end: int) -> None:
        """Ends the log at `end`. Transactions whose marker is lost are undecided there again."""
        log = self._kafka.log(*place)
        kept = [r for r in log.records if r.offset < end]
        markers = [r.transaction for r in log.records[len(kept) :] if r.marker and r.transaction]
        for decided in markers:
            was_aborted = decided.state == "aborted"
            undecided = ModelTransaction("open", {place}, decided.transactional_id, was_aborted)
            kept = [_moved(r, decided, undecided) for r in kept]
            if any(r.transaction is undecided for r in kept):
                self._kafka.hang(place, undecided)
        log.replace(kept)
        self._kafka.changed.add(place[0])
        self._kafka.lost_tails.append((place, end))

    def retain(self) -> None:
        """Removes records beyond the topics' limits of age or size; a record is a segment here."""
        for place, log in self._logs():
            settings = self._kafka.topics[place[0]].settings
            oldest_ms = self._kafka.clock.wall_ms() - int(settings.get("retention.ms", 0))
            bytes_max = int(settings.get("retention.bytes", -1))
            by_time = int(settings.get("retention.ms", -1)) >= 0
            size = sum(_bytes(r) for r in log.records)
            for record in list(log.records):
                old = by_time and record.time_ms < oldest_ms
                size -= _bytes(record)
                if not old and not 0 <= bytes_max <= size:
                    break
                log.trim(record.offset + 1)

    def _logs(self) -> list[tuple[Partition, ModelLog]]:
        topics = sorted(self._kafka.topics.items())
        return [((name, p), log) for name, topic in topics for p, log in enumerate(topic.logs)]

    def _identity(self, place: Partition) -> tuple[str, int]:
        return self._kafka.topics[place[0]].info.topic_id, place[1]


def _moved(record: ModelRecord, old: ModelTransaction, new: ModelTransaction) -> ModelRecord:
    """Compares by identity: two transactions may be equal."""
    return replace(record, transaction=new) if record.transaction is old else record


def _bytes(record: ModelRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")
