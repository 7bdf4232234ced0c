"""What the checkpoint of an epoch builds upon. Needs pyspark's modules, but no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from perseid.engine.feed import EpochFeed, TokenHistory
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import TaskReport
from perseid.engine.token_loop import TokenLoop
from perseid.errors import RetryableError
from perseid.jobs.model.layout import Layout
from perseid.records import CheckpointPointer, Plan
from perseid.topics import codec
from perseid.topics.chain import Base
from perseid.topics.records import Token
from perseid.worker.fragment import Fragment

PLAN = Plan.fused("job", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)


def pointer(epoch: int) -> CheckpointPointer:
    return CheckpointPointer(epoch, 3, 1, "r1", epoch, f"at/{epoch}", epoch, 0, 0, epoch)


def fragment(complete: Callable[[], tuple[CheckpointPointer, ...]]) -> Fragment:
    found = Fragment(
        cast(Any, None), cast(Any, None), PLAN, "w1-a", Path(), Path(), complete=complete
    )
    found.pointers = (pointer(10),)  # what the service heard last
    return found


def base(fragment: Fragment, token: Token) -> tuple[str, int] | None:
    """What the order has that runs for the token."""
    orders: list[EpochOrder] = []

    def execute(order: EpochOrder, _record: bytes) -> tuple[TaskReport, int]:
        orders.append(order)
        return TaskReport(12), 5

    past = TokenHistory(Base("uuid", 11, 11), {11: 11}, {}, 12)
    loop = TokenLoop(
        PLAN, "w1-a", Layout(1, ()), EpochFeed(past, 11, 1, 3),
        cast(Any, SimpleNamespace(append=lambda record: None)), execute, fragment._known,
    )  # fmt: skip
    loop.take(11, codec.encode(replace(token, epoch=11)))
    loop.take(12, codec.encode(token))
    return orders[-1].base


def token(*, checkpoint: bool = False, final: bool = False) -> Token:
    return Token(1, "uuid", 12, 11, "r1", 1, (), 0, checkpoint=checkpoint, final=final)


def test_it_is_the_newest_that_is_complete_whatever_was_heard() -> None:
    found = fragment(lambda: (pointer(11), pointer(10)))
    assert base(found, token(checkpoint=True)) == ("at/11", 11)
    assert base(found, token(checkpoint=True, final=True)) is None


def test_who_cannot_ask_builds_upon_what_was_heard() -> None:
    def silent() -> tuple[CheckpointPointer, ...]:
        raise RetryableError("ZooKeeper did not answer")

    assert base(fragment(silent), token(checkpoint=True)) == ("at/10", 10)


def test_an_epoch_without_a_checkpoint_asks_no_store() -> None:
    asked: list[None] = []

    def complete() -> tuple[CheckpointPointer, ...]:
        asked.append(None)
        return ()

    base(fragment(complete), token())
    assert not asked
