"""Lines of words for the word counts, and the interface of all generated records."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

VOCABULARY = 100_000
WORDS_PER_LINE = 10
BLOCK_LINES = 1_000
_POOL_BLOCKS = 200  # 200,000 different lines contain practically every word


class Blocks(Protocol):
    """An endless sequence of lines, in blocks of 1,000.

    `keyed`: each line has a key that determines the partition; else its place in the sequence does.
    """

    keyed: bool

    def block(self, number: int) -> list[dict[str, bytes]]: ...

    @staticmethod
    def stamped(messages: list[dict[str, bytes]]) -> list[dict[str, bytes]]:
        """Returns the messages with the time of sending added."""
        ...


class Lines:
    """The endless sequence of lines of a seed: `block(k)` is lines k*1000 to k*1000+999."""

    keyed = False

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._vocabulary = np.array([f"word{i}" for i in range(VOCABULARY)], dtype=object)
        self._pool: dict[int, list[dict[str, bytes]]] = {}

    def block(self, number: int) -> list[dict[str, bytes]]:
        """Returns lines as `produce_batch` takes them. The caller must not change them."""
        number %= _POOL_BLOCKS
        if number not in self._pool:
            random = np.random.default_rng([self._seed, number])
            picks = random.integers(0, VOCABULARY, (BLOCK_LINES, WORDS_PER_LINE))
            rows = self._vocabulary[picks]
            self._pool[number] = [{"value": " ".join(row).encode()} for row in rows]
        return self._pool[number]

    @staticmethod
    def stamped(messages: list[dict[str, bytes]]) -> list[dict[str, bytes]]:
        """Replaces each line's first word by the time of sending, a nanosecond apart."""
        now_ns = time.time_ns()
        return [
            {"value": b"@%d " % (now_ns + i) + m["value"].partition(b" ")[2]}
            for i, m in enumerate(messages)
        ]


class UniqueLines(Lines):
    """Lines of words that occur once: they make a state of a known size.

    Word i is "s" and i in decimal, filled up to `word_bytes`.
    """

    def __init__(self, word_bytes: int) -> None:
        super().__init__(0)
        self._digits = word_bytes - 1
        self._made: tuple[int, list[dict[str, bytes]]] = (-1, [])

    def block(self, number: int) -> list[dict[str, bytes]]:
        """Returns lines as `produce_batch` takes them; caches the last block."""
        if self._made[0] != number:
            self._made = (number, self._make(number))
        return self._made[1]

    def _make(self, number: int) -> list[dict[str, bytes]]:
        first = number * BLOCK_LINES * WORDS_PER_LINE
        lines = range(first, first + BLOCK_LINES * WORDS_PER_LINE, WORDS_PER_LINE)
        return [
            {
                "value": " ".join(
                    f"s{word:0{self._digits}d}" for word in range(line, line + WORDS_PER_LINE)
                ).encode()
            }
            for line in lines
        ]
