"""What is known of a job's failures, and what users see of it.

Owns the failures in a row with what is counted of them, answers that repetition may make final, the
last failure's error, the time without a reported end of an epoch, the events, and the status as it
was last written. What follows from them: `failing`, `corrections`, `epoch_timeout`, `statuses`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perseid.errors import UnexpectedError
from perseid.errors.settling import Repeated
from perseid.errors.texts import EVENT_MAX, cut
from perseid.records import JobFailures, JobStatus

EVENTS_MAX = 20  # of a job's status in ZooKeeper; a line each


@dataclass(frozen=True, slots=True)
class Health:
    """See the module docstring. `deaths`, `unexpected` and `tries` are counts of this leader."""

    failures: JobFailures | None = None
    unloaded: JobFailures | None = None  # while LOADING: why it could not be read
    round: frozenset[str] = frozenset()  # the fragments that the last counted failure stands for
    failed_at: int = 0  # the last epoch that a fragment had done when it failed
    tries: int = 0  # all failures since an epoch was done
    deaths: int = 0  # of these, process deaths
    unexpected: int = 0  # of these, errors of code or data without a type (`failing`)
    retry_s: float = 0.0  # not placed again before
    answers: Mapping[str, Repeated] = field(default_factory=dict)  # transient, by origin
    error: Mapping[str, Any] | None = None  # of its last failure, until that epoch is done
    stalled_for_s: float = 0.0  # time without a reported end of an epoch
    looked_s: float = 0.0  # when that was last checked
    events: tuple[str, ...] = ()
    status: JobStatus | None = None  # as last written

    @property
    def is_failing(self) -> bool:
        return self.failures is not None and self.failures.count > 0

    # -- failures and the attempts after them ----------------------------------------------------

    def fails_again(self, fragments: Collection[str]) -> bool:
        """Whether a failure of these is one more in a row.

        What makes one fragment fail often makes others fail too: that counts once, until one of
        them fails again.
        """
        return not self.round or not self.round.isdisjoint(fragments)

    def failed(
        self, failures: JobFailures, fragments: Collection[str], done: int, retry_s: float, *,
        died: bool,
    ) -> Health:  # fmt: skip
        """A failure of these fragments, after epoch `done`. `died`: a process has died."""
        again = self.fails_again(fragments)
        return replace(
            self, failures=failures, failed_at=max(done, self.failed_at), tries=self.tries + again,
            deaths=self.deaths + (died and again), retry_s=retry_s,
            round=frozenset(fragments) if again else self.round.union(fragments),
        )  # fmt: skip

    def counted(self, failures: JobFailures) -> Health:
        """A failure that is no attempt of a worker."""
        return replace(self, failures=failures)

    def recovered(self, failures: JobFailures) -> Health:
        """The failures in a row have ended."""
        return replace(self, failures=failures, round=frozenset(), tries=0, deaths=0, unexpected=0)

    def retry_at(self, retry_s: float) -> Health:
        return replace(self, retry_s=retry_s)

    def tried(self, kind: str) -> Health:
        """Counts the failure if it is an unexpected error."""
        return replace(self, unexpected=self.unexpected + (kind == UnexpectedError.__name__))

    def load_tried(self, kind: str) -> Health:
        """The same for a load, whose first failure begins a count of its own."""
        begun = self if self.unloaded is not None else replace(self, unexpected=0)
        return begun.tried(kind)

    def not_loaded(self, failures: JobFailures) -> Health:
        return replace(self, unloaded=failures)

    def ended(self, error: Mapping[str, Any]) -> Health:
        """A permanent failure."""
        return replace(self, error=error, unexpected=0, unloaded=None)

    def answered(self, origin: str, answer: Repeated | None) -> Health:
        """The transient answer that `origin` repeats now, if it does."""
        if answer is None and origin not in self.answers:
            return self
        others = {place: known for place, known in self.answers.items() if place != origin}
        return replace(self, answers=others if answer is None else {**others, origin: answer})

    # -- what users see --------------------------------------------------------------------------

    def with_error(self, error: Mapping[str, Any] | None) -> Health:
        return replace(self, error=error)

    def progressed(self, epoch: int) -> Health:
        """Without the error, if it was above the last done epoch that it names."""
        if self.error is None or epoch <= int(self.error.get("epoch", 0)):
            return self
        return replace(self, error=None)

    def with_events(self, *lines: str) -> Health:
        """With more events, bounded in number and length as a status needs."""
        events = (*self.events, *(cut(line, EVENT_MAX) for line in lines[-EVENTS_MAX:]))
        return replace(self, events=events[-EVENTS_MAX:])

    def written(self, status: JobStatus) -> Health:
        return replace(self, status=status)

    # -- an epoch that does not end --------------------------------------------------------------

    def waited(self, now_s: float, most_s: float) -> Health:
        """No end of an epoch since the last look, of which at most `most_s` count."""
        passed_s = min(most_s, now_s - self.looked_s)
        return replace(self, stalled_for_s=self.stalled_for_s + passed_s, looked_s=now_s)

    def waits_no_more(self) -> Health:
        return replace(self, stalled_for_s=0.0) if self.stalled_for_s else self
