"""Whatever is raised in a task comes to the status of its job: typed, placed, short and private.

The whole way, but for Spark and Kafka: an exception in an operator or next to it -> the text that
Spark carries -> the fragment's record -> the coordinator's decision -> the entry in ZooKeeper.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perseid.coordinator.failing import TRIES_MAX
from perseid.engine.fragment import FragmentLife
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.operator import Emitter, Identity, Operator, opened
from perseid.records import JobStatus, Plan
from perseid.registry import codec as entries
from perseid.topics import codec
from perseid.topics.records import FragmentState, Token
from perseid.worker.dataflow.failures import named, stage
from perseid.worker.dataflow.operators import call
from perseid.worker.dead_letters.poison import guarded
from perseid.worker.fragment import Fragment
from support.coordinator_steps import JOB, leading, one_job, run

TOKEN = "drawn-for-this-life"
FORGED = "perseid-error[RetryableError]: all is well ::end"
FORGED_NOW = 'perseid-error-: ["RetryableError", "all is well"]'
GOOD, BAD = "ann@example.org", "bob@example.org"
ROWS = {"input": pa.table({"user": [GOOD, BAD], "n": [1, 2]})}
AT = Token(1, "u", 3, 0, "r1", 1, (), 0)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError(GOOD)


class Quoting(Operator):
    """Raises what it is to raise when it sees the bad row."""

    error: Callable[[list[Any]], BaseException]

    def process(self, batch: pa.Table, out: Emitter) -> None:
        if BAD in batch["user"].to_pylist():
            raise self.error(batch.to_pylist())


def in_process(error: Callable[[list[Any]], BaseException]) -> None:
    operator = opened(Quoting, Identity("job", "spent", 1, 2), {})
    operator.error = error  # type: ignore[attr-defined]
    guarded(lambda rows: call(operator, AT, rows, Emitter("spent")), ROWS, None)


def outside_it(error: Callable[[list[Any]], BaseException]) -> None:
    with named("operator spent, partition 1, epoch 3,"):
        raise error([])


def carried(work: Callable[[], None]) -> str:
    """What the driver gets, as pyspark and the JVM write it."""

    @stage
    def task(_context: Any) -> Iterator[None]:
        work()
        yield None

    try:
        list(task(cast(Any, SimpleNamespace(token=TOKEN))))
    except BaseException as error:
        shown = "".join(traceback.TracebackException.from_exception(error, compact=True).format())
        text = shown.encode("utf-8").decode()  # else the worker process ends without a report
        return f"Job aborted due to stage failure: PythonException: {text}\nCaused by: {text}"
    raise AssertionError("it raises")


def record_of(text: str) -> FragmentState:
    """The record of a fragment that ends with it, as it comes out of Kafka."""
    shown: list[Any] = []
    plan = Plan.fused(JOB, "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)
    fragment = Fragment(cast(Any, None), cast(Any, None), plan, "w1-a", Path(), Path())
    fragment._token = TOKEN
    progress = cast(Any, SimpleNamespace(append=shown.append))
    FragmentLife(plan, "w1-a", progress, fragment)._end_with(ValueError(text))
    record = codec.decode(codec.encode(shown[0]))
    assert isinstance(record, FragmentState)
    return record


def status_after(record: FragmentState, tries: int) -> tuple[JobStatus | None, bool]:
    """Of a job that has done two epochs and fails so often; and whether it is placed again."""
    world = one_job()
    leader = leading(world)
    run(world, leader, 2)
    for _ in range(tries):
        world.report(JOB, "failed", error_kind=record.error_kind, error=record.error,
                  permanent=record.permanent)  # fmt: skip
        leader.listen()
        leader.tick(60.0)
    status = world.statuses[JOB]
    entries.encode(status)
    entries.encode(world.failures.get(JOB, status))
    return status, world.plans[JOB].owner is not None


TEXTS = st.builds(
    lambda parts, times: "".join(parts) * times,
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=()), max_size=10),  # surrogates, too
            st.sampled_from([FORGED, FORGED_NOW, "\n", "Traceback (most recent call last)",
                             "SQLSTATE: 22018", "Python worker exited unexpectedly", "Caused by:"]),
        ),
        min_size=1, max_size=6,
    ),
    st.sampled_from([1, 1, 30, 50_000]),
)  # fmt: skip
CODE = st.sampled_from([
    ValueError, KeyError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError,
    StopAsyncIteration, PermanentError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError,
    lambda text: ValueError(text.encode("utf-8", "surrogatepass")), lambda _text: Unspeakable(),
    lambda text: ExceptionGroup(text, [ValueError(text), KeyError(text)]),
    lambda text: UnicodeDecodeError("utf-8", b"\xff", 0, 1, text),
])  # fmt: skip
AWAY = st.sampled_from([
    ConnectionResetError, TimeoutError, RetryableError,
    lambda text: ExceptionGroup(text, [ConnectionRefusedError(text)]),
])  # fmt: skip


@settings(max_examples=50)
@given(CODE, TEXTS, st.sampled_from([in_process, outside_it]))
@example(ValueError, FORGED, in_process)
@example(ValueError, f"a part of {FORGED} {FORGED_NOW}", in_process)
@example(ValueError, "x" * 2_000_000, in_process)
@example(GeneratorExit, "", in_process)
def test_errors_of_code_and_data_end_the_job_within_three_tries(
    kind: Any, text: str, where: Callable[[Any], None]
) -> None:
    if kind is GeneratorExit and where is outside_it:
        return  # so Python ends a generator that is not read any more
    record = record_of(carried(lambda: where(lambda rows: kind(f"{text}{rows}"))))
    status, is_placed = status_after(record, TRIES_MAX)
    assert status is not None
    assert (status.state, is_placed) == ("failed", False)
    assert status.error is not None
    if not (kind is PermanentError and where is outside_it):  # that speaks for itself
        assert status.error["text"].startswith("operator spent"), status.error["text"]
        assert "partition 1, epoch 3" in status.error["text"]
    if kind is not PermanentError:
        assert GOOD not in str(status), "of a row that is good"
        assert BAD not in str(status), "and of the bad one"
    assert status.error["kind"] != "RetryableError"


@settings(max_examples=20)
@given(AWAY, TEXTS, st.sampled_from([in_process, outside_it]))
def test_what_is_away_is_waited_for(kind: Any, text: str, where: Callable[[Any], None]) -> None:
    record = record_of(carried(lambda: where(lambda _rows: kind(text))))
    status, is_placed = status_after(record, 5 * TRIES_MAX)
    assert status is not None
    assert (status.state, is_placed) == ("restoring", True)
