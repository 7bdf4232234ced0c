from __future__ import annotations

from pathlib import Path

import pytest

from support.coordinator import Leader, World, job_entry
from support.coordinator_setting import Setting


@pytest.fixture
def world() -> World:
    """One job, one worker, one source topic with two empty partitions."""
    world = World(entries={"wordcount": job_entry()}, workers=["w1-1"])
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    return world


@pytest.fixture
def leader(world: World) -> Leader:
    """Leads, and has placed the job, which runs."""
    leader = Leader(world)
    leader.look()
    world.report("wordcount", "running")
    leader.listen()
    return leader


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)
