"""Repeats of a warning are thinned: a broker that is away fills no disk with one sentence.

Two hundred clients that lose one broker say the same, each again and again, with other numbers in
it. What differs only in numbers is taken for the same; the first ones of a while are written, the
rest are counted, and the next one that is written says how many there were.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from threading import Lock

WHILE_S = 60.0
WRITTEN_MAX = 20  # of one sentence in a while
SENTENCES_MAX = 500  # that are remembered
_KEY_CHARS = 120  # of a sentence, by which it is known
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


class Repeats:
    """How often each sentence came in its while. Pure, and not for two threads at once."""

    def __init__(self, written_max: int = WRITTEN_MAX, while_s: float = WHILE_S) -> None:
        self._written_max, self._while_s = written_max, while_s
        self._known: dict[tuple[str, str], tuple[float, int]] = {}  # since when, how often

    def admit(self, source: str, text: str, now_s: float) -> int | None:
        """None: not to be written. Else how many like it were not written since the last one."""
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
    """For a handler: thins what is of WARNING or above, and all that Kafka's clients say.

    `job_of`: entries of each job count on their own; of clients, which know no job, all together.
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
            said = record.getMessage()
        except Exception:  # of an argument; who writes it says so, and does not raise
            return True
        job = "" if record.name == "perseid.kafka" else self._job_of(record)
        with self._one_at_a_time:
            missed = self._repeats.admit(f"{record.name} {job}", said, self._now())
        if missed is None:
            return False
        if missed:
            text = f"{said} (and {missed} like it that were not written)"
            record.msg, record.args = text, None
        return True
