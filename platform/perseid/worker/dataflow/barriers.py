"""Counts the sets of an epoch before an operator partition runs. Pure.

A *set* is what one task of a sender (`graph.Sender`) sends one operator partition in an epoch:
chunks 0 to n - 1, each with n. A partition runs when it has every expected set once and whole. A
set that is missing, incomplete, doubled or not expected is an error of the shuffle: the task is
tried again, and never runs.

Spark numbers the tasks that send the rows of an SQL frame, in a single-task epoch all alike, and a
query that never has rows gets no tasks. So of a framed sender any number of whole sets counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.errors import RetryableError
from perseid.worker.dataflow.graph import INDEX_BITS

if TYPE_CHECKING:
    from perseid.topics.records import Token
    from perseid.worker.dataflow.edges import Row
    from perseid.worker.dataflow.graph import Graph

FAULTS_MAX = 5  # in one message
REFUSED = "did not get its input as it was sent"

Place = tuple[int, int]  # input, origin


@dataclass(frozen=True, slots=True)
class Expected:
    """The sets that one operator partition needs in an epoch, with the names of their senders.

    `sets`: by input and origin. `framed`: by input and number of the sender.
    """

    sets: Mapping[Place, str]
    framed: Mapping[Place, str]


def expected(graph: Graph, token: Token, consumer: int) -> Expected:
    """What the operator partition with the gid `consumer` needs in the token's epoch."""
    every = range(max(1, len(token.splits)))
    sets: dict[Place, str] = {}
    framed: dict[Place, str] = {}
    for sender in graph.senders_to.get(consumer, ()):
        if sender.framed:
            framed[sender.route.input, sender.number] = sender.name
            continue
        splits = every if sender.splits is None else sender.splits
        for index in splits if sender.gids is None else sender.gids:
            sets[sender.route.input, sender.origin(index)] = sender.name
    return Expected(sets, framed)


def counted(rows: Sequence[Row], wanted: Expected, consumer: str) -> Sequence[Row]:
    """`rows`, if they are exactly the sets that are wanted.

    `consumer`: operator, partition and epoch, for the message. RetryableError otherwise.
    """
    found = Counter((row.input, row.origin) for row in rows)
    chunks = {(row.input, row.origin, row.chunk) for row in rows}
    if (
        not wanted.framed
        and found.keys() == wanted.sets.keys()
        and len(chunks) == len(rows)
        and all(row.chunk < row.chunks == found[row.input, row.origin] for row in rows)
    ):
        return rows
    faults = list(_faults(rows, wanted))
    if not faults:
        return rows
    more = f"; and {len(faults) - FAULTS_MAX} more" if len(faults) > FAULTS_MAX else ""
    raise RetryableError(
        f"{consumer} {REFUSED}, and has not run: "
        f"{'; '.join(faults[:FAULTS_MAX])}{more}. The epoch is tried again"
    )


def _faults(rows: Sequence[Row], wanted: Expected) -> Iterator[str]:
    """What is wrong with the sets, in words."""
    by_set: dict[Place, Counter[tuple[int, int]]] = {}
    for row in rows:
        of_set = by_set.setdefault((row.input, row.origin), Counter())
        of_set[row.chunk, row.chunks] += 1
    for (input_, origin), found in sorted(by_set.items()):
        sender = input_, origin >> INDEX_BITS
        name = wanted.sets.get((input_, origin)) or wanted.framed.get(sender)
        if name is None:
            yield f"{_place(input_, origin)} was not expected"
            continue
        whole = _whole_sets(found)
        if whole is None:
            has = ", ".join(f"{n} x chunk {c + 1} of {of}" for (c, of), n in sorted(found.items()))
            yield f"{_place(input_, origin, name)} is not whole ({has})"
        elif whole > 1 and sender not in wanted.framed:
            yield f"{_place(input_, origin, name)} came {whole} times"
    for place, name in sorted(wanted.sets.items()):
        if place not in by_set:
            yield f"{_place(*place, name)} is missing"


def _whole_sets(found: Counter[tuple[int, int]]) -> int | None:
    """How many whole sets the chunks are; None if a chunk is missing or left over."""
    total = 0
    for size in {chunks for _, chunks in found}:
        times = {found[chunk, size] for chunk in range(size)}
        known = sum(n for (_, chunks), n in found.items() if chunks == size)
        if len(times) != 1 or known != size * found[0, size]:
            return None
        total += found[0, size]
    return total


def _place(input_: int, origin: int, name: str = "") -> str:
    index = origin & (1 << INDEX_BITS) - 1
    whose = f" from {name}" if name else f" from sender {origin >> INDEX_BITS}"
    return f"the set of input {input_}{whose}, task {index},"
