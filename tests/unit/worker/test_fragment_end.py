"""A fragment's end is reported until acknowledged. Needs Spark's modules alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseid.engine import acknowledged
from perseid.engine.fragment import FragmentLife
from perseid.engine.last_word import LastWord
from perseid.errors import BadInputError, FencedError, PermanentError, RetryableError
from perseid.errors.carried import describe
from perseid.errors.texts import EVENT_MAX, TEXT_MAX
from perseid.jobs.model.spread import Share, Spread
from perseid.records import WHOLE, Assignment, Plan
from perseid.topics.codec import decode
from perseid.topics.log import KafkaLogWriter, ProgressLog
from perseid.topics.records import FragmentState
from perseid.worker import fragment
from perseid.worker.dataflow.failures import DIED
from perseid.worker.fragment import EXIT_UNREPORTED, Fragment

TOKEN = "drawn-for-this-life"
PLAN = Plan.fused("job", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)


class Progress:
    """Takes records after `failures` appends without an answer."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.reported: list[FragmentState] = []
        self.on_failure: Any = lambda: None

    def append(self, record: FragmentState) -> int:
        if self.failures:
            self.failures -= 1
            self.on_failure()
            raise RetryableError("append was not acknowledged")
        self.reported.append(record)
        return 0


def made() -> Fragment:
    found = Fragment(cast(Any, None), cast(Any, None), PLAN, "w1-a", Path(), Path())
    found._token = TOKEN
    return found


def ended(progress: Any, error: BaseException, host: Fragment | None = None) -> None:
    life(progress, host)._end_with(error)


def life(progress: Any, host: Fragment | None = None) -> FragmentLife:
    return FragmentLife(PLAN, "w1-a", cast(LastWord, progress), host or made())


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged, "AGAIN_S", 0.0)


@pytest.mark.parametrize(
    ("error", "kind", "permanent"),
    [
        (RetryableError("the broker is away"), "RetryableError", False),
        (PermanentError("no"), "PermanentError", True),
        (FencedError("a newer owner"), "FencedError", False),
        (ValueError("what"), "UnexpectedError", False),
        (SystemExit(3), "UnexpectedError", False),
        (ConnectionRefusedError("no"), "RetryableError", False),
        (ValueError(f"SparkException: {DIED[0]} (crashed): EOF"), "ProcessDied", False),
        (ValueError(f"SparkException: {DIED[1]} (executor 3 exited"), "ProcessDied", False),
        (ValueError(f"{DIED[0]} {describe(BadInputError('n'), TOKEN)}"), "BadInputError", True),
    ],
)
def test_it_is_reported_until_it_is_heard(error: Exception, kind: str, permanent: bool) -> None:
    progress = Progress(failures=3)
    ended(progress, error)
    (record,) = progress.reported
    assert (record.state, record.error_kind, record.permanent) == ("failed", kind, permanent)
    assert (record.generation, record.epoch) == (3, 7)


def test_it_is_not_reported_any_more_when_a_newer_plan_has_come() -> None:
    progress = Progress(failures=10**6)
    found = made()
    progress.on_failure = found._control.stopping.set
    ended(progress, RetryableError("the broker is away"), found)
    assert progress.reported == []
    assert progress.failures == 10**6 - 1


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


LONG = [
    PermanentError("x" * 2_000_000), ValueError("\U0001f600" * 500_000),
    PermanentError("a \ud800 b"), ValueError("\x00" * 2_000_000), Unspeakable(),
    ValueError(b"\xff" * 1_000_000),
]  # fmt: skip


@pytest.mark.parametrize("error", LONG, ids=range(len(LONG)))
def test_whatever_it_reports_its_record_is_one_that_kafka_takes(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself refuses what is too large, so it needs no broker to be asked."""
    sent: list[bytes] = []
    writer = KafkaLogWriter("127.0.0.1:1", timeout_s=0.0)
    append = writer.append

    def remembered(topic: str, partition: int, value: bytes) -> int:
        sent.append(value)
        with pytest.raises(RetryableError, match="not acknowledged"):  # and none that it refuses
            append(topic, partition, value)
        return 0

    monkeypatch.setattr(writer, "append", remembered)
    ended(ProgressLog("job", writer=writer), error)
    (value,) = sent
    record = decode(value)
    assert isinstance(record, FragmentState)
    assert (record.state, record.generation) == ("failed", 3)
    assert 0 < len(record.error.encode()) <= TEXT_MAX


class Refusing(Progress):
    """Takes no record whose text is longer than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__(failures=0)
        self.most = most

    def append(self, record: FragmentState) -> int:
        if len(record.error) > self.most:
            raise PermanentError("the broker refuses a record as too large")
        return super().append(record)


def test_where_the_broker_takes_less_a_short_record_is_reported() -> None:
    progress = Refusing(most=EVENT_MAX)
    ended(progress, PermanentError("x" * 2_000_000))
    assert [(r.state, r.error_kind) for r in progress.reported] == [("failed", "PermanentError")]


def test_events_of_any_size_are_reported() -> None:
    progress = Progress(failures=0)
    life(progress).report("warning", events=("y" * 2_000_000, "\ud800"))
    assert [len(event) <= EVENT_MAX for event in progress.reported[0].events] == [True, True]


def refuse(*_: Any) -> None:
    raise PermanentError("no such topic")


def test_an_end_that_cannot_be_reported_ends_the_worker_and_not_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(acknowledged, "REJECTIONS_MAX", 0)
    monkeypatch.setattr(fragment, "end_worker", codes.append)
    monkeypatch.setattr(KafkaLogWriter, "append", refuse)
    deployment: Any = SimpleNamespace(brokers=lambda job: "127.0.0.1:1")
    found = Fragment(cast(Any, None), deployment, PLAN, "w1-a", Path(), Path())
    found._live()
    assert codes == [EXIT_UNREPORTED]
    assert found.ended
    assert "how its fragment ended cannot be reported" in caplog.text


def test_who_stops_a_fragment_does_not_wait_for_a_broker_that_is_away() -> None:
    progress = Progress(failures=10**6)
    found = made()
    found._control.stopping.set()
    ended(progress, ValueError("the query was stopped"), found)
    assert progress.failures == 10**6 - 1


def named(*fragments: str, job: str = "job", generation: int = 3) -> list[str]:
    found = []
    for name in fragments:
        own = replace(PLAN.only, fragment=name, generation=generation)
        plan = replace(PLAN, job=job, generation=generation, assignments=(own,))
        found.append(Fragment(cast(Any, None), cast(Any, None), plan, "w1-a", Path(), Path()).name)
    return found


def test_no_two_fragments_of_a_worker_have_a_name_in_common() -> None:
    assert made().name == "fragment-job-3"
    assert named("0", "1") == ["fragment-job-3.0", "fragment-job-3.1"]
    several = [*named("0", "1", generation=1), *named("0", job="job-1"), *named(WHOLE, job="job-1")]
    assert len(set(several)) == len(several)


def test_an_assignment_that_is_cut_otherwise_is_refused() -> None:
    spread = Spread((Share((0, 2), {"a": (0, 2)}, 0), Share((1, 3), {"a": (1, 2)}, 0)))
    whole, first = PLAN.only, Assignment("0", (0, 2), "w1-a", 3, split=0)
    fragment.refuse_other_cut("job", whole, None)
    fragment.refuse_other_cut("job", first, spread)
    for own, cut in [
        (whole, spread), (first, None), (replace(first, gids=(0, 1)), spread),
        (replace(first, split=1), spread),
    ]:  # fmt: skip
        with pytest.raises(PermanentError, match="run the same version"):
            fragment.refuse_other_cut("job", own, cut)
