"""Progress as a sink shows it: words counted, when, and the first progress after a moment. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perseid.testing.verify.read import Record

BIN_MS = 100


class Highest:
    """The highest `n` of each word so far; their sum is the number of counted words."""

    def __init__(self) -> None:
        self._highest: dict[bytes, int] = {}
        self.words = 0
        self.records = 0
        self.repeated = 0

    def feed(self, key: bytes | None, value: bytes | None) -> int:
        """Returns how many words the record newly counts; 0 when it repeats or is not a count."""
        self.records += 1
        if key is None or value is None:
            return 0
        n = int(json.loads(value)["n"])
        new = n - self._highest.get(key, 0)
        if new <= 0:
            self.repeated += 1
            return 0
        self._highest[key] = n
        self.words += new
        return new


@dataclass(frozen=True, slots=True)
class Speed:
    """Lines per second from committed outputs, over `seconds` that follow the warm-up."""

    lines_per_s: float
    seconds: float
    lines: float
    messages_out: int
    repeated: int


def speed(
    records: Iterable[Record], *, warm_up_s: float, words_per_line: int, window_s: float = 3600.0
) -> Speed:
    """Returns the speed from the warm-up's end to the last output, at most `window_s` later.

    Both ends are times of output: the last one within the warm-up and the last one of all. So a
    system with rare outputs gets no credit for input that it has not answered yet.
    """
    highest = Highest()
    bins: dict[int, int] = {}
    messages: dict[int, int] = {}
    for record in records:
        place = record.time_ms // BIN_MS
        bins[place] = bins.get(place, 0) + highest.feed(record.key, record.value)
        messages[place] = messages.get(place, 0) + 1
    span = window(bins, warm_up_s, window_s)
    if span is None:
        return Speed(0.0, 0.0, 0.0, highest.records, highest.repeated)
    start, end = span
    seconds = (end - start) * BIN_MS / 1000
    lines = sum(n for place, n in bins.items() if start < place <= end) / words_per_line
    out = sum(n for place, n in messages.items() if start < place <= end)
    return Speed(lines / seconds, seconds, lines, out, highest.repeated)


def window(bins: Mapping[int, int], warm_up_s: float, window_s: float) -> tuple[int, int] | None:
    """Returns the bins for a rate: what is in (start, end] counts, over end - start.

    None when there is no output after the warm-up.
    """
    if not bins:
        return None
    warm_end = min(bins) + int(warm_up_s * 1000 / BIN_MS)
    start = max(place for place in bins if place <= warm_end)
    last = warm_end + int(window_s * 1000 / BIN_MS)
    within = [place for place in bins if start < place <= last]
    return (start, max(within)) if within else None


def first_progress(partitions: Iterable[list[Record]], moments_ms: list[int]) -> list[int | None]:
    """For each moment, returns the append time of the next record that counts anything new.

    A record that repeats earlier output (an at-least-once sink does so after a crash) does not
    count: the stream has recovered only when it makes progress.
    """
    found: list[int | None] = [None] * len(moments_ms)
    for records in partitions:
        highest = Highest()
        for record in records:
            if not highest.feed(record.key, record.value):
                continue
            for i, moment in enumerate(moments_ms):
                seen = found[i]
                if record.time_ms >= moment and (seen is None or record.time_ms < seen):
                    found[i] = record.time_ms
    return found


def percentile(samples: list[float], share: float) -> float:
    """The smallest sample that at least `share` of all do not exceed (nearest rank)."""
    if not samples:
        raise ValueError("no samples")
    ranked = sorted(samples)
    return ranked[max(math.ceil(len(ranked) * share) - 1, 0)]
