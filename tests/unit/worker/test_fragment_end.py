"""A fragment's end is told until it is heard. Needs pyspark's modules, but no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from perseid.errors import BadInputError, FencedError, PermanentError, RetryableError, describe
from perseid.records import Plan
from perseid.topics.log import ProgressLog
from perseid.topics.records import FragmentState
from perseid.worker import fragment
from perseid.worker.fragment import DIED, Fragment

PLAN = Plan("job", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)


class Progress:
    """Takes records after `failures` appends without an answer."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.told: list[FragmentState] = []
        self.on_failure: Any = lambda: None

    def append(self, record: FragmentState) -> int:
        if self.failures:
            self.failures -= 1
            self.on_failure()
            raise RetryableError("append was not acknowledged")
        self.told.append(record)
        return 0


def ended(progress: Progress, error: BaseException) -> Fragment:
    found = Fragment(cast(Any, None), cast(Any, None), PLAN, "w1-a", Path(), Path())
    found._end_with(cast(ProgressLog, progress), error)
    return found


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment, "TELL_AGAIN_S", 0.0)


@pytest.mark.parametrize(
    ("error", "kind", "permanent"),
    [
        (RetryableError("the broker is away"), "RetryableError", False),
        (PermanentError("no"), "PermanentError", True),
        (FencedError("a newer owner"), "FencedError", False),
        (ValueError("what"), "RetryableError", False),
        (ValueError(f"SparkException: {DIED[0]} (crashed): EOF"), "ProcessDied", False),
        (ValueError(f"SparkException: {DIED[1]} (executor 3 exited"), "ProcessDied", False),
        (ValueError(f"{DIED[0]} {describe(BadInputError('n'))}"), "BadInputError", True),
    ],
)
def test_it_is_told_until_it_is_heard(error: Exception, kind: str, permanent: bool) -> None:
    progress = Progress(failures=3)
    ended(progress, error)
    (record,) = progress.told
    assert (record.state, record.error_kind, record.permanent) == ("failed", kind, permanent)
    assert (record.generation, record.epoch) == (3, 7)


def test_it_is_not_told_any_more_when_a_newer_plan_has_come() -> None:
    progress = Progress(failures=10**6)
    found = Fragment(cast(Any, None), cast(Any, None), PLAN, "w1-a", Path(), Path())
    progress.on_failure = found._stopping.set
    found._end_with(cast(ProgressLog, progress), RetryableError("the broker is away"))
    assert progress.told == []
    assert progress.failures == 10**6 - 1
