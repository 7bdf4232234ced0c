"""`plan recovery` with workers: where each partition runs, and the plans as workers arrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perseid.cli.main import run


@pytest.fixture
def problem(failure: dict[str, Any]) -> dict[str, Any]:
    """One worker with room for the cheaper partition; the next ones have room for both."""
    del failure["free"]
    workers = [{"id": "w1", "cores": 1.0, "used": 0.5}]
    return {**failure, "workers": workers, "arrivals": [[], [{"id": "w2", "cores": 2.0}]]}


def planned(path: Path, problem: dict[str, Any], *more: str) -> int:
    (path / "failed.json").write_text(json.dumps(problem))
    return run(["plan", "recovery", "--input", str(path / "failed.json"), *more])


@pytest.mark.parametrize("algorithm", ["dp", "best-density", "oc"])
def test_plans_follow_the_workers(
    tmp_path: Path, problem: dict[str, Any], capsys: pytest.CaptureFixture[str], algorithm: str
) -> None:
    """0.8 of a core less what is used: 0.3 on w1, where p1 with 0.2 fits, and 1.6 on w2."""
    assert planned(tmp_path, problem, "--algorithm", algorithm, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("elapsed_ms") >= 0
    assert found == {
        "algorithm": algorithm, "recover": ["p1", "p2"], "queries": ["q1", "q2"], "priority": 4,
        "cost": pytest.approx(1.6),
        "plans": [
            {"number": 1, "rolls_back": True, "assigned": {"p1": "w1"}, "queries": ["q1"]},
            {"number": 2, "rolls_back": False, "assigned": {"p2": "w2"}, "queries": ["q1", "q2"]},
        ],
    }  # fmt: skip


def test_people_see_where(
    tmp_path: Path, problem: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = tmp_path / "plan.svg"
    assert planned(tmp_path, problem, "--plot", str(drawn)) == 0
    assert "plans       1: p1 on w1, 2: p2 on w2" in capsys.readouterr().out
    assert "priority 4 of 4 for 1.6 of 1.9 free cores" in drawn.read_text()


def test_a_worker_that_is_full_gets_nothing(
    tmp_path: Path, problem: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    full = {**problem, "workers": [{"id": "w1", "cores": 1.0, "used": 0.7}], "arrivals": []}
    assert planned(tmp_path, full, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["recover"], found["plans"]) == ([], [])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"free": 1.0}, "give either free, a number of cores, or workers"),
        ({"workers": None, "arrivals": []}, "give either free, a number of cores, or workers"),
        ({"workers": None, "free": 1.0}, "arrivals need workers"),
        ({"arrivals": [[{"id": "w1", "cores": 1.0}]]}, "worker w1 is there twice"),
        ({"workers": [{"id": "w1", "cores": -1}]}, "worker w1: cores is -1.0: 0 or more"),
        ({"workers": [{"id": "w1"}]}, "workers.0.cores: Field required"),
        ({"failed": ["p9"]}, "failed or replicated: p9, which is not there"),
    ],
)
def test_what_cannot_be_is_named(
    tmp_path: Path,
    problem: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    text: str,
) -> None:
    assert planned(tmp_path, {**problem, **change}) == 1
    assert text in capsys.readouterr().err
