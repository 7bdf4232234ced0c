"""Decides when a broker's transient answer is final. Pure.

While brokers restart, or right after a topic's creation, a broker may report for a second that it
does not know the topic, or denies access, although both is wrong. Believing it at once would stop a
job permanently. So the answer is final only once it was repeated for the time of its kind, without
another answer in between. Time without a request proves nothing: for an immediate answer, a pause
between two of them counts as PAUSE_S at most, so two distant answers are never enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perseid.errors import PermanentError, TransientAnswer, UndecidedTransaction

FINAL_S: dict[str, float] = {
    TransientAnswer.__name__: 30.0,  # longer than a broker needs to restart and to learn all topics
    # The broker aborts a dead owner's transaction: mostly within 30 s, and after a slow epoch
    # within the longest time that brokers allow, which is 15 minutes.
    UndecidedTransaction.__name__: 1000.0,
}
# A reader that reports an undecided transaction has waited for it: no such limit needed.
PAUSE_S: dict[str, float] = {TransientAnswer.__name__: 7.5, UndecidedTransaction.__name__: math.inf}


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same kind of answer was received from `where` for `for_s`, the last time at `last_s`."""

    where: str
    kind: str
    last_s: float
    for_s: float = 0.0

    @property
    def is_final(self) -> bool:
        return self.for_s >= FINAL_S[self.kind]


def heard(known: Repeated | None, where: str, kind: str, now_s: float) -> Repeated | None:
    """The record after an error of `kind`; None for an error that is no such answer."""
    if kind not in FINAL_S:
        return None
    if known is None or (known.where, known.kind) != (where, kind):
        return Repeated(where, kind, now_s)
    pause_s = min(now_s - known.last_s, PAUSE_S[kind])
    return Repeated(where, kind, now_s, known.for_s + pause_s)


def final_text(text: str, answer: Repeated) -> str:
    """The text of a final answer."""
    return f"{text} (the same answer for {answer.for_s:.0f} s)"


def final(error: TransientAnswer, answer: Repeated) -> PermanentError:
    """The permanent error for a final answer."""
    return PermanentError(final_text(str(error), answer))
