"""The ledger: which epochs an operator partition has committed. Written only in sink transactions.

A ledger partition holds one record for each committed epoch, with transaction markers and aborted
records between them, so its last record is not at its last offset: it is searched backwards from
the end. Nothing is cached between searches. A broker that has lost the end of a ledger and accepted
new records may have the old end offset again, so a cached record would wrongly be trusted
(simulation seed 22747).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from perseid.clocks import Clock, SystemClock
from perseid.errors import ReplayDataLost, RetryableError
from perseid.topics import codec, names
from perseid.topics.admin import Partition, TopicReader
from perseid.topics.log import LogReader
from perseid.topics.records import LedgerRecord

_FIRST_WINDOW = 16  # offsets; a ledger grows by two an epoch, so eight epochs back
_WINDOW_FACTOR = 16

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, or a pool's


class LedgerReader:
    """Reads ledger partitions. Thread-safe, if the reader is for different partitions."""

    def __init__(
        self, reader: LogReader, topics: TopicReader, clock: Clock | None = None
    ) -> None:  # fmt: skip
        self._reader, self._topics = reader, topics
        self._clock: Clock = clock or SystemClock()
        self._one_at_a_time: dict[Partition, Lock] = {}

    def last(self, topic: str, partition: int, *, timeout_s: float) -> LedgerRecord | None:
        """The last committed record below the current high watermark, of any job UUID.

        Waits until no transaction is undecided below it; RetryableError if that takes too long.
        """
        return self.last_and_written(topic, partition, timeout_s=timeout_s, far=False)[0]

    def last_and_written(
        self, topic: str, partition: int, *, timeout_s: float, far: bool
    ) -> tuple[LedgerRecord | None, LedgerRecord | None, int]:
        """The same, the last record of an epoch with output, and that high watermark.

        The one with output is looked for near the last one; with `far` in the whole ledger.
        """
        place = topic, partition
        with self._one_at_a_time.setdefault(place, Lock()):
            end = self._topics.ends([place], committed=False)[place]
            return *self._search(place, end, timeout_s, far), end

    def last_of(
        self, job: str, job_uuid: str, partitions: Iterable[int], *, timeout_s: float,
        each: Each = map,
    ) -> dict[int, LedgerRecord | None]:  # fmt: skip
        """The last record of each ledger partition, None where it is of another job UUID.

        `each`: how the partitions are read, one by one or in threads.
        """
        topic = names.ledger(job)

        def last(partition: int) -> tuple[int, LedgerRecord | None]:
            record = self.last(topic, partition, timeout_s=timeout_s)
            ours = record is not None and record.job_uuid == job_uuid
            return partition, record if ours else None

        return dict(each(last, partitions))

    def _search(
        self, place: Partition, end: int, timeout_s: float, far: bool
    ) -> tuple[LedgerRecord | None, LedgerRecord | None]:
        """Backwards from `end` in growing windows, since aborted attempts leave no record.

        The last one is never None of a ledger that has a record: nothing would be taken for
        committed.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        low = self._topics.starts([place])[place]
        if 0 < low >= end and self._topics.ends([place], committed=False)[place] > end:
            raise _gone(place, low, end)
        window, upper = _FIRST_WINDOW, end
        last: LedgerRecord | None = None
        while upper > low:
            lower = max(low, upper - window)
            left_s = max(0.0, deadline_s - self._clock.monotonic_s())
            try:
                entries = self._reader.read_range(*place, lower, upper, timeout_s=left_s)
            except ReplayDataLost as trimmed:  # meanwhile, and never the last record
                low = trimmed.earliest
                if low >= upper and last is None:
                    raise _gone(place, low, end) from trimmed
                continue
            newest_first = (
                codec.decode_ledger(place, e.offset, e.value) for e in reversed(entries)
            )
            for record in newest_first:
                last = last or record
                if record.outputs:
                    return last, record
            if last is not None and not far:
                break
            upper, window = lower, window * _WINDOW_FACTOR
        return last, None


def _gone(place: Partition, start: int, end: int) -> RetryableError:
    """The log was extended and trimmed beyond `end` by others while the reader was stalled."""
    return RetryableError(
        f"{place[0]}[{place[1]}] begins at offset {start} by now, and ended at {end} when its last "
        "record was looked for"
    )
