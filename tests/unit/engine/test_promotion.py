"""A replica becomes the primary in place: from which epoch on, what it reports, what it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from perseid.engine.agreement import RestoreOrder
from perseid.engine.fragment import FragmentLife
from perseid.engine.order import EpochOrder
from perseid.engine.resume import Restored
from perseid.engine.task_report import PartitionReport, ReadCount, Reads, TaskReport
from perseid.errors import Diverged, FencedError, PermanentError, PerseidError, RetryableError
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import EventTimeSpec, JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.records import WHOLE, CheckpointPointer, Plan
from perseid.topics.log import Entry
from perseid.topics.records import (
    Claim,
    EpochDone,
    EventTimes,
    FragmentState,
    ProgressRecord,
    Rewind,
    SourceRange,
    Token,
)
from support.fragment_lives import Around

BASE, FIRST = 10, 1  # the epoch and the offset of the Begin
OPERATORS = {
    "sums": OperatorSpec(inputs={"in": "a"}, use="x:Y", key=("k",), parallelism=2, sql=None)
}


def spec(*, stateful: bool) -> JobSpec:
    timed = SourceSpec(
        topic="a", format="json", columns={"k": "string", "at": "timestamp"},
        event_time=EventTimeSpec(column="at"),
    )  # fmt: skip
    sink = SinkSpec(input="sums" if stateful else "a", topic="out", format="json")
    operators = OPERATORS if stateful else {}
    return JobSpec(
        name="job", parallelism=2, sources={"a": timed}, operators=operators, sinks={"s": sink}
    )


PRIMARY = Plan.fused("job", "u", 4, "w1-a", "r", "archive", 1, BASE, FIRST)
BOTH = PRIMARY.with_replica(WHOLE, "w2-a", 5)
(REPLICA,) = BOTH.for_worker("w2-a")


def promoted(*pointers: CheckpointPointer) -> Plan:
    plan = replace(BOTH.promoted([WHOLE], 6), checkpoints=pointers)
    (own,) = plan.for_worker("w2-a")
    return own


def token(epoch: int, previous: int, **changes: Any) -> Token:
    splits = ((SourceRange("a", "a", "id", 0, 0, 10),),)
    return replace(Token(1, "u", epoch, previous, "r", 1, splits, 80, generation=4), **changes)


def pointer(epoch: int) -> CheckpointPointer:
    return CheckpointPointer(epoch, 4, 1, "r", FIRST + epoch - BASE, f"c-{epoch}/m", 7, 1, 1)


class World(Around):
    """The token log with some epochs, the ledgers, and what the fragment runs and reports.

    `committed`: by epoch, the last one of every ledger. `held_from`: of all restored state.
    """

    def __init__(
        self, *epochs: int, committed: int, stateful: bool = True, held_from: int = BASE + 1
    ) -> None:
        super().__init__(BASE)
        for epoch in epochs:
            self.issue(epoch)
        self.committed: Callable[[], int] = lambda: committed
        self.held_from = held_from
        self.spec = spec(stateful=stateful)
        self.layout = build(self.spec, 1)
        self.pointers: tuple[CheckpointPointer, ...] = ()
        self.ran: list[tuple[int, int, bool]] = []  # epoch, generation, muted
        self.orders: list[EpochOrder] = []
        self.steps: list[str] = []
        self.fails: dict[str, PerseidError] = {}
        self.during: dict[str, Callable[[], None]] = {}
        self.work: Callable[[FragmentLife], None] = lambda _life: None
        self.life = FragmentLife(REPLICA, "w2-a", cast(Any, self), cast(Any, self))

    def issue(self, epoch: int, **changes: Any) -> None:
        self.records.append(token(epoch, len(self.records), **changes))

    def _step(self, name: str) -> None:
        self.steps.append(name)
        self.during.pop(name, lambda: None)()
        if name in self.fails:
            raise self.fails[name]

    # Token log

    def ends(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        self._step("history")
        return super().ends(places)

    # Runtime

    def promoted(self, plan: Plan) -> None:
        assert not plan.only.muted
        self._step("promoted")

    def compare(self) -> Callable[[], None]:
        return lambda: self._step("compared")

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        if self.life.plan.only.muted:
            return dict
        self._step("ledgers")
        return lambda: {task.gid: self.committed() for task in self.layout.ledger_tasks}

    def restore(self, _order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        return (Restored(gid, BASE, self.held_from, "log") for gid in gids)

    def read_again(self, token: Token) -> Reads:
        return {(0, "a"): ReadCount(1, 0, 0, 0, 0, {0: 1_000 + token.epoch})}

    def known(self, _now: bool) -> tuple[CheckpointPointer, ...]:
        return self.pointers

    def execute(self, order: EpochOrder, _record: bytes) -> tuple[TaskReport, int]:
        self._step("execute")
        self.ran.append((order.token.epoch, order.generation, order.muted))
        self.orders.append(order)
        done = {task.gid: PartitionReport() for task in self.layout.tasks}
        return TaskReport(order.token.epoch, {}, done), 3

    def follow(self, life: FragmentLife) -> None:
        self.follow_once()
        self.steps.clear()
        self.ran.clear()
        self.work(life)
        self.stopping = True

    def follow_once(self) -> None:
        """All records that are there."""
        for entry in self.read_range("", 0, self.life.offset, 99):
            self.life.take(entry.offset, entry.value)

    # Progress

    def append(self, record: ProgressRecord) -> int:
        if isinstance(record, FragmentState) and record.state == "running":
            self._step("reported")
        return super().append(record)

    def promote(
        self, plan: Plan | None = None, then: Callable[[FragmentLife], None] = lambda _life: None
    ) -> FragmentState | None:
        """The replica runs all records, is promoted, and does `then`; the report of a failure."""

        def work(life: FragmentLife) -> None:
            life.promote(plan or promoted())
            then(life)

        self.work = work
        return self.life.run()

    def of_the_primary(self) -> list[ProgressRecord]:
        return [r for r in self.reported if getattr(r, "generation", 0) == 6]


def epochs(world: World) -> list[int]:
    assert {(generation, muted) for _, generation, muted in world.ran} <= {(6, False)}
    return [epoch for epoch, _, _ in world.ran]


def test_at_the_tip_it_runs_nothing_again_and_reports_that_it_runs() -> None:
    world = World(11, 12, committed=12)
    assert world.promote() is None
    assert world.steps == ["promoted", "ledgers", "history", "compared", "reported"]
    running, times, stopped = world.of_the_primary()
    assert isinstance(running, FragmentState)
    assert isinstance(times, EventTimes)
    assert isinstance(stopped, FragmentState)
    assert (running.state, running.epoch, running.fragment) == ("running", 12, WHOLE)
    assert running.restored_from == "replica at epoch 12"
    assert (times.epoch, times.times[0].max_ms, times.fragment) == (12, 1_012, WHOLE)
    assert (stopped.state, epochs(world)) == ("stopped", [])


@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("committed", [10, 11, 12, 13])
def test_it_runs_again_what_the_ledgers_lack(committed: int, stateful: bool) -> None:
    world = World(11, 12, 13, committed=committed, stateful=stateful)
    found: list[int] = []
    world.promote(then=lambda life: found.extend([life.offset, life.epoch]))
    assert epochs(world) == list(range(committed + 1, 14))
    assert found == [FIRST + 4, 13]
    assert world.steps.index("reported") < len(world.steps) - len(world.ran)
    done = [r for r in world.of_the_primary() if isinstance(r, EpochDone)]
    assert [(r.epoch, r.fragment) for r in done] == [(e, WHOLE) for e in epochs(world)]


def test_before_its_promotion_it_runs_muted_and_reports_under_its_own_name() -> None:
    world = World(11, 12, committed=11)
    world.promote()
    assert [(o.token.epoch, o.generation, o.muted) for o in world.orders] == [
        (11, 5, True), (12, 5, True), (12, 6, False),
    ]  # fmt: skip
    assert [o.logged_as for o in world.orders] == [0, 0, 6]
    before = [r for r in world.reported if isinstance(r, EpochDone) and r.generation == 5]
    assert {r.fragment for r in before} == {"whole.replica"}


def test_what_a_replica_runs_ahead_of_its_primary_is_no_loss_of_the_ledgers() -> None:
    """Of a log it follows that all previous epochs are committed, but not of a replica's."""
    world = World(*range(11, 20), committed=13)
    assert world.promote() is None
    assert epochs(world) == [14, 15, 16, 17, 18, 19]


def issued(world: World, *given: int) -> Callable[[], None]:
    def issue() -> None:
        for epoch in given:
            world.issue(epoch)

    return issue


def test_ledgers_that_are_ahead_are_reached_by_running() -> None:
    world = World(11, 12, committed=14)
    world.during["promoted"] = issued(world, 13, 14)
    assert world.promote(then=lambda _life: world.follow_once()) is None
    assert epochs(world) == [13, 14], "the sinks skip them"
    running = world.of_the_primary()[0]
    assert isinstance(running, FragmentState)
    assert running.epoch == 12


def test_without_state_it_resumes_after_ledgers_that_are_ahead() -> None:
    world = World(11, 12, committed=13, stateful=False)
    world.during["promoted"] = issued(world, 13, 14)

    def then(life: FragmentLife) -> None:
        assert (life.epoch, life.offset) == (13, FIRST + 3)
        late = world.read_range("", 0, FIRST + 3, FIRST + 4)[0]
        assert life.take(FIRST + 2, late.value) is None, "a record from before is skipped"
        world.follow_once()

    assert world.promote(then=then) is None
    assert epochs(world) == [14]


@pytest.mark.parametrize("at", ["promoted", "ledgers", "history", "reported", "execute"])
def test_a_record_that_arrives_meanwhile_is_left_to_the_next_turn(at: str) -> None:
    world = World(11, 12, committed=11)
    world.during[at] = issued(world, 13)
    ran: list[int] = []

    def then(life: FragmentLife) -> None:
        ran.extend(epochs(world))
        assert life.offset == FIRST + 3
        world.follow_once()

    # in `execute` of the replica's own epochs nothing is to happen
    during, world.during = world.during, {}
    follow = world.follow_once

    def followed() -> None:
        follow()
        world.during = during
        world.follow_once = follow  # type: ignore[method-assign]

    world.follow_once = followed  # type: ignore[method-assign]
    assert world.promote(then=then) is None
    assert (ran, epochs(world)) == ([12], [12, 13])


@pytest.mark.parametrize(
    "at", ["promoted", "ledgers", "history", "compared", "reported", "execute"]
)
@pytest.mark.parametrize("error", [RetryableError("away"), FencedError("newer")])
def test_a_failure_of_a_step_ends_it_as_the_primary(at: str, error: PerseidError) -> None:
    world = World(11, 12, committed=11)
    follow = world.follow_once

    def followed() -> None:
        follow()
        world.fails[at] = error

    world.follow_once = followed  # type: ignore[method-assign]
    failure = world.promote()
    assert failure is not None
    assert (failure.state, failure.generation, failure.fragment) == ("failed", 6, WHOLE)
    assert (failure.error_kind, failure.permanent) == (type(error).__name__, False)
    assert failure.epoch <= 11  # a leader takes it for done: not what only the replica has run
    assert epochs(world) == []


@pytest.mark.parametrize("at", ["ledgers", "history"])
def test_before_it_runs_no_failure_is_final(at: str) -> None:
    """What cannot be decided in place is decided by a restore, which reads more."""
    world = World(11, 12, committed=11)
    world.during["promoted"] = lambda: world.fails.update({at: PermanentError("trimmed")})
    failure = world.promote()
    assert failure is not None
    assert (failure.error_kind, failure.permanent) == ("RetryableError", False)
    assert "trimmed" in failure.error


@pytest.mark.parametrize("also", ["", "history"])
def test_other_outputs_than_its_primarys_end_it_whatever_else_fails(also: str) -> None:
    world = World(11, 12, committed=11)
    fails = {"compared": Diverged("numbered-0"), also: RetryableError("away")}
    world.during["promoted"] = lambda: world.fails.update(fails)
    failure = world.promote()
    assert failure is not None
    assert (failure.error_kind, failure.generation, failure.epoch) == ("Diverged", 6, BASE)
    assert epochs(world) == []


def test_a_failure_of_the_job_is_final_as_ever() -> None:
    world = World(11, 12, committed=11)
    world.during["promoted"] = lambda: world.fails.update(execute=PermanentError("the code"))
    failure = world.promote()
    assert failure is not None
    assert failure.permanent


def test_it_restores_when_it_has_run_a_token_that_was_rolled_back() -> None:
    world = World(11, 12, 13, committed=12)

    def rewound() -> None:
        world.records.append(Rewind(1, "u", 12, FIRST + 2, "why"))
        world.records.append(token(13, FIRST + 2))

    world.during["promoted"] = rewound
    failure = world.promote()
    assert failure is not None
    assert (failure.error_kind, epochs(world)) == ("RetryableError", [])
    assert "epoch 13 at offset 4, and it was rolled back" in failure.error


def test_tokens_that_were_rolled_back_before_it_ran_them_do_not_run() -> None:
    world = World(11, 12, committed=12)

    def rewound() -> None:
        world.issue(13)
        world.records.append(Rewind(1, "u", 12, FIRST + 2, "why"))
        world.records.append(token(13, FIRST + 2, time_ms=90))

    world.during["promoted"] = rewound
    assert world.promote(then=lambda _life: world.follow_once()) is None
    assert epochs(world) == [13]
    assert world.orders[-1].token_offset == FIRST + 5


def test_it_restores_when_its_logs_have_no_more_what_the_ledgers_lack() -> None:
    world = World(11, 12, committed=BASE - 1, held_from=BASE + 1)
    world.committed = lambda: BASE
    world.life._held_from = {}
    world.during["promoted"] = lambda: world.life._held_from.update(
        dict.fromkeys(world.life._held_from, 12)
    )
    failure = world.promote()
    assert failure is not None
    assert (failure.error_kind, epochs(world)) == ("RetryableError", [])
    assert "outputs above epoch 10 are not committed" in failure.error


@pytest.mark.parametrize("complete", [(11,), (12, 11), (13, 12, 11)])
def test_the_history_is_read_from_the_newest_checkpoint_on(complete: tuple[int, ...]) -> None:
    world = World(11, 12, 13, 14, committed=13)
    reads: list[int] = []

    def completed() -> None:
        world.pointers = tuple(map(pointer, complete))
        read = world.read_range

        def noted(_t: str, _p: int, start: int, end: int, **_: Any) -> list[Entry]:
            reads.append(start)
            return read(_t, _p, start, end)

        world.read_range = noted  # type: ignore[method-assign]

    world.during["promoted"] = completed
    assert world.promote() is None
    assert reads[0] == pointer(complete[0]).token_offset
    assert epochs(world) == [14]
    assert world.orders[-1].base is None, "no part of the checkpoint is of this owner"


def test_a_checkpoint_above_its_own_epoch_leaves_the_token_that_it_has_run_as_the_base() -> None:
    world = World(11, 12, committed=14)

    def completed() -> None:
        world.issue(13)
        world.issue(14)
        world.pointers = (pointer(14),)

    world.during["promoted"] = completed
    assert world.promote(then=lambda _life: world.follow_once()) is None
    assert epochs(world) == [13, 14]


def test_a_ledger_before_a_complete_checkpoint_leads_to_a_restore() -> None:
    world = World(11, 12, committed=11)
    world.during["promoted"] = lambda: setattr(world, "pointers", (pointer(12),))
    failure = world.promote()
    assert failure is not None
    assert (failure.error_kind, failure.permanent) == ("RetryableError", False)


def test_a_claim_between_the_records_changes_nothing() -> None:
    world = World(11, committed=11)
    world.records.append(Claim(2, "c2"))
    world.records.append(token(12, FIRST + 1, coordinator_epoch=2))
    assert world.promote() is None
    assert epochs(world) == [12]


def test_a_stop_ends_it_between_two_epochs() -> None:
    world = World(11, 12, 13, committed=10)
    world.during["promoted"] = lambda: world.during.update(
        execute=lambda: setattr(world, "stopping", True)
    )
    assert world.promote() is None
    assert epochs(world) == [11]
    assert getattr(world.reported[-1], "state", "") == "stopped"


def test_how_long_each_step_took_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "perseid.worker"):
        World(11, 12, committed=11).promote()
    (line,) = [m for m in caplog.messages if m.startswith("promoted in")]
    assert "from epoch 11 to 12" in line
