"""Checks a sink with one answer per source record, and measures the rate of answers. Pure.

All records of a key are in one partition of the source, so the job determines each key's answers
and their order. The sink must hold a prefix of them, since a benchmark ends before the source is
used up; with `complete` it must hold all. Without `complete`, reading a partition stops after a
long run of unanswered records, which can make a right answer look unexplained, but never the
reverse. `judged`: all records count for the rate, but only keys that end in one of these bytes are
checked, each from its first answer on.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from perseid.testing.meter.counted import BIN_MS, window
from perseid.testing.verify.read import Record
from perseid.testing.verify.verdict import Tally, Verdict

UNANSWERED_RECORDS = 1_000_000  # in one partition; an account occurs forty times in so many


class AnswerCheck:
    """Takes all output, then the input, each in offset order per partition.

    Keeps only a 64-bit hash of an answer's content: a run has tens of millions.
    """

    def __init__(
        self, job: Callable[[dict[str, Any]], dict[str, Any] | None], judged: bytes = b""
    ) -> None:
        self._job, self._judged = job, judged
        self._found: dict[str, array[int]] = {}
        self._home: dict[str, int] = {}
        self._tally = Tally()
        self._bins: dict[int, int] = {}

    def output(self, record: Record) -> None:
        self._tally.output_records += 1
        place = record.time_ms // BIN_MS
        self._bins[place] = self._bins.get(place, 0) + 1
        if not self._is_judged(record):
            return
        where = f"partition {record.partition} offset {record.offset}"
        try:
            answer = json.loads(record.value or b"")
            account = answer["account"]
        except (ValueError, KeyError, TypeError):
            self._tally.add("wrong", f"{where}: no answer: {record.key!r} {record.value!r}")
            return
        if record.key != account.encode():
            self._tally.add("wrong", f"{where}: {account!r} under key {record.key!r}")
        if self._home.setdefault(account, record.partition) != record.partition:
            self._tally.add("wrong", f"{where}: {account!r} is in {self._home[account]} too")
        self._found.setdefault(account, array("q")).append(_content(answer))

    def input(self, partitions: Iterable[Iterable[Record]], *, complete: bool) -> None:
        """Compares with the source, partition by partition, as far as its answers reach."""
        left = sum(map(len, self._found.values()))
        seen: dict[str, int] = {}
        for records in partitions:
            unanswered = 0  # records since the last answered one
            for record in records:
                if not complete and (not left or unanswered >= UNANSWERED_RECORDS):
                    break
                self._tally.records += 1
                unanswered += 1
                if self._is_judged(record) and self._explains(record, seen, complete=complete):
                    left -= 1
                    unanswered = 0
        if left:
            self._tally.add("duplicated", f"{left} answers more than the input explains", left)

    def _explains(self, record: Record, seen: dict[str, int], *, complete: bool) -> bool:
        """Returns whether there is an answer to the record, right or wrong."""
        payment = json.loads(record.value or b"")
        expected = self._job(payment)
        if expected is None:
            return False
        account = payment["account"]
        number = seen.get(account, 0)
        seen[account] = number + 1
        found = self._found.get(account, ())
        if number >= len(found):
            if complete:
                self._tally.add("lost", f"answer {number + 1} to {account!r}: {expected}")
            return False
        if found[number] != _content(expected):
            self._tally.add("wrong", f"answer {number + 1} to {account!r} is not {expected}")
        return True

    def _is_judged(self, record: Record) -> bool:
        """Whether to check the record; one without a key always, because it is wrong."""
        return not self._judged or not record.key or record.key[-1] in self._judged

    def verdict(self) -> Verdict:
        return self._tally.verdict()

    def rate(self, *, warm_up_s: float, window_s: float) -> tuple[float, float]:
        """Returns answers per second by append time, and over how many seconds; see `window`."""
        span = window(self._bins, warm_up_s, window_s)
        if span is None:
            return 0.0, 0.0
        start, end = span
        seconds = (end - start) * BIN_MS / 1000
        return sum(n for place, n in self._bins.items() if start < place <= end) / seconds, seconds


def _content(answer: dict[str, Any]) -> int:
    """Hashes names, types and values, in their order."""
    return hash((*answer, *answer.values(), *map(type, answer.values())))
