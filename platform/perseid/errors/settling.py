"""When an answer of a broker that may pass is final.

While brokers restart, or right behind a topic's creation, one of them says for a second that it
does not know the topic, or that we may not use it, although both is wrong. Who believed it at once
would end a job for good. So it is final only once it was repeated for the time of its kind, with
nothing else heard in between. Time in which nobody asked proves nothing: where an answer comes at
once, a pause between two of them counts as PAUSE_S at most, so that two that are far apart are
never enough. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perseid.errors import PermanentError, TransientAnswer, UndecidedTransaction

FINAL_S: dict[str, float] = {
    TransientAnswer.__name__: 30.0,  # more than a broker needs to restart and to hear of all topics
    # A dead owner's transaction is ended by its broker: mostly within half a minute, and after a
    # slow epoch within the longest time that brokers allow, which is 15 minutes.
    UndecidedTransaction.__name__: 1000.0,
}
# Who says that a transaction is undecided has waited for it: that needs no such bound.
PAUSE_S: dict[str, float] = {TransientAnswer.__name__: 7.5, UndecidedTransaction.__name__: math.inf}


@dataclass(frozen=True, slots=True)
class Repeated:
    """An answer of this kind was heard at `where` for so long, the last time at `last_s`."""

    where: str
    kind: str
    last_s: float
    for_s: float = 0.0

    @property
    def is_final(self) -> bool:
        return self.for_s >= FINAL_S[self.kind]


def heard(known: Repeated | None, where: str, kind: str, now_s: float) -> Repeated | None:
    """What is known behind an error of `kind`; None for one that is no such answer."""
    if kind not in FINAL_S:
        return None
    if known is None or (known.where, known.kind) != (where, kind):
        return Repeated(where, kind, now_s)
    pause_s = min(now_s - known.last_s, PAUSE_S[kind])
    return Repeated(where, kind, now_s, known.for_s + pause_s)


def told(text: str, answer: Repeated) -> str:
    """The text of an answer that is final."""
    return f"{text} (the same answer for {answer.for_s:.0f} s)"


def final(error: TransientAnswer, answer: Repeated) -> PermanentError:
    """The error once it is final."""
    return PermanentError(told(str(error), answer))
