"""What `up` waits for, and when it does so no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.embedded import table
from perseid.embedded.lifecycle import RESTARTS_MAX, until_healthy
from perseid.embedded.paths import Home
from perseid.embedded.table import Running
from perseid.errors import RetryableError


def test_what_gets_healthy_is_waited_for(tmp_path: Path) -> None:
    answers: Iterator[str | None] = iter(["not yet", "not yet", None])
    until_healthy(Home(tmp_path), lambda: next(answers), 60, "kafka")
    assert list(answers) == []


def test_what_does_not_in_time_is_an_error_that_names_the_log(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(RetryableError, match=r"not healthy after 0 s: no broker\. See ") as text:
        until_healthy(home, lambda: "no broker", 0, "kafka")
    assert str(home.log("kafka")) in str(text.value)


def test_what_ends_again_and_again_is_not_waited_for(tmp_path: Path) -> None:
    """Counted from when it is waited for: it may have been restarted often since it was started."""
    home, restarts = Home(tmp_path), 40
    home.run.mkdir()

    def probe() -> str:
        nonlocal restarts
        restarts += 1
        table.write_running(home, Running("kafka", "kafka", None, None, restarts))
        return "no broker"

    table.write_running(home, Running("kafka", "kafka", None, None, restarts))
    with pytest.raises(RetryableError, match=r"kafka ends again and again, .*: no broker\. See "):
        until_healthy(home, probe, 600, "kafka")
    assert restarts == 40 + RESTARTS_MAX + 1
