"""Defects of replicas: muted epochs, promotions, their logs, their leader, and the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.coordinator import progress, replicas
from perseid.engine import comparison, promotion, resume, token_loop
from perseid.engine.comparison import Comparison
from perseid.engine.epoch import Partitions, complete
from perseid.engine.feed import EpochFeed
from perseid.engine.fragment import FragmentLife
from perseid.engine.token_loop import TokenLoop
from perseid.records import MAIN, PAIR
from perseid.state.durability.owners import adopt, replica_directory
from perseid.testing.simulation import fragment, tasks
from perseid.topics.records import EpochDone
from perseid.worker.sink.audit import LedgerAudit


def replicas_commit() -> AbstractContextManager[Any]:
    """A replica's epochs are committed as its primary's are."""
    feed = EpochFeed.feed

    def mutant(self: EpochFeed, *given: Any) -> Any:
        order = feed(self, *given)
        return None if order is None else replace(order, muted=False)

    return patch.object(EpochFeed, "feed", mutant)


def replicas_order_parts() -> AbstractContextManager[Any]:
    """A replica takes part in checkpoints."""
    finish = Partitions._finish

    def mutant(self: Any, order: Any, *given: Any) -> Any:
        return finish(self, replace(order, muted=False), *given)

    return patch.object(Partitions, "_finish", mutant)


@contextmanager
def replicas_report_event_times() -> Iterator[None]:
    """A replica reports the event times of its epochs."""
    run = TokenLoop._run
    reads: list[Any] = []

    def noted(*given: Any) -> Any:
        done = complete(*given)
        reads[:] = [done.reads]
        return done

    def mutant(self: Any, order: Any, record: bytes) -> None:
        run(self, order, record)
        if order.muted:
            self._report_event_times(order, *reads)

    with patch.object(token_loop, "complete", noted), patch.object(TokenLoop, "_run", mutant):
        yield


def promotions_read_no_ledgers() -> AbstractContextManager[Any]:
    """A promoted replica believes that all its epochs are committed, and fences no one."""
    resumed = promotion.resumed

    def mutant(plan: Any, runtime: Any, reached: Any) -> Any:
        class Blind:
            """The runtime without its ledgers."""

            def __getattr__(self, name: str) -> Any:
                return getattr(runtime, name)

            def ledgers(self) -> Any:
                return lambda: {t.gid: reached.epoch for t in runtime.layout.ledger_tasks}

        return resumed(plan, Blind(), reached)

    return patch.object(promotion, "resumed", mutant)


def promotions_skip_uncommitted_epochs() -> AbstractContextManager[Any]:
    """A promoted replica continues after its last epoch, whatever the ledgers lack."""
    resumed = promotion.resumed

    def mutant(plan: Any, runtime: Any, reached: Any) -> Any:
        found = resumed(plan, runtime, reached)
        return replace(found, epoch=max(found.epoch, reached.epoch))

    return patch.object(promotion, "resumed", mutant)


def promotions_keep_their_generation() -> AbstractContextManager[Any]:
    """A promoted replica commits under the generation that it had: no claim fences the old one."""
    begin, promote = FragmentLife._begin, FragmentLife.promote

    def promoted(self: Any, plan: Any) -> None:
        self.generation_before = self.plan.generation
        promote(self, plan)

    def begun(self: Any, *given: Any) -> None:
        plan = self.plan
        self.plan = replace(plan, generation=vars(self).get("generation_before", plan.generation))
        begin(self, *given)
        self.plan = plan

    stack = ExitStack()
    stack.enter_context(patch.object(FragmentLife, "promote", promoted))
    stack.enter_context(patch.object(FragmentLife, "_begin", begun))
    return stack


def takeovers_delete_the_other_copy() -> AbstractContextManager[Any]:
    """Who takes a copy of the state logs over deletes the other copy on that host."""

    def mutant(
        files: Any, root: str, job_uuid: str, layout: int, owner: str, replica: str, **more: bool
    ) -> str | None:
        found = adopt(files, root, job_uuid, layout, owner, replica, **more)
        other = PAIR if replica == MAIN else MAIN
        files.delete(replica_directory(root, job_uuid, layout, other))
        return found

    return patch.object(fragment, "adopt", mutant)


def copies_share_their_logs() -> AbstractContextManager[Any]:
    """Both copies have one directory on a host, which each takes over from the other."""
    return patch.object(tasks, "replica_of", lambda *_: MAIN)


def outputs_are_released_before_they_are_committed() -> AbstractContextManager[Any]:
    """A replica drops the outputs of an epoch as soon as it has run it."""
    run = tasks.WatchedState.run

    def mutant(self: Any, token: Any, *given: Any) -> Any:
        found = run(self, token, *given)
        if self._context.plan.only.muted:
            self.log.release(token.epoch)
        return found

    return patch.object(tasks.WatchedState, "run", mutant)


def replicas_prove_commits() -> AbstractContextManager[Any]:
    """A restore believes that a replica's epochs are committed, as a primary's are."""

    def mutant(found: Any) -> int:
        is_log = found.source in ("log", resume.UNCOMMITTED)
        return int(found.epoch - 1 if is_log else found.epoch)

    return patch.object(resume, "_committed", mutant)


def replicas_count_for_epochs() -> AbstractContextManager[Any]:
    """The end of a replica's epoch counts as its primary's."""
    seen = progress.seen

    def mutant(job: Any, record: Any, now: Any) -> Any:
        if isinstance(record, EpochDone) and record.fragment.endswith(".replica"):
            own = job.plan.assignments[0]
            record = replace(record, fragment=own.fragment, generation=own.generation)
        return seen(job, record, now)

    return patch.object(progress, "seen", mutant)


def replicas_are_not_compared() -> AbstractContextManager[Any]:
    """What a replica has made is not looked at."""
    return patch.object(Comparison, "_compare", lambda *_: [])


def replicas_begin_again_at_old_checkpoints() -> AbstractContextManager[Any]:
    """A replica is placed with the checkpoints of the plan before, newer ones or not."""
    placed: Any = replicas._placed

    def mutant(job: Any, plan: Any) -> Any:
        found, (put,) = placed(job, plan)
        old = replace(put.plan, checkpoints=job.plan.checkpoints)
        ownership = replace(found.ownership, plan=old)
        return replace(found, ownership=ownership), [replace(put, plan=old)]

    return patch.object(replicas, "_placed", mutant)


def promotions_compare_nothing() -> AbstractContextManager[Any]:
    """What a replica has made in its last moments is not looked at when it takes over."""
    return patch.object(LedgerAudit, "last", lambda _self: [])


def replicas_that_had_diverged_keep_their_log() -> AbstractContextManager[Any]:
    """A fragment whose promotion has found other outputs is restored from what made them."""
    unfit: Any = replicas.unfit

    def mutant(job: Any, *given: Any) -> Any:
        found, actions = unfit(job, *given)
        logs = {a.fragment: a.log for a in job.plan.assignments}
        plan = replace(found.plan, assignments=tuple(
            replace(a, log=logs[a.fragment]) for a in found.plan.assignments
        ))  # fmt: skip
        return replace(found, ownership=replace(found.ownership, plan=plan)), [
            replace(action, plan=plan) for action in actions
        ]

    return patch.object(replicas, "unfit", mutant)


def diverged_replicas_are_placed_again() -> AbstractContextManager[Any]:
    """A replica that has made other outputs counts as one that has failed."""

    def mutant(job: Any, replica: Any, text: str) -> Any:
        return replace(job, standby=job.standby.ended(replica.fragment, text)), []

    return patch.object(replicas, "_diverged", mutant)


def only_counts_are_compared() -> AbstractContextManager[Any]:
    """Outputs are equal when they are as many."""
    return patch.object(comparison, "total", lambda side: 0 if side is None else side.count)
