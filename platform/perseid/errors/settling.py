"""When an answer of a broker that may pass is final.

While brokers restart, or right behind a topic's creation, one of them says for a second that it
does not know the topic, or that we may not use it, although both is wrong. Who believed it at once
would end a job for good. So it is final only once it was repeated for the time of its kind, with
nothing else heard in between. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.errors import PassingAnswer, PermanentError, UndecidedTransaction

FINAL_S: dict[str, float] = {
    PassingAnswer.__name__: 30.0,  # more than a broker needs to restart and to hear of all topics
    # A dead owner's transaction is ended by its broker within half a minute, one whose broker is
    # away when that is back.
    UndecidedTransaction.__name__: 120.0,
}


@dataclass(frozen=True, slots=True)
class Repeated:
    """An answer of this kind was heard at `where` from `since_s` on, and nothing else."""

    where: str
    kind: str
    since_s: float

    def is_final(self, now_s: float) -> bool:
        return now_s - self.since_s >= FINAL_S[self.kind]


def heard(known: Repeated | None, where: str, kind: str, now_s: float) -> Repeated | None:
    """What is known behind an error of `kind`; None for one that is no such answer."""
    if kind not in FINAL_S:
        return None
    if known is not None and (known.where, known.kind) == (where, kind):
        return known
    return Repeated(where, kind, now_s)


def told(text: str, answer: Repeated, now_s: float) -> str:
    """The text of an answer that is final."""
    return f"{text} (the same answer for {now_s - answer.since_s:.0f} s)"


def final(error: PassingAnswer, answer: Repeated, now_s: float) -> PermanentError:
    """The error once it is final."""
    return PermanentError(told(str(error), answer, now_s))
