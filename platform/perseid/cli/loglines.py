"""Splits log files into entries, selects those about a job, merges several files by time. Pure.

An entry begins with a line that starts with a date and time, or is a JSON object that begins with
one; the following lines without one (a traceback, a print) belong to it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Ours and the broker's, then Spark's own (26/11/21 09:49:53).
_BEGINS = re.compile(
    r"""(?:\{"time": ")?(\d{4}-\d\d-\d\d|\d\d/\d\d/\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)"""
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a process wrote at one time. `time` is "" before the first dated line."""

    process: str
    time: str
    text: str


def entries(process: str, lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of one file, in order."""
    time, held = "", list[str]()
    for line in lines:
        begins = _BEGINS.match(line)
        if begins and held:
            yield Entry(process, time, "\n".join(held))
            held = []
        if begins:
            day = begins[1] if "-" in begins[1] else "20" + begins[1].replace("/", "-")
            time = f"{day}T{begins[2].replace(',', '.')}"
        held.append(line.rstrip("\n"))
    if held:
        yield Entry(process, time, "\n".join(held))


def about(job: str, found: Iterable[Entry]) -> Iterator[Entry]:
    """Entries that name the job as a word of its own ("count" is not in "word-count")."""
    named = re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(job)}(?![A-Za-z0-9_-])")
    return (entry for entry in found if named.search(entry.text))


def merged(files: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """All entries by time; each file keeps its own order."""
    return heapq.merge(*files, key=lambda entry: entry.time)


def shown(entry: Entry, *, with_process: bool) -> str:
    """The entry as it is printed; with several files each line names its process."""
    if not with_process:
        return entry.text
    return "\n".join(f"{entry.process:<10} {line}" for line in entry.text.splitlines() or [""])
