from __future__ import annotations

from pathlib import Path

import pytest

from support.coordinator import Leader, World
from support.coordinator_setting import Setting
from support.coordinator_steps import leading, one_job


@pytest.fixture
def world() -> World:
    return one_job()


@pytest.fixture
def leader(world: World) -> Leader:
    return leading(world)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)
