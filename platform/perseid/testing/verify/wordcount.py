"""Checks the output of the `wordcount` job: running counts per word.

Input: lines of words, separated by single blanks. Output: key = the word, value = `{"word": w, "n":
running count}`, one record per changed word per epoch. So per word `n` must rise strictly in offset
order, all records of a word must be in one partition (offsets order nothing else), and the last `n`
must be the number of times that the word was sent. A job that was stopped early has read a part of
the input: no `n` exceeds what was sent, and all words are counted in proportion.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from perseid.testing.verify.read import Record, read_topic, read_values
from perseid.testing.verify.verdict import Tally, Verdict

_CHUNK_LINES = 1_000_000
# The words of so many lines may a count deviate from its share in a stopped job: partitions are
# read unevenly, and of an epoch or trigger of 200,000 lines only a part may have been emitted.
UNEVEN_LINES = 2_000_000


class WordcountCheck:
    """Takes all input in any order, then all output in offset order per partition."""

    def __init__(self, column: str = "n") -> None:
        self._column = column
        self._sent: Counter[str] = Counter()
        self._highest: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._home: dict[str, int] = {}
        self._tally = Tally()

    def input(self, values: Iterable[bytes | None]) -> None:
        """Counts the words of lines. A record without a value has no line, hence no words."""
        for value in values:
            self._tally.records += 1
            if value is not None:
                self._sent.update(value.decode().split(" "))

    def counted(self, words: Mapping[str, int], lines: int) -> None:
        """Adds input whose words were counted before; see `count_words`."""
        self._tally.records += lines
        self._sent.update(words)

    def output(self, record: Record) -> None:
        """Checks one sink record against its predecessors."""
        self._tally.output_records += 1
        where = f"partition {record.partition} offset {record.offset}"
        read = self._decode(record)
        if read is None:
            self._tally.add("wrong", f"{where}: not a count: {record.key!r} {record.value!r}")
            return
        word, n = read
        if word not in self._sent:
            self._tally.add("wrong", f"{where}: the word {word!r} was never sent")
            return
        if self._home.setdefault(word, record.partition) != record.partition:
            self._tally.add("wrong", f"{where}: {word!r} is in partition {self._home[word]} too")
            return
        highest = self._highest.get(word, 0)
        if n == highest:
            self._tally.add("duplicated", f"{where}: {word!r} n={n} again")
        elif n < highest:
            self._tally.add("reordered", f"{where}: {word!r} n={n} after {highest}")
        self._highest[word] = max(highest, n)
        self._last[word] = n

    def verdict(self) -> Verdict:
        """Compares the last counts with the truth. Call it once, at the end."""
        for word, sent in self._sent.items():
            last = self._last.get(word, 0)
            if last < sent:
                self._tally.add("lost", f"{word!r} ends at {last} of {sent}", sent - last)
            elif last > sent:
                self._tally.add("wrong", f"{word!r} ends at {last}, but was sent {sent} times")
        return self._tally.verdict()

    def verdict_of_cut(self) -> Verdict:
        """Checks a job that was stopped before the end of its input. Call it once, at the end."""
        share = sum(self._last.values()) / max(self._sent.total(), 1)
        for word, sent in self._sent.items():
            last = self._last.get(word, 0)
            slack = sent * UNEVEN_LINES / self._tally.records
            if last > sent:
                self._tally.add("wrong", f"{word!r} ends at {last}, but was sent {sent} times")
            elif abs(last - share * sent) > slack:
                text = f"{word!r} ends at {last} of {sent}, and {share:.3f} of all words are there"
                self._tally.add("lost" if last < share * sent else "wrong", text)
        return self._tally.verdict()

    def _decode(self, record: Record) -> tuple[str, int] | None:
        """Returns word and count, or None when the record is not one of this job's."""
        try:
            value = json.loads(record.value or b"")
            word, n = value["word"], value[self._column]
        except (ValueError, KeyError, TypeError):
            return None
        if not isinstance(word, str) or type(n) is not int or n < 1:
            return None
        return (word, n) if record.key == word.encode() else None


def count_words(values: Iterable[bytes | None]) -> tuple[Counter[str], int]:
    """Returns how often each word was sent, and in how many lines.

    Equal lines are split once: a benchmark's topic repeats 200,000 of them.
    """
    words: Counter[str] = Counter()
    lines = 0
    rest = iter(values)
    while chunk := list(islice(rest, _CHUNK_LINES)):
        lines += len(chunk)
        for value, times in Counter(chunk).items():
            for word in value.decode().split(" ") if value is not None else ():
                words[word] += times
    return words, lines


def verify_wordcount(
    bootstrap: str, source_topic: str, sink_topic: str, *, column: str = "n"
) -> Verdict:
    """Reads both topics from the start to their read-committed ends and checks the counts.

    The job must have caught up before; what it has not emitted yet is reported as lost.
    """
    check = WordcountCheck(column)
    check.input(read_values(bootstrap, source_topic))
    for record in read_topic(bootstrap, sink_topic):
        check.output(record)
    return check.verdict()
