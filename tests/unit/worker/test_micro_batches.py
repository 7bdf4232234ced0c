"""Which records of the token log a micro-batch of a fragment's query takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseid.engine import token_loop
from perseid.engine.fragment import FragmentLife
from perseid.engine.token_loop import TokenLoop
from perseid.errors import FencedError, RetryableError
from perseid.records import Plan
from perseid.testing.wait import until
from perseid.topics.log import Entry
from perseid.worker.checkpoint import part_orders
from perseid.worker.fragment import Fragment
from perseid.worker.spark import query, running, token_source
from perseid.worker.spark.running import SparkRuntime

PLAN = Plan.fused("shop", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)


EPOCH_S = 2.5


class Taking:
    """A fragment whose epochs take EPOCH_S, on a log that has every next record at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, read_ahead_s: float = 0.0) -> None:
        self.now_s, self.taken = 0.0, list[int]()
        self.fails_at, self.failure = -1, cast(Exception, RetryableError("the broker is away"))
        self.before_it_fails: Callable[[], object] = lambda: None
        self.fragment = Fragment(cast(Any, None), cast(Any, None), PLAN, "w1-a", Path(), Path())
        batches: list[Callable[..., None]] = []
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        monkeypatch.setattr(running, "time", clock)
        monkeypatch.setattr(query, "time", clock)
        monkeypatch.setattr(token_loop, "decode_token", lambda _topic, offset, _value: offset)
        monkeypatch.setattr("perseid.worker.epoch.memory.is_judged", lambda _token: False)
        monkeypatch.setattr(token_source, "source_class", lambda *_: None)
        monkeypatch.setattr(query, "start", lambda *given: batches.append(given[-1]))
        deployment = SimpleNamespace(read_ahead_s=read_ahead_s)
        context = SimpleNamespace(brokers="kafka", layout=None, deployment=deployment, token="")
        runner: Any = SimpleNamespace(context=context, clean=lambda: None, spark=None)
        self.runtime = self.fragment._runtime = SparkRuntime(
            runner, PLAN, cast(Any, self), cast(Any, None), self.fragment._control, Path("f"),
            lambda _now: (), lambda *_: (),
        )  # fmt: skip
        self.life = FragmentLife(PLAN, "w1-a", cast(Any, self), self.fragment)
        self.life._runtime = self.runtime
        self.loop = self.life._loop = TokenLoop(
            PLAN, "w1-a", cast(Any, None), cast(Any, self), cast(Any, self),
            self.runtime.execute, self.runtime.known,
        )  # fmt: skip
        monkeypatch.setattr(self.loop, "_run", self.run_epoch)
        self.start()
        (self.batch,) = batches
        self.restored(self.life)

    start_offset, done_epoch = 7, 3

    def feed(self, offset: int, _record: int, _collectable: object) -> Any:
        """Each record leads to an epoch."""
        return SimpleNamespace(token=SimpleNamespace(epoch=offset))

    def start(self) -> None:
        self.runtime._start_query(0)

    def restored(self, life: FragmentLife | None) -> None:
        self.runtime._life = life
        self.runtime._begun.set()

    def read_from(self, _topic: str, _partition: int, offset: int, **_: Any) -> list[Entry]:
        return [Entry(offset, b"%d" % offset, 0)]

    def run_epoch(self, order: Any, _record: bytes) -> None:
        if order.token.epoch == self.fails_at:
            self.before_it_fails()
            raise self.failure
        self.taken.append(order.token.epoch)
        self.now_s += EPOCH_S


def rows(*offsets: int) -> list[tuple[int, bytes]]:
    """The rows of a micro-batch."""
    return [(n, b"%d" % n) for n in offsets]


def test_a_micro_batch_takes_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    taking.batch(rows(7, 8, 9))
    taking.batch(rows())
    taking.batch(rows(10))
    assert taking.taken == [7, 8, 9, 10]


def test_it_reads_ahead_for_its_time_and_the_next_one_does_not_run_those_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taking = Taking(monkeypatch, read_ahead_s=2 * EPOCH_S)
    taking.batch(rows(7))
    assert taking.taken == [7, 8, 9]
    taking.now_s += 3600.0
    taking.batch(rows(8, 9, 10))
    assert taking.taken == [7, 8, 9, 10, 11, 12]


def test_an_epoch_waits_for_the_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    taking.runtime._begun.clear()
    given = (rows(5, 6, 7, 8),)  # the query begins at an older checkpoint
    batch = threading.Thread(target=taking.batch, args=given, daemon=True)
    batch.start()
    batch.join(0.1)
    assert batch.is_alive()
    assert taking.taken == []
    taking.restored(taking.life)
    batch.join(30.0)
    assert taking.taken == [7, 8]


class Beginning:
    """A restored fragment whose query starts: its own thread runs what waits, up to `asked_at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asked_at: int) -> None:
        self.taking, self.asked_at = Taking(monkeypatch), asked_at
        self.runtime = self.taking.runtime
        self.runtime._begun.clear()
        monkeypatch.setattr(query, "cancellable", lambda *_: nullcontext())
        monkeypatch.setattr(self.taking.loop, "_run", self.run_epoch)

    def run_epoch(self, order: Any, record: bytes) -> None:
        self.taking.run_epoch(order, record)
        if order.token.epoch == self.asked_at:
            threading.Thread(target=self.taking.batch, args=(rows(7, 8, 9, 10),)).start()
            assert self.runtime._asked.wait(30)

    def begin(self) -> None:
        self.runtime._begin_ahead(self.taking.life)
        self.runtime._begun.set()


def test_epochs_run_before_the_query_has_its_first_rows_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beginning = Beginning(monkeypatch, asked_at=8)
    beginning.begin()
    until(lambda: beginning.taking.taken == [7, 8, 9, 10], 30, "the query's rows")


def test_it_waits_for_the_query_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = Beginning(monkeypatch, asked_at=-1)
    beginning.begin()
    assert beginning.taking.now_s >= running.BEGIN_S
    assert beginning.taking.taken == [7, 8, 9, 10]


@pytest.mark.parametrize("what", ["woken", "finishing"])
def test_a_promotion_or_an_end_is_not_kept_waiting_by_what_runs_first(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    beginning = Beginning(monkeypatch, asked_at=-1)
    getattr(beginning.taking.fragment._control, what).set()
    beginning.begin()
    assert beginning.taking.taken == []


def test_after_an_error_in_what_runs_first_the_query_runs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beginning = Beginning(monkeypatch, asked_at=-1)
    beginning.taking.fails_at = 8
    with pytest.raises(RetryableError, match="the broker is away"):
        beginning.begin()
    beginning.runtime._begun.set()
    with pytest.raises(RetryableError, match="the broker is away"):
        beginning.taking.batch(rows(7, 8))
    assert beginning.taking.taken == [7]


def test_after_a_failed_restore_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    taking.restored(None)
    taking.runtime.stop()
    taking.batch(rows(7, 8))
    assert taking.taken == []


def test_a_record_that_is_not_the_next_ends_the_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    with pytest.raises(RetryableError, match="no record at offset 8; the next is 9"):
        taking.batch(rows(7, 9))
    assert taking.taken == [7]


@pytest.mark.parametrize("given", [rows(7, 8, 9), rows(7)])
def test_it_ends_with_what_a_record_raised(
    monkeypatch: pytest.MonkeyPatch, given: list[tuple[int, bytes]]
) -> None:
    taking = Taking(monkeypatch, read_ahead_s=2 * EPOCH_S)
    taking.fails_at = 8
    with pytest.raises(RetryableError, match="the broker is away") as raised:
        taking.batch(given)
    assert taking.runtime._error is raised.value
    assert taking.taken == [7]


def test_after_a_stop_it_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch, read_ahead_s=2 * EPOCH_S)
    taking.fragment._control.stopping.set()
    taking.batch(rows(7, 8))
    assert taking.taken == []


def test_a_query_that_a_stop_finds_starting_ends_as_soon_as_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ran one empty micro-batch after another until the state was restored."""
    taking, stops = Taking(monkeypatch), list[str]()
    running = SimpleNamespace(stop=lambda: stops.append("query"))
    fragment = taking.fragment

    def starting(*_: Any) -> Any:
        fragment.stop()
        assert stops == []  # there is nothing yet to end
        return running

    monkeypatch.setattr(query, "start", starting)
    taking.runtime._query = None
    monkeypatch.setattr(fragment, "_thread", SimpleNamespace(name="f", join=lambda _: None))
    taking.start()
    assert stops == ["query"]


@pytest.mark.parametrize("given", [rows(7, 8), rows(7)])
def test_a_fragment_that_is_to_finish_takes_no_further_token(
    monkeypatch: pytest.MonkeyPatch, given: list[tuple[int, bytes]]
) -> None:
    taking, run = Taking(monkeypatch, read_ahead_s=2 * EPOCH_S), threading.Event()
    fragment = taking.fragment
    assert fragment.finished(0.0)  # nothing runs yet

    def run_epoch(order: Any, _record: bytes) -> None:
        taking.taken.append(order.token.epoch)
        run.wait()

    monkeypatch.setattr(taking.loop, "_run", run_epoch)
    batch = threading.Thread(target=taking.batch, args=(given,), daemon=True)
    batch.start()
    until(lambda: taking.taken == [7], 30.0, "the first epoch to run")
    fragment.finish()
    assert not fragment.finished(0.0)
    run.set()
    assert fragment.finished(30.0)
    assert batch.is_alive()  # or Spark would ask for the next batch at once
    fragment._control.stopping.set()
    batch.join(30.0)
    assert not batch.is_alive()
    assert taking.taken == [7]


def test_it_looks_around_only_while_no_epoch_runs_and_none_ran_lately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taking = Taking(monkeypatch)
    runtime, looks = taking.runtime, list[float]()
    monkeypatch.setattr(taking.life, "look", lambda: looks.append(taking.now_s))
    taking.batch(rows(7))
    ran_s = taking.now_s
    runtime._look(taking.life)
    assert looks == []
    taking.now_s = ran_s + part_orders.LOOK_S
    with taking.fragment._control.busy:
        runtime._look(taking.life)
    assert looks == []
    runtime._look(taking.life)
    assert looks == [ran_s + part_orders.LOOK_S]


def test_an_epoch_that_waits_for_others_is_aborted_by_a_fragment_that_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taking = Taking(monkeypatch)
    taking.fails_at, taking.failure = 8, FencedError("it was asked to end")
    taking.before_it_fails = taking.fragment.finish
    batch = threading.Thread(target=taking.batch, args=(rows(7, 8, 9),), daemon=True)
    batch.start()
    until(taking.fragment._control.finishing.is_set, 30, "the second epoch")
    assert taking.fragment.finished(30)
    assert batch.is_alive(), "it waits for the stop, as after any last epoch"
    taking.fragment._control.stopping.set()
    batch.join(30)
    assert not batch.is_alive()
    assert taking.taken == [7]
    assert taking.runtime._error is None


def test_a_fenced_fragment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    taking.fails_at, taking.failure = 8, FencedError("a newer plan is there")
    with pytest.raises(FencedError, match="newer plan"):
        taking.batch(rows(7, 8, 9))
