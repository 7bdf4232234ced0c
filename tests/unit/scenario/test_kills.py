from __future__ import annotations

import pytest

from perseid.cli.scenario.kills import Kill, parse, parse_all
from perseid.errors import UsageError


def test_kill_with_and_without_a_time() -> None:
    assert parse("worker") == Kill("worker")
    assert parse("coordinator@12.5") == Kill("coordinator", 12.5)


@pytest.mark.parametrize("text", ["", "wrker", "worker@", "worker@soon", "worker@-1", "worker@inf"])
def test_kill_that_cannot_be_understood_lists_what_can(text: str) -> None:
    with pytest.raises(UsageError, match=r"worker"):
        parse(text)


def test_executor_needs_the_standalone_master() -> None:
    with pytest.raises(UsageError, match="--master standalone"):
        parse_all(["worker", "executor"], "local[2]")
    assert parse_all(["executor"], "standalone") == (Kill("executor"),)
