"""An admin client that does not answer is replaced by the next question."""

from __future__ import annotations

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
