"""The status as a test on the embedded cluster sees it: the leader's, and how it is waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from werkzeug.wrappers import Request, Response

from perseid.embedded import Cluster
from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from support import http_server

DONE = {"name": "j", "state": "running", "lag": 0, "backlog": 0, "epoch": 5, "committed_epoch": 5}


@dataclass
class Leader:
    """What it answers, one after the other; the last one again and again."""

    views: list[dict[str, Any]] = field(default_factory=list)
    url: str | None = None  # None: nothing leads
    code: int = 200

    def answer(self, request: Request) -> Response:
        assert request.path == "/api/v1/status"
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        return Response(json.dumps(view), self.code)


def view(looked_ms: int | None, **changes: object) -> dict[str, Any]:
    return {"leader": {"looked_ms": looked_ms}, "jobs": [DONE | changes]}


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    made = Leader()

    def leading() -> SimpleNamespace | None:
        return SimpleNamespace(url=made.url) if made.url is not None else None

    registry = SimpleNamespace(leader=leading, close=lambda: None)
    monkeypatch.setattr(Registry, "connect", lambda _: registry)
    with http_server.running(made.answer) as made.url:
        yield made


@pytest.fixture
def running() -> RunningCluster:
    return RunningCluster(cast(Cluster, SimpleNamespace(deployment=SimpleNamespace(kafka="k:1"))))


def test_the_view_is_the_leaders(leader: Leader, running: RunningCluster) -> None:
    leader.views = [view(7)]
    assert running.view() == {"jobs": [DONE], "looked_ms": 7}
    assert running.job("j") == DONE
    assert running.job("other") == {}


def test_without_an_answer_there_are_no_jobs(leader: Leader, running: RunningCluster) -> None:
    leader.views = [view(7)]
    nothing: dict[str, Any] = {"jobs": [], "looked_ms": None}
    leader.code = 503
    assert running.view() == nothing
    for leader.url in ("http://127.0.0.1:1", None):
        assert running.view() == nothing


def test_a_job_is_caught_up_by_a_look_that_is_later_than_the_call(
    leader: Leader, running: RunningCluster
) -> None:
    before_ms = time.time_ns() // 1_000_000
    later_ms = before_ms + 3_600_000
    leader.views = [
        view(None), view(before_ms - 1), view(later_ms, lag=3), view(later_ms, epoch=6),
        view(later_ms, state="restoring"), view(later_ms, epoch=4, committed_epoch=4),
        view(later_ms),
    ]  # fmt: skip
    assert running.wait_caught_up("j", above_epoch=4) == DONE
    assert len(leader.views) == 1
