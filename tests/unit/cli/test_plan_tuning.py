"""`plan thresholds` and `plan checkpoint`: bounds from an error, checkpoints that write changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perseid.cli.main import run


def answer(capsys: pytest.CaptureFixture[str], line: str) -> Any:
    assert run(["plan", *line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_thresholds_of_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "thresholds --theta 1e5 --l 1000 --gamma 1000 --failures 3")
    assert found == {"theta": 6250.0, "l": 62, "gamma": 62, "exact": False}
    pipeline = "thresholds --theta 1e5 --l 1000 --gamma 1000 --stages 3 --beta 5"
    assert answer(capsys, pipeline)["theta"] == 2000.0


@pytest.mark.parametrize(
    ("window", "failures", "theta"),
    [
        ("hopping --now 29 --length 10", 2, 12_500.0),
        ("sliding --now 24.9 --length 10", 2, 12_500.0),
        ("sliding --now 25 --length 30", 4, 3125.0),
        ("none", 4, 3125.0),
        ("decaying", 0, 100_000.0),
    ],
)
def test_failures_count_while_they_are_in_the_window(
    capsys: pytest.CaptureFixture[str], window: str, failures: int, theta: float
) -> None:
    bounds = "thresholds --theta 1e5 --l 1000 --gamma 1000"
    found = answer(capsys, f"{bounds} --window {window} --failed-at 5,19.9,20,25")
    assert (found["failures"], found["theta"]) == (failures, theta)


def test_a_decaying_window_keeps_nothing_back(capsys: pytest.CaptureFixture[str]) -> None:
    line = "thresholds --theta 1e5 --l 1000 --gamma 1000 --failures 3 --window decaying"
    assert answer(capsys, line) == {"theta": 1e5, "l": 1000, "gamma": 1000, "exact": False}


def test_a_long_pipeline_works_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    line = "thresholds --theta 1e5 --l 9 --gamma 9 --stage 1 --stages 1000 --beta 10"
    assert answer(capsys, line) == {"theta": 0.0, "l": 0, "gamma": 0, "exact": True}


@pytest.mark.parametrize("error", ["15%", "0.15"])
def test_thresholds_of_an_error_of_a_sketch(capsys: pytest.CaptureFixture[str], error: str) -> None:
    line = f"thresholds --error {error} --for count-min --threshold 10e6 --alpha 1500"
    assert answer(capsys, line) == {
        "theta": 375_000.0, "l": 250, "gamma": 250, "exact": False,
        "bounds": {"theta": 750_000.0, "l": 500, "gamma": 500},
    }  # fmt: skip


def test_thresholds_of_an_error_of_a_join(capsys: pytest.CaptureFixture[str]) -> None:
    line = "thresholds --error 1% --for ripple-join --sampled 1000000 --beta 10 --failures 1"
    found = answer(capsys, line)
    assert found["bounds"] == {"theta": 6567, "l": 656, "gamma": 6567}
    assert (found["theta"], found["l"], found["gamma"]) == (6567 / 4, 164, 1641)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("", "the thresholds: needed is also --theta, --l, --gamma; or --error with --for"),
        ("--theta 1 --l 5", "the thresholds: needed is also --gamma"),
        ("--error 1%", "--error and --for belong together"),
        ("--for count-min --threshold 5 --alpha 1", "--error and --for belong together"),
        ("--error 1% --for count-min", "--for count-min: needed is also --threshold, --alpha"),
        ("--error 1% --for ripple-join --beta 2", "--for ripple-join: needed is also --sampled"),
        (
            "--error 1% --for ripple-join --beta 2 --sampled 9 --theta 4 --alpha 1",
            "--for ripple-join: --theta, --alpha does not belong to it",
        ),
        ("--theta 1 --l 1 --gamma 1 --sampled 3", "the thresholds: --sampled does not belong"),
        ("--error many --for count-min --threshold 5 --alpha 1", "--error many: expected a share"),
        ("--error 1 --for count-min --threshold 5 --alpha 1", "an error of 1.0: between 0 and 1"),
        ("--error 1% --for count-min --threshold 5 --alpha 0", "alpha is 0.0: more than 0"),
        ("--error 1% --for join", "--for"),
        ("--theta 1 --l 1 --gamma 1 --window daily", "--window"),
        ("--theta 1 --l 1 --gamma 1 --now 5", "--now and --length belong to --failed-at"),
        ("--theta 1 --l 1 --gamma 1 --failures 1 --failed-at 5", "which counts them: not both"),
        ("--theta 1 --l 1 --gamma 1 --failed-at 5,x", "--failed-at 5,x: expected seconds"),
        ("--theta 1 --l 1 --gamma 1 --failed-at 5,nan", "the time of a failure is nan s"),
        (
            "--theta 1 --l 1 --gamma 1 --window sliding --failed-at 5 --now 6",
            "--window sliding with --failed-at: needed is also --now and --length",
        ),
        (
            "--theta 1 --l 1 --gamma 1 --window hopping --failed-at 5 --now 6 --length 0",
            "the window's length is 0.0 s: more than 0",
        ),
        ("--theta nan --l 1 --gamma 1", "theta is nan: 0 or more"),
        ("--theta 1 --l 1 --gamma 1 --failures -1", "failures is -1"),
    ],
)
def test_thresholds_that_cannot_be_are_named(
    capsys: pytest.CaptureFixture[str], line: str, shown: str
) -> None:
    assert run(["plan", "thresholds", *line.split()]) == 2
    assert shown in capsys.readouterr().err


@pytest.fixture
def sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of 100 bytes that changes by 10 a second, and a window that is emptied at 3 and 7."""
    monkeypatch.chdir(tmp_path)
    window = (0, 40, 80, 4, 44, 84, 120, 2, 42)
    rows = ["time_s,operator,bytes,changed_bytes"]
    rows += [f"{t},table,100,{10 * t}" for t in range(9)]
    rows += [f"{t},window,{window[t]},{40 * t}" for t in range(9)]
    path = tmp_path / "sizes.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.usefixtures("sizes")
def test_checkpoints_that_write_changes(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "checkpoint --sizes sizes.csv --period 4 --cost delta")
    assert found["fixed"] == [{"time_s": 4.0, "bytes": 144.0}, {"time_s": 8.0, "bytes": 40 + 42}]
    assert found["oracle"] == [{"time_s": 3.0, "bytes": 104.0}, {"time_s": 7.0, "bytes": 42.0}]
    written = {name: sum(p["bytes"] for p in plan) for name, plan in found.items()}
    assert written["oracle"] <= written["checkpoints"] <= written["fixed"]
    whole = answer(capsys, "checkpoint --sizes sizes.csv --period 4")
    assert whole["fixed"] == [{"time_s": 4.0, "bytes": 144.0}, {"time_s": 8.0, "bytes": 142.0}]


def test_sizes_without_changes_are_refused_by_column(
    sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, shown in (
        ("time_s,operator,bytes\n0,a,1\n", "expected time_s, operator, bytes, changed_bytes"),
        ("time_s,operator,bytes,changed_bytes\n0,a,1\n", "sizes.csv, line 2: "),
        ("time_s,operator,bytes,changed_bytes\n0,a,1,5\n9,a,1,4\n", "they never become less"),
        ("time_s,operator,bytes,changed_bytes\n0,a,1,5,7\n", "line 2: as many values as columns"),
        ("time_s,operator,bytes,changed_bytes\n0\n", "line 2: as many values as columns"),
        ("time_s,operator,bytes,changed_bytes\n0," + "a" * 200_000, "no CSV: field larger than"),
    ):
        sizes.write_text(text)
        line = "plan checkpoint --sizes sizes.csv --period 4 --cost delta"
        assert run(line.split()) == 1
        assert shown in capsys.readouterr().err
