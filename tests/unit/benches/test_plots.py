"""Plots of benchmarks, and what `bench` refuses before it measures anything."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benches import results
from benches.catalogue import BENCHES
from benches.plot import labels_of
from perseid.errors import RefusedError
from run import COLUMNS, bench, run

MACHINE = {"cores": 2, "memory_gib": 8.0}
WORDCOUNT: dict[str, Any] = {
    "bench": "wordcount", "machine": MACHINE,
    "rows": [
        {"system": "perseid", "rows_per_s": 150_000.0, "p50_ms": 294.9, "rss_mb": 4046.0},
        {"system": "spark", "rows_per_s": 90_000.0, "rss_mb": 1308.0},
    ],
}  # fmt: skip
NEXMARK: dict[str, Any] = {
    "bench": "nexmark", "machine": MACHINE,
    "rows": [
        {"system": "perseid", "query": "q0", "rows_per_s": 200_000.0},
        {"system": "perseid", "query": "q8", "rows_per_s": 90_000.0},
    ],
}  # fmt: skip
PLANNERS: dict[str, Any] = {
    "bench": "planners", "machine": MACHINE,
    "rows": [
        {"figure": "13", "setting": "Q1", "x": 0.2, "system": "dp", "value": 0.2},
        {"figure": "13", "setting": "Q1", "x": 0.4, "system": "dp", "value": 0.4},
        {"figure": "checkpoint size", "setting": "tmi", "x": 1.0, "system": "ours", "value": 1.04},
        {"figure": "scale", "setting": "60 queries", "x": 1.0, "system": "best-density",
         "seconds": 0.37, "limit_s": 2.0, "memory_mb": 9.0, "limit_mb": None},
    ],
}  # fmt: skip
SIMULATION: dict[str, Any] = {
    "bench": "simulation", "machine": MACHINE,
    "rows": [
        {"figure": "speed", "setting": "empty protocol", "system": "events/s", "value": 500_000.0},
        {"figure": "speed", "setting": "normal", "system": "seeds/s", "value": 10.67},
        {"figure": "speed", "setting": "as drawn", "system": "seeds/s", "value": 14.0},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (WORDCOUNT, ["wordcount, 2 cores", "median latency, ms", "150,000", "spark"]),
        (NEXMARK, ["nexmark, 2 cores", "q0", "q8", "90,000"]),
        (PLANNERS, ["figure 13", "output fidelity", "dp, Q1", "bytes / oracle", "1.04"]),
        (PLANNERS, ["the paper's policy", "processor time, s", "0.37"]),
        (SIMULATION, ["events/s of one core", "500,000", "seeds/s of one core", "10.7", "normal"]),
    ],
)
def test_a_result_is_drawn_twice(
    tmp_path: Path, result: dict[str, Any], message: list[str]
) -> None:
    png, svg = results.plot(result, tmp_path / "new" / "folder")
    assert png.read_bytes().startswith(b"\x89PNG")
    drawn = svg.read_text()
    assert [text for text in message if text not in drawn] == []


def test_a_result_without_a_panel_is_refused_by_name(tmp_path: Path) -> None:
    nothing = {"bench": "checkpoint", "machine": MACHINE, "rows": [{"system": "perseid"}]}
    with pytest.raises(RefusedError, match="bench checkpoint has nothing that is drawn"):
        results.plot(nothing, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (WORDCOUNT["rows"], ["perseid", "spark"]),
        (NEXMARK["rows"], ["q0", "q8"]),
        ([{"system": "perseid"}], ["perseid"]),
        (
            [
                {"system": "perseid", "setting": setting, "checkpoints": made}
                for setting in ("10 MB", "1 GB")
                for made in ("with", "without")
            ],
            ["10 MB, with", "10 MB, without", "1 GB, with", "1 GB, without"],
        ),
        (
            [
                {"system": "perseid", "figure": "keys", "x": 1_000},
                {"system": "perseid", "figure": "minutes", "x": 1_000},
            ],
            ["keys", "minutes"],
        ),
    ],
)
def test_bars_have_names_of_their_own(rows: list[dict[str, Any]], labels: list[str]) -> None:
    assert labels_of(rows) == labels


def test_the_table_names_the_queries(capsys: pytest.CaptureFixture[str]) -> None:
    results.show(NEXMARK, COLUMNS)
    shown = capsys.readouterr().out
    assert ["q0" in shown, "q8" in shown] == [True, True]


def test_the_help_names_every_benchmark() -> None:
    message = set(re.findall(r"[\w-]+", str(bench.__doc__)))
    assert set(BENCHES) - message == set()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", "bench nothing: expected one of wordcount, running-sum, map"),
        ("planners --peer spark", "bench planners takes no --peer"),
        ("planners --state 1GB", "bench planners takes no --state"),
        ("planners --lines 5", "bench planners takes no --lines"),
        ("map --lines 5", "bench map takes no --lines"),
        ("latency --records 5", "bench latency takes no --records"),
        ("latency --peer loop", "--peer loop: expected one of spark, spark-rocksdb, quix, none"),
        ("wordcount --state 1GB", "bench wordcount takes no --state"),
        ("checkpoint --state-dir here", "bench checkpoint takes no --state-dir"),
        ("recovery --lines 5", "bench recovery takes no --lines"),
        ("recovery --peer flink", "--peer flink: expected one of spark"),
    ],
)
def test_what_a_benchmark_does_not_take_is_refused(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert message in capsys.readouterr().err


def test_without_matplotlib_nothing_is_measured_for_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["planners", "--plot", str(tmp_path)]) == 3
    assert "type `pip install 'matplotlib>=3.10,<4'`" in capsys.readouterr().err
