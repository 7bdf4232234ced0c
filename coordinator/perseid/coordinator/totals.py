"""What a leader has learned of a job in its term: the counters of /metrics. Pure.

They begin at zero with each leader, like those of a new process, and continue when the same leader
reads the job again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from perseid.topics.records import EpochDone, OperatorState

# An epoch aims at half a second; one of a minute is practically stuck.
EPOCH_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Totals:
    """The counters of one job. `epoch`: the newest counted one, None before the first load."""

    epoch: int | None = None
    rows_in: int = 0
    bytes_in: int = 0  # of the values of these rows
    rows_out: int = 0
    dead_letters: int = 0
    epochs: tuple[int, ...] = (0,) * (len(EPOCH_BOUNDS_S) + 1)  # by duration; last: above all
    epochs_s: float = 0.0  # the sum of their durations
    restarts: int = 0  # placed again: a failure, a worker that left, a rebalance
    takeovers: int = 0  # of those: on another worker
    checkpoints: int = 0
    checkpoints_aborted: int = 0
    checkpoint_s: float | None = None  # from the newest checkpoint's token to its pointer
    state_rows: int | None = None  # after the newest epoch, like `states`
    states: tuple[OperatorState, ...] = ()

    def counted(self, record: EpochDone) -> Totals:
        """Adds an epoch, unless it is counted already or older than the leader's first load."""
        if self.epoch is None or record.epoch <= self.epoch:
            return self
        place = bisect_left(EPOCH_BOUNDS_S, record.duration_ms / 1000)
        return replace(
            self,
            epoch=record.epoch,
            rows_in=self.rows_in + record.rows_in,
            bytes_in=self.bytes_in + sum(record.bytes_in.values()),
            rows_out=self.rows_out + record.rows_out,
            dead_letters=self.dead_letters + record.dead_letters,
            epochs=tuple(n + (i == place) for i, n in enumerate(self.epochs)),
            epochs_s=self.epochs_s + record.duration_ms / 1000,
            state_rows=record.state_rows,
            states=record.states,
        )

    def loaded(self, done: int, reported: Iterable[EpochDone]) -> Totals:
        """After a load: epochs before the first load do not count; missed ones are added later."""
        found = list(reported)
        if self.epoch is None:
            newest = found[-1] if found else None
            return replace(
                self,
                epoch=done,
                state_rows=newest.state_rows if newest is not None else None,
                states=newest.states if newest is not None else (),
            )
        totals = self
        for record in found:
            totals = totals.counted(record)
        return totals

    def restarted(self, *, elsewhere: bool) -> Totals:
        return replace(self, restarts=self.restarts + 1, takeovers=self.takeovers + elsewhere)

    def checkpointed(self, seconds: float) -> Totals:
        return replace(self, checkpoints=self.checkpoints + 1, checkpoint_s=max(0.0, seconds))

    def gave_up_a_checkpoint(self) -> Totals:
        return replace(self, checkpoints_aborted=self.checkpoints_aborted + 1)
