"""Which interval between checkpoints a bisection runs next, and what the answers mean. Pure.

An interval has the epochs after one kept checkpoint up to the next one. It runs from the recorded
state of the first, and differs if an output does, or the state at its end. AUDITS.md has what the
search presumes, and what is known without that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Epochs, both included. `checkpoint`: whether one is kept of the last, with the state."""

    first_epoch: int
    last_epoch: int
    checkpoint: bool

    def __str__(self) -> str:
        return f"{self.first_epoch}:{self.last_epoch}"


def intervals(
    first_epoch: int, last_epoch: int, checkpoints: Iterable[int]
) -> tuple[Interval, ...]:
    """The intervals of a range; what follows the last checkpoint is one too.

    >>> [str(one) for one in intervals(5, 20, [10, 15])]
    ['5:10', '11:15', '16:20']
    """
    found = []
    start = first_epoch
    for epoch in sorted(set(checkpoints)):
        if start <= epoch <= last_epoch:
            found.append(Interval(start, epoch, checkpoint=True))
            start = epoch + 1
    if start <= last_epoch:
        found.append(Interval(start, last_epoch, checkpoint=False))
    return tuple(found)


def next_interval(count: int, differs: Mapping[int, bool]) -> int | None:
    """The number of the interval to run next, of `count`; None: there is no more to learn.

    `differs`: of those that have run. The first one comes first: if it differs, it is the one. Then
    the last: if it is equal too, there is nothing to search for.
    """
    last = count - 1
    if 0 not in differs:
        return 0
    if differs[0] or last == 0:
        return None
    if last not in differs:
        return last
    high = first_differing(differs)
    if high is None:
        return None
    low = max(number for number in differs if number < high)
    return (low + high) // 2 if high - low > 1 else None


def first_differing(differs: Mapping[int, bool]) -> int | None:
    """The first of the intervals that have run and differ."""
    return min((number for number, is_other in differs.items() if is_other), default=None)


def presumed(count: int, differs: Mapping[int, bool]) -> tuple[int, ...]:
    """The intervals that are taken for equal and did not run."""
    found = first_differing(differs)
    return tuple(n for n in range(count if found is None else found) if n not in differs)
