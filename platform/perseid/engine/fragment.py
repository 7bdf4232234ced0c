"""The life of one fragment: it restores a job's state, then runs the epochs that the tokens order.

    restoring -> running -> stopped | failed

1. The previous owner is fenced, then the token log is read: that owner could run a later token
   otherwise.
2. The partitions are restored until they agree on an epoch.
3. The event times of that epoch are reported again, since its owner may have died before it did,
   and that the fragment runs.
4. Each record of the token log goes through the `TokenLoop`, until a stop or an error.
   A replica may become the primary between two of them (`promotion`).
5. The end is reported: a stop once, since a newer plan exists or the worker leaves; a failure until
   it is acknowledged, and again whenever the report is lost, since no other process knows of it.

A replica's life is the same, but muted: it has no part in steps that others rely on. It fences no
one but its own logs' previous owner, reads no ledger, and reports no event times.

Workers and the simulation run it over their `Host` and `Runtime`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from perseid.engine import checkpoints, last_word, promotion, resume
from perseid.engine.acknowledged import report_until_acknowledged
from perseid.engine.agreement import Agreement, RestoreOrder, agree
from perseid.engine.feed import READ_TIMEOUT_S, EpochFeed, TokenHistory, read_history
from perseid.engine.promotion import Reached
from perseid.engine.token_loop import TokenLoop, own_input
from perseid.errors import FencedError, PermanentError, PerseidError
from perseid.errors.texts import EVENT_MAX, cut, kind_of, text_of
from perseid.records import AUDIT, PRIMARY, WHOLE, crashpoints
from perseid.topics import names
from perseid.topics.records import EpochsEqual, FragmentState

if TYPE_CHECKING:
    from perseid.engine.last_word import LastWord
    from perseid.engine.order import EpochOrder
    from perseid.engine.resume import Restored
    from perseid.engine.task_report import Reads, TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import CheckpointPointer, Plan
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader
    from perseid.topics.records import Token

log = logging.getLogger("perseid.worker")


class Runtime(Protocol):
    """Where a fragment's epochs run."""

    layout: Layout

    @property
    def spec(self) -> JobSpec: ...
    @property
    def tokens(self) -> LogReader: ...
    @property
    def topics(self) -> TopicReader: ...

    def now_s(self) -> float:
        """For durations."""
        ...

    def fence(self) -> None:
        """Takes the state logs over from the previous owner, wherever they are restored."""
        ...

    def promoted(self, plan: Plan) -> None:
        """From now on the replica is the primary of `plan`; no epoch runs."""
        ...

    def compare(self) -> Callable[[], None]:
        """Begins to compare what it has made as a replica with what the ledgers have by now.

        The returned function waits. Raises Diverged.
        """
        ...

    def prepare(self, base_offset: int) -> Callable[[], None]:
        """Begins what takes long, while the state is restored; the returned function waits.

        `base_offset`: no epoch begins before it.
        """
        ...

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        """Begins to read the last committed epochs; the returned function waits for them.

        Of an audit: those that it has compared before it was interrupted.
        """
        ...

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> Iterable[Restored]:
        """Restores these stateful partitions and loads them (`epoch.Partitions.load`)."""
        ...

    def begin(self, past: TokenHistory, done_epoch: int) -> None:
        """Before the first epoch, which is above `done_epoch`: the tokens that count so far."""
        ...

    def read_again(self, token: Token) -> Reads:
        """Counts the input of the sources with event time."""
        ...

    def known(self, now: bool) -> tuple[CheckpointPointer, ...]:
        """Complete checkpoints, newest first; `now`: also those that were not heard of yet."""
        ...

    def execute(self, order: EpochOrder, record: bytes) -> tuple[TaskReport, int]:
        """Runs the epoch's tasks: their merged report, and milliseconds (`TokenLoop`)."""
        ...

    def after(self, order: EpochOrder) -> None:
        """After an epoch that is reported as done, before the next record."""
        ...

    def take_over_orders(self) -> None:
        """Gives the checkpoint orders of dead processes a new owner."""
        ...

    def follow(self, life: FragmentLife) -> None:
        """Gives the records of the token log to `FragmentLife.take` from `FragmentLife.offset` on.

        Returns after a stop only. Calls `FragmentLife.look` when there was no record for a while.
        """
        ...


class Host(Protocol):
    """The process around a fragment."""

    @property
    def stopping(self) -> bool: ...

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until a stop; whether there is one."""
        ...

    def meanwhile(self, work: Callable[[], None]) -> Callable[[], None]:
        """Begins `work`; the returned function waits for its end, and may be called again."""
        ...

    def opened(self) -> AbstractContextManager[Runtime]: ...

    def classified(self, error: BaseException) -> PerseidError:
        """The error that ended the fragment; raises what is none of it."""
        ...


def at_once(work: Callable[[], None]) -> Callable[[], None]:
    """`Host.meanwhile` where there is one thread."""
    work()
    return lambda: None


class FragmentLife:
    """See the module's docstring. `progress`: takes the reports, of one thread at a time."""

    def __init__(self, plan: Plan, incarnation: str, progress: LastWord, host: Host) -> None:
        self.plan, self.incarnation = plan, incarnation
        self.progress, self._host = progress, host
        self.replay_to = plan.base_epoch  # epochs up to this one were issued before this life
        self._runtime: Runtime | None = None
        self._loop: TokenLoop | None = None
        self._reads_ledgers = False  # in a promotion: what the replica has run may not be committed
        self._equal = 0  # of a gate, as reported
        self._held_from: dict[int, int] = {}  # by gid, at the restore (`Restored.held_from`)

    @property
    def epoch(self) -> int:
        """The last completed epoch; in a promotion unknown until the ledgers are read."""
        unknown = self._loop is None or self._reads_ledgers
        return self.plan.base_epoch if unknown else self.loop.epoch

    def run(self) -> FragmentState | None:
        """Lives to the reported end; returns the report of a failure, for `repeat`."""
        try:
            self._run()
        except BaseException as error:
            return self._end_with(error)
        self._report_if_acknowledged("stopped")
        return None

    def repeat(self, failure: FragmentState) -> None:
        """Reports the failure again whenever the report is lost, until a stop."""
        while not self._host.wait(last_word.LOOK_S):
            self.progress.look(failure)

    # Steps 1 to 4 -------------------------------------------------------------------------------

    def _run(self) -> None:
        reported = self._host.meanwhile(partial(self._report_if_acknowledged, "restoring"))
        try:
            with self._host.opened() as runtime:
                self._runtime = runtime
                runtime.fence()
                past = read_history(self.plan, runtime.tokens, runtime.topics)
                prepared = runtime.prepare(past.base.offset)
                found, source = self._restored(runtime, past)
                prepared()
                reported()
                self._begin(runtime, past, found.epoch)
                self._report_last_event_times(runtime)
                self.report("running", source, found.events)
                runtime.follow(self)
        finally:
            reported()

    def _restored(self, runtime: Runtime, past: TokenHistory) -> tuple[Agreement, str]:
        """The epoch to resume at, and where the state comes from."""
        started_s = runtime.now_s()
        gids = [task.gid for task in runtime.layout.stateful_tasks]
        reads = self.plan.only.role in {PRIMARY, AUDIT}  # a replica's reading would fence
        ledgers = runtime.ledgers() if reads else dict
        found = agree(self.plan, past, gids, runtime.restore, ledgers)
        self._held_from = {gid: one.held_from for gid, one in found.restored.items()}
        source = resume.summary(found.restored, runtime.now_s() - started_s)
        log.info("restored from %s", source or "nothing", extra={"epoch": found.epoch})
        return found, source

    def _begin(self, runtime: Runtime, past: TokenHistory, done_epoch: int) -> None:
        self.replay_to = past.tip_epoch
        plan = self.plan
        feed = EpochFeed(
            past, done_epoch, plan.layout, plan.generation,
            replicates=plan.revision if plan.only.muted else None,
        )  # fmt: skip
        self._loop = TokenLoop(
            plan, self.incarnation, runtime.layout, feed, self.progress, runtime.execute,
            runtime.known,
        )  # fmt: skip
        runtime.begin(past, done_epoch)

    def _report_last_event_times(self, runtime: Runtime) -> None:
        spec = runtime.spec
        if spec.event_times and not self.plan.only.muted:
            self.loop.report_last_event_times(
                runtime.tokens, lambda token: runtime.read_again(own_input(spec, self.plan, token))
            )

    # Of the runtime -----------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """That of the next record of the token log."""
        return self.loop.offset

    @property
    def loop(self) -> TokenLoop:
        assert self._loop is not None, "the fragment is restored"
        return self._loop

    def take(self, offset: int, record: bytes) -> EpochOrder | None:
        """Handles one record; the order that has run, if it led to one."""
        order = self.loop.take(offset, record)
        if order is not None and self._runtime is not None:
            self._runtime.after(order)
        return order

    def promote(self, plan: Plan) -> None:
        """The replica becomes the primary of `plan` in place (`promotion`); no epoch runs.

        The records that it has taken are taken again from the epoch on that the ledgers lack.
        Afterwards `offset` is what it was, or higher. Raises what ends the fragment.
        """
        runtime, before = self._runtime, self.loop
        assert runtime is not None, "the fragment is restored"
        began_s = runtime.now_s()
        self._reads_ledgers, self.plan = True, plan  # a failure is the primary's
        runtime.promoted(plan)
        promoted_s = runtime.now_s() - began_s
        crashpoints.reach("promote.before-ledgers")
        reached = Reached(before.epoch, before.epoch_offset, self._held_from)
        found = promotion.resumed(plan, runtime, reached)
        self._begin(runtime, found.past, found.epoch)
        self._reads_ledgers = False
        self.report("running", f"replica at epoch {before.epoch}")
        reported_s = runtime.now_s()
        crashpoints.reach("promote.after-report")
        self._report_last_event_times(runtime)
        self._take_again(runtime, before.offset)
        ended_s = runtime.now_s()
        log.info(
            "promoted in %d ms: role changed in %d, ledgers read in %d, history in %d, from epoch "
            "%d to %d in %d", *_ms(ended_s - began_s, promoted_s, found.ledgers_s, found.history_s),
            found.epoch, self.epoch, *_ms(ended_s - reported_s), extra={"epoch": self.epoch},
        )  # fmt: skip

    def _take_again(self, runtime: Runtime, upto: int) -> None:
        """Takes the records before offset `upto` that the loop has still to take."""
        topic = names.tokens(self.plan.job)
        for entry in runtime.tokens.read_range(
            topic, 0, self.offset, upto, timeout_s=READ_TIMEOUT_S
        ):
            if self._host.stopping:
                return
            self.take(entry.offset, entry.value)

    def look(self) -> None:
        """What a fragment does that waits for a token, while no epoch runs."""
        runtime = self._runtime
        assert runtime is not None, "the fragment is restored"
        if checkpoints.outstanding(self.loop.checkpoint_epoch, runtime.known(False)):
            runtime.take_over_orders()
        self.progress.look(self._state(last_word.REPEATED))

    def compared(self, equal: int) -> None:
        """Reports how many epochs of a gate were equal, when there are more."""
        if equal > self._equal:
            self._equal = equal
            self.progress.append(EpochsEqual(self.plan.job_uuid, self.plan.generation, equal))

    def report(self, state: str, source: str = "", events: tuple[str, ...] = ()) -> None:
        events = tuple(cut(event, EVENT_MAX) for event in events)
        for event in events:
            log.warning("%s", event, extra={"epoch": self.epoch})
        log.info("%s is %s", self._name, state, extra={"epoch": self.epoch})
        self.progress.append(replace(self._state(state), restored_from=source, events=events))

    # Step 5 -------------------------------------------------------------------------------------

    def _end_with(self, error: BaseException) -> FragmentState | None:
        """Reports how the fragment ended; returns the record of a failure.

        A fragment that is stopped or fenced exits cleanly.
        """
        known = self._host.classified(error)
        if self._host.stopping or isinstance(known, FencedError):
            log.info("%s ended: %s", self._name, known, extra={"epoch": self.epoch})
            if self._host.stopping:
                self._report_if_acknowledged("stopped")
                return None
        else:
            log.error("%s failed: %s", self._name, known, exc_info=error,
                      extra={"epoch": self.epoch})  # fmt: skip
        record = replace(
            self._state("failed"),
            error_kind=kind_of(known),
            error=cut(text_of(known)),
            permanent=isinstance(known, PermanentError),
        )
        # A stop ends it: then a newer plan exists, so the end is known.
        report_until_acknowledged(self.progress.append, record, self._host.wait, _shorter)
        return record

    def _report_if_acknowledged(self, state: str) -> None:
        """Logs a failed report only: if a broker is unavailable, the restore reports that."""
        try:
            self.report(state)
        except PerseidError as error:
            log.warning("that the fragment is %s is not reported: %s", state, error)

    @property
    def _name(self) -> str:
        """For log entries, which have the job."""
        own = self.plan.only.fragment
        return "the fragment" if own == WHOLE else f"fragment {own}"

    def _state(self, state: str) -> FragmentState:
        return FragmentState(
            job_uuid=self.plan.job_uuid,
            generation=self.plan.generation,
            incarnation=self.incarnation,
            state=state,
            epoch=self.epoch,
            fragment=self.plan.only.name,
        )


def _shorter(record: FragmentState) -> FragmentState:
    """For a broker that takes small records only."""
    return replace(record, error=cut(record.error, EVENT_MAX))


def _ms(*seconds: float) -> list[int]:
    return [round(one * 1000) for one in seconds]
