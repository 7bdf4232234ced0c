"""A replica's runtime becomes the primary's: whose turn it is, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from perseid.engine.fragment import FragmentLife
from perseid.errors import RetryableError
from perseid.records import WHOLE, Plan
from perseid.testing.wait import until
from perseid.worker.fragment import Fragment
from perseid.worker.spark import query
from perseid.worker.spark.running import SparkRuntime

BOTH = Plan.fused("shop", "u", 3, "w1-a", "r", "a", 1, 7, 0).with_replica(WHOLE, "w2-a", 4)
(REPLICA,) = BOTH.for_worker("w2-a")
(PRIMARY,) = BOTH.promoted([WHOLE], 5).for_worker("w2-a")


@dataclass
class Query:
    """It ends when it is stopped, after the record that it runs."""

    over: Future[bool] = field(default_factory=Future)
    stops: int = 0

    def awaitTermination(self) -> bool:
        return self.over.result()

    def stop(self) -> None:
        self.stops += 1
        if not self.over.done():
            self.over.set_result(True)


class Life:
    """Of one replica; `records` that it took, and its promotions, in order."""

    def __init__(self) -> None:
        self.plan, self.offset, self.replay_to = REPLICA, 0, 0
        self.done: list[object] = []
        self.running, self.let = threading.Event(), threading.Event()
        self.let.set()
        self.failure: BaseException | None = None

    def take(self, offset: int, _record: bytes) -> None:
        self.running.set()
        assert self.let.wait(10)
        self.done.append(offset)

    def look(self) -> None: ...

    def promote(self, plan: Plan) -> None:
        self.plan = plan
        self.take("promoted", b"")  # type: ignore[arg-type]
        if self.failure is not None:
            raise self.failure


class Follower:
    """The runtime of a replica that waits for records, in a thread, with what Spark is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.life, self.query, self.groups = Life(), Query(), list[str]()
        java = SimpleNamespace(
            clearJobGroup=lambda: self.groups.append("none"),
            sc=lambda: SimpleNamespace(
                cancelJobGroupAndFutureJobs=lambda group: self.groups.append(f"cancel {group}")
            ),
        )
        context = SimpleNamespace(
            setJobGroup=lambda group, _text: self.groups.append(group), _jsc=java
        )
        spark = SimpleNamespace(sparkContext=context, _jvm=MagicMock(), _jsparkSession=None)
        deployment = SimpleNamespace(read_ahead_s=0.0)
        given = SimpleNamespace(
            brokers="k", layout=None, token="", deployment=deployment, outputs=""
        )  # fmt: skip
        runner: Any = SimpleNamespace(context=given, spark=spark, close=lambda: None)
        self.fragment = Fragment(cast(Any, None), cast(Any, None), REPLICA, "w2-a", Path(), Path())
        self.fragment._life = cast(FragmentLife, self.life)
        self.control = self.fragment._control
        self.runtime = self.fragment._runtime = SparkRuntime(
            runner, REPLICA, cast(Any, None), cast(Any, None), self.control, Path("f"),
            lambda _now: (), lambda *_: (),
        )  # fmt: skip
        self.runtime._query = cast(Any, self.query)
        self.runtime._starting.set_result(None)
        monkeypatch.setattr(query, "read_ahead", lambda *_: iter(()))
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._follow, daemon=True)
        monkeypatch.setattr(self.fragment, "_thread", self.thread)

    def _follow(self) -> None:
        try:
            self.runtime.follow(cast(FragmentLife, self.life))
        except BaseException as error:
            self.error = error

    def begin(self) -> None:
        self.thread.start()
        until(lambda: self.control.follows, 10, "the restore's end")

    def batch(self, *offsets: int) -> threading.Thread:
        """A micro-batch of Spark's thread, which ends the query when it raises."""

        def take() -> None:
            try:
                self.runtime._take([(offset, b"") for offset in offsets])
            except BaseException as error:
                if not self.query.over.done():
                    self.query.over.set_exception(error)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        return thread

    def ended(self) -> None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.runtime.close()


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Follower:
    return Follower(monkeypatch)


def waits(follower: Follower, done: Callable[[], bool]) -> None:
    until(done, 10, "the promotion")


def test_a_replica_that_waits_for_a_record_is_promoted_at_once(follower: Follower) -> None:
    follower.begin()
    assert follower.fragment.plan is REPLICA
    assert follower.fragment.promote(PRIMARY)
    waits(follower, lambda: follower.life.done == ["promoted"])
    assert follower.fragment.promote(PRIMARY), "asked again, it is the same promotion"
    until(lambda: not follower.control.busy.locked(), 10, "its end")
    assert follower.fragment.plan == PRIMARY
    assert follower.fragment.name == "fragment-shop-4.whole.replica", "folders and query stay"
    follower.batch(7).join(10)
    assert follower.life.done == ["promoted", 7]
    groups = ["f-begin", "none", "f-promotion-5", "none"]
    assert follower.groups == groups
    follower.fragment.stop(10)
    follower.ended()
    assert follower.error is None
    assert follower.groups == groups, "its query alone is to be stopped"


def test_it_comes_before_the_next_record(follower: Follower) -> None:
    follower.begin()
    follower.life.let.clear()
    batch = follower.batch(*range(5))
    assert follower.life.running.wait(10)
    assert follower.fragment.promote(PRIMARY)
    until(follower.control.turn.locked, 10, "the promotion to wait for its turn")
    follower.life.let.set()
    batch.join(10)
    assert follower.life.done == [0, "promoted", 1, 2, 3, 4]
    follower.fragment.stop(10)
    follower.ended()


def test_what_still_restores_is_not_promoted(follower: Follower) -> None:
    assert not follower.fragment.promote(PRIMARY)
    follower.begin()
    follower.batch(1).join(10)
    assert follower.life.done == [1], "what was refused does not come later"
    follower.fragment.stop(10)
    follower.ended()
    assert not follower.fragment.promote(PRIMARY), "nor is what has ended"


def test_a_failure_ends_the_fragment_before_any_further_record(follower: Follower) -> None:
    follower.begin()
    follower.life.failure = RetryableError("the broker is away")
    follower.life.let.clear()
    assert follower.fragment.promote(PRIMARY)
    assert follower.life.running.wait(10)
    batch = follower.batch(8, 9)
    follower.life.let.set()
    batch.join(10)
    follower.ended()
    assert follower.error is follower.life.failure
    assert follower.life.done == ["promoted"]
    assert follower.query.stops >= 1


def test_a_stop_aborts_the_epoch_that_a_promotion_runs(follower: Follower) -> None:
    follower.begin()
    follower.life.let.clear()
    assert follower.fragment.promote(PRIMARY)
    assert follower.life.running.wait(10)
    stopping = threading.Thread(target=follower.fragment.stop, args=(10,), daemon=True)
    stopping.start()
    until(lambda: "cancel f-promotion-5" in follower.groups, 10, "the abort")
    follower.life.failure = RetryableError("aborted")
    follower.life.let.set()
    stopping.join(10)
    follower.ended()
    assert follower.life.done == ["promoted"]


@pytest.mark.parametrize("how", ["stopping", "finishing"])
def test_none_begins_once_the_fragment_is_to_end(follower: Follower, how: str) -> None:
    follower.begin()
    getattr(follower.control, how).set()
    follower.fragment.promote(PRIMARY)
    until(lambda: not follower.control.woken.is_set(), 10, "the fragment's thread")
    follower.fragment.stop(10)
    follower.ended()
    assert follower.life.done == []


def test_an_older_plan_promotes_nothing(follower: Follower) -> None:
    follower.begin()
    follower.life.plan = PRIMARY
    assert follower.fragment.promote(PRIMARY)
    until(lambda: not follower.control.woken.is_set(), 10, "the fragment's thread")
    follower.fragment.stop(10)
    follower.ended()
    assert follower.life.done == []


def test_a_query_that_ends_by_itself_ends_the_fragment(follower: Follower) -> None:
    follower.begin()
    follower.query.over.set_result(True)
    follower.ended()
    assert "ended by itself" in str(follower.error)
