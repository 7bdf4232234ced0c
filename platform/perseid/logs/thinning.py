"""Thins repeated warnings, so that an unavailable broker cannot fill a disk with one sentence.

Two hundred clients that lose a broker log the same sentence repeatedly, with different numbers.
Sentences that differ only in numbers count as one; in each period the first ones are written, the
rest are counted, and the next one written has the count.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from threading import Lock

WHILE_S = 60.0
WRITTEN_MAX = 20  # of one sentence per period
SENTENCES_MAX = 500  # sentences remembered
_KEY_CHARS = 120  # leading characters that identify a sentence
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


class Repeats:
    """Counts each sentence per period. Pure, not thread safe."""

    def __init__(self, written_max: int = WRITTEN_MAX, while_s: float = WHILE_S) -> None:
        self._written_max, self._while_s = written_max, while_s
        self._known: dict[tuple[str, str], tuple[float, int]] = {}  # start of the period, count

    def admit(self, source: str, text: str, now_s: float) -> int | None:
        """None: do not write. Else the number of similar sentences omitted since the last one."""
        key = source, _NUMBERS.sub("#", text[:_KEY_CHARS])
        since_s, count = self._known.get(key, (now_s, 0))
        missed = 0
        if now_s - since_s >= self._while_s:
            missed, since_s, count = max(0, count - self._written_max), now_s, 0
        self._known.pop(key, None)  # the newest are last
        self._known[key] = since_s, count + 1
        if len(self._known) > SENTENCES_MAX:
            del self._known[next(iter(self._known))]
        return missed if count < self._written_max else None


class Thinned(logging.Filter):
    """A handler's filter: thins entries of WARNING or above, and all entries of Kafka's clients.

    `job_of`: entries of each job are counted separately; those of clients, which have no job,
    together.
    """

    def __init__(
        self, monotonic_s: Callable[[], float] = time.monotonic,
        job_of: Callable[[logging.LogRecord], str] = lambda _: "",
    ) -> None:  # fmt: skip
        super().__init__()
        self._job_of = job_of
        self._repeats, self._now, self._one_at_a_time = Repeats(), monotonic_s, Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING and record.name != "perseid.kafka":
            return True
        try:
            message = record.getMessage()
        except Exception:  # invalid arguments; the handler reports them, and does not raise
            return True
        job = "" if record.name == "perseid.kafka" else self._job_of(record)
        with self._one_at_a_time:
            missed = self._repeats.admit(f"{record.name} {job}", message, self._now())
        if missed is None:
            return False
        if missed:
            text = f"{message} (and {missed} like it that were not written)"
            record.msg, record.args = text, None
        return True
