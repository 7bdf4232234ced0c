"""An admin client that does not answer is replaced by the next question."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from perseid.errors import RetryableError
from perseid.topics import clients
from perseid.topics.admin import TopicAdmin


class Silent:
    """Its answers never come, not even its own timeout."""

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {"lines": Future()}


def test_a_client_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Silent] = []

    def admin(_bootstrap: str) -> Silent:
        made.append(Silent())
        return made[-1]

    monkeypatch.setattr(clients, "admin", admin)
    topics = TopicAdmin("localhost:1", timeout_s=-0.99)
    for asked in (1, 2):
        assert len(made) == asked
        with pytest.raises(RetryableError, match="describing topic lines: no answer"):
            topics.describe(["lines"])
    assert len(made) == 3


def test_clients_that_are_abandoned_one_after_the_other_get_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, made = [0.0], list[int]()

    class Hanging(Silent):
        def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
            answer: Future[Any] = Future()
            answer.set_exception(TimeoutError())
            return {"lines": answer}

    def admin(_bootstrap: str) -> Hanging:
        made.append(1)
        return Hanging()

    monkeypatch.setattr(clients, "admin", admin)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    topics = TopicAdmin("localhost:1", timeout_s=15.0)
    for _ in range(24 * 225):  # a day, every 16 s
        now_s[0] += 16
        with pytest.raises(RetryableError, match="no answer in 15"):
            topics.describe(["lines"])
    assert 7 < len(made) < 110
    now_s[0] += 3 * 3600  # it was well meanwhile
    for _ in range(2):
        with pytest.raises(RetryableError):
            topics.describe(["lines"])
    made.clear()
    now_s[0] += 16
    with pytest.raises(RetryableError):
        topics.describe(["lines"])
    assert made  # replaced as soon as the first one ever was
