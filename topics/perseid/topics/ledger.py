"""The ledger: which epochs an operator partition has committed. Written only in sink transactions.

A ledger partition holds one record for each committed epoch, with transaction markers and aborted
records between them, so its last record is not at its last offset: it is searched backwards from
the end. Nothing is cached between searches. A broker that has lost the end of a ledger and accepted
new records may have the old end offset again, so a cached record would wrongly be trusted
(simulation seed 22747).
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import cast

from perseid.clocks import Clock, SystemClock
from perseid.errors import ReplayDataLost, RetryableError
from perseid.topics import codec, names
from perseid.topics.admin import Partition, TopicReader
from perseid.topics.log import LogReader
from perseid.topics.records import LedgerRecord

_FIRST_WINDOW = 16  # offsets; a ledger grows by two an epoch, so eight epochs back
_WINDOW_FACTOR = 16


class LedgerReader:
    """Reads ledger partitions. Thread-safe."""

    def __init__(
        self, reader: LogReader, topics: TopicReader, clock: Clock | None = None
    ) -> None:  # fmt: skip
        self._reader, self._topics = reader, topics
        self._clock: Clock = clock or SystemClock()
        self._one_at_a_time = Lock()

    def last(self, topic: str, partition: int, *, timeout_s: float) -> LedgerRecord | None:
        """The last committed record below the current high watermark, of any job UUID.

        Waits until no transaction is undecided below it; RetryableError if that takes too long.
        """
        return self.last_and_end(topic, partition, timeout_s=timeout_s)[0]

    def last_and_end(
        self, topic: str, partition: int, *, timeout_s: float
    ) -> tuple[LedgerRecord | None, int]:
        """The last record, and the high watermark."""
        place = topic, partition
        with self._one_at_a_time:
            end = self._topics.ends([place], committed=False)[place]
            return self._search(place, end, timeout_s), end

    def last_of(
        self, job: str, job_uuid: str, partitions: Iterable[int], *, timeout_s: float
    ) -> dict[int, LedgerRecord | None]:
        """The last record of each ledger partition, None where it is of another job UUID."""
        topic = names.ledger(job)
        found = {p: self.last(topic, p, timeout_s=timeout_s) for p in partitions}
        return {
            p: record if record is not None and record.job_uuid == job_uuid else None
            for p, record in found.items()
        }

    def _search(self, place: Partition, end: int, timeout_s: float) -> LedgerRecord | None:
        """Searches backwards from `end` in growing windows, since aborted attempts leave no record.

        Never returns None for a ledger that has a record: every epoch would count as uncommitted.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        low = self._topics.starts([place])[place]
        if 0 < low >= end and self._topics.ends([place], committed=False)[place] > end:
            raise _gone(place, low, end)
        window, upper = _FIRST_WINDOW, end
        while upper > low:
            lower = max(low, upper - window)
            left_s = max(0.0, deadline_s - self._clock.monotonic_s())
            try:
                record = self._newest(place, lower, upper, left_s)
            except ReplayDataLost as trimmed:  # meanwhile; never the last record
                low = trimmed.earliest
                if low >= upper:
                    raise _gone(place, low, end) from trimmed
                continue
            if record is not None:
                return record
            upper, window = lower, window * _WINDOW_FACTOR
        return None

    def _newest(
        self, place: Partition, start: int, end: int, timeout_s: float
    ) -> LedgerRecord | None:
        entries = self._reader.read_range(*place, start, end, timeout_s=timeout_s)
        return cast(LedgerRecord, codec.decode(entries[-1].value)) if entries else None


def _gone(place: Partition, start: int, end: int) -> RetryableError:
    """The log was extended and trimmed beyond `end` by others while the reader was stalled."""
    return RetryableError(
        f"{place[0]}[{place[1]}] begins at offset {start} by now, and ended at {end} when its last "
        "record was looked for"
    )
