"""The list of kill points is that of the code, and what is drawn from it leaves no target out."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from perseid.coordinator import actions
from support.kill_points import POINTS, REPLICA_POINTS, SPREAD_POINTS, drawn, matrix, together

ROOT = Path(__file__).parents[3]
FOLDERS = (
    "platform/perseid/engine", "platform/perseid/worker", "platform/perseid/state", "coordinator",
    "topics", "replay",
)  # fmt: skip
OPERATORS = [f"o{i}" for i in range(9)]


def test_every_point_of_the_code_is_in_the_list() -> None:
    texts = [p.read_text() for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    calls = [re.findall(r'reach\([^()]*?"([a-z]+\.[a-z-]+)"', text) for text in texts]
    assert {name for found in calls for name in found} == {
        p.name for p in (*POINTS, *SPREAD_POINTS, *REPLICA_POINTS)
        if not p.name.startswith("coordinator.")
    }  # fmt: skip


def test_the_coordinators_points_are_actions_of_its() -> None:
    names = [p.name.removeprefix("coordinator.") for p in POINTS if "coordinator" in p.name]
    for name in names:  # as `performing.point_of` makes them: put-plan of PutPlan
        assert hasattr(actions, "".join(word.capitalize() for word in name.split("-")))
    assert len(names) == 5


@pytest.mark.parametrize("seed", range(20))
def test_each_operator_dies_once_and_the_job_at_points_of_its_own(seed: int) -> None:
    wanted = drawn(random.Random(seed), OPERATORS, ("o3",))
    own = [kill for kill in wanted if kill.operator]
    assert sorted(kill.operator for kill in own) == OPERATORS
    assert all(kill.point.of != "job" for kill in own)
    assert not any(kill.point.of == "state" for kill in own if kill.operator == "o3")
    assert {kill.point.of for kill in wanted if not kill.operator} == {"job"}


def test_chance_alone_decides_what_is_drawn() -> None:
    runs = [drawn(random.Random(seed), set(OPERATORS), ()) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    points = {
        kill.point for seed in range(20) for kill in drawn(random.Random(seed), OPERATORS, ())
    }
    assert points == set(POINTS)


def test_no_more_die_at_once_than_is_put_up_with() -> None:
    wanted = drawn(random.Random(5), OPERATORS, ())
    *groups, last = together(wanted, 3)
    assert sorted(map(str, sum(groups, last))) == sorted(map(str, wanted))
    for group in groups:
        assert sum(1 for kill in group if kill.operator) <= 3
        assert sum(1 for kill in group if not kill.operator) <= 1
        assert not any(kill.moves for kill in group)
    assert all(kill.moves for kill in last)


def test_the_matrix_has_every_operator_at_every_point_that_can_be_its() -> None:
    cells = {
        (p.name, kill.operator) for p in POINTS for kill in matrix(p, "self", OPERATORS, ("o3",))
    }
    distinguished = [p for p in POINTS if p.of != "job"]
    own = {(p.name, o) for p in distinguished for o in OPERATORS if p.of == "writer" or o != "o3"}
    assert cells == own | {(p.name, "") for p in POINTS if p.of == "job"}
