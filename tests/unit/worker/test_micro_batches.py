"""Which records of the token log a micro-batch of a fragment's query takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseid.errors import RetryableError
from perseid.records import Plan
from perseid.worker import fragment as module
from perseid.worker.fragment import BATCH_S, Fragment
from perseid.worker.spark import query

PLAN = Plan("shop", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)


class Taking:
    """A fragment whose records take half of a micro-batch's time each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.taken = 0.0, list[int]()
        self.fails_at = -1
        self.fragment = Fragment(cast(Any, None), cast(Any, None), PLAN, "w1-a", Path(), Path())
        batches: list[Callable[[], None]] = []
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(query, "start", lambda *given: batches.append(given[-1]))
        monkeypatch.setattr(self.fragment, "_on_record", self.on_record)
        feed = SimpleNamespace(start_offset=7)
        self.fragment._start_query(cast(Any, None), cast(Any, feed), cast(Any, None))
        (self.batch,) = batches

    def on_record(self, *given: Any) -> None:
        if given[-1] == self.fails_at:
            raise RetryableError("the broker is away")
        self.taken.append(given[-1])
        self.now_s += BATCH_S / 2


def test_it_takes_record_after_record_until_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taking = Taking(monkeypatch)
    taking.batch()
    assert taking.taken == [7, 8]
    taking.now_s += 3600.0
    taking.batch()
    assert taking.taken == [7, 8, 9, 10]


def test_it_ends_with_what_a_record_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    taking.fails_at = 8
    with pytest.raises(RetryableError, match="the broker is away") as raised:
        taking.batch()
    assert taking.fragment._error is raised.value
    assert taking.taken == [7]


def test_after_a_stop_it_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(monkeypatch)
    taking.fragment._stopping.set()
    taking.batch()
    assert taking.taken == []
