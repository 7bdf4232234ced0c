"""What tests of many seeds play: all of them or, in a normal run, some that it draws."""

from __future__ import annotations

import pytest

from support.playing import Player


@pytest.fixture
def player(
    request: pytest.FixtureRequest, seeds: int | None, seed: int, capsys: pytest.CaptureFixture[str]
) -> Player:
    return Player(seeds, request.config.getoption("--matrix"), seed, capsys)
