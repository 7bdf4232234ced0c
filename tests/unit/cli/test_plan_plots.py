"""`plan ... --plot FILE`: what a drawing shows, and what is refused before anything is computed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from perseid.cli import topology_plot
from perseid.cli.main import run
from perseid.coordinator.planners.graph import Node, Stream
from perseid.coordinator.planners.random_topology import Drawn, draw
from perseid.coordinator.planners.topology import Topology

TOPOLOGY = {
    "operators": [
        {"name": "views", "parallelism": 2},
        {"name": "costs $5", "parallelism": 1},
        {"name": "join", "parallelism": 2, "input": "correlated", "output_rates": [5.0, 1.0]},
    ],
    "edges": [
        {"from": "views", "to": "join", "substreams": [[0, 0, 1.0], [1, 1, 2.0]]},
        {"from": "costs $5", "to": "join", "substreams": [[0, 0, 3.0], [0, 1, 2.0]]},
    ],
}
PLACEMENT = {
    "workers": {"w1": "rack1", "w2": "rack2"},
    "primaries": [["views", 0, "w1"], ["views", 1, "w2"]],
    "replicate": [["views", 0]],
    "replicas": [["views", 0, "w2"]],
    "worker_mttf_s": 864_000.0,
    "worker_mttr_s": 10.0,
}
PLAN = {"budget": 3, "replicate": [["views", 1], ["costs $5", 0], ["join", 1]]}
COMMANDS = {
    "replication --topology t.json --budget 3": ["views (2)", "costs $5", "replicated (3)",
        "not replicated (2)", "substream (width: records/s)", "fidelity 0.8333"],
    "adapt --plan plan.json --rates t.json --moves 2": ["replica started (2)",
        "replica stopped (2)", "replicated (1)", "fidelity 0.8333"],
    "fidelity --topology t.json --failed [[\"views\",0]]": ["failed (1)", "loses input (1)",
        "whole (3)", "fidelity 0.1667"],
    "recovery --input f.json": ["q1", "recovered (1)", "not recovered (1)",
        "priority 3 of 4 for 0.2 of 1.5 free cores"],
    "thresholds --theta 100 --l 8 --gamma 8 --failures 1": ["theta: state divergence",
        "failures so far", "exact", "now"],
    "thresholds --theta 0 --l 0 --gamma 0": ["failures so far", "exact"],
    "checkpoint --sizes s.csv --period 4": ["time, s", "size, MB", "state size", "chosen, 2: ",
        "first minimum, 2: ", "oracle, 2: 80 MB", "fixed, 2: 180 MB"],
    "checkpoint --sizes s.csv --period 4 --cost delta": ["a checkpoint would write", "size, MB"],
    "placement --input p.json": ["w1", "rack2", "primaries", "replicas", "1 replicas placed"],
    "mttf --input p.json": ["mean time to failure", "partitions"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: dict[str, Any]) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in (("t", TOPOLOGY), ("f", failure), ("p", PLACEMENT), ("plan", PLAN)):
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    sizes = [90, 30, 90, 60, 90, 50, 95, 70, 90]
    rows = "".join(f"{t},a,{size}e6,{t}e9\n" for t, size in enumerate(sizes))
    (tmp_path / "s.csv").write_text("time_s,operator,bytes,changed_bytes\n" + rows)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_answer_can_be_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    line = ["plan", *command.split(" "), "--json"]
    assert run(line) == 0
    plain = json.loads(capsys.readouterr().out)
    assert run([*line, "--plot", "drawn.svg"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "drew drawn.svg\n"
    assert {**json.loads(shown.out), "elapsed_ms": 0} == {**plain, "elapsed_ms": 0}
    drawn = (folder / "drawn.svg").read_text()
    assert [text for text in COMMANDS[command] if f">{text}" not in drawn] == []


@pytest.mark.usefixtures("folder")
def test_the_ending_decides_the_kind_of_file(folder: Path) -> None:
    line = "plan fidelity --topology t.json --plot drawn.PNG"
    assert run(line.split()) == 0
    assert (folder / "drawn.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("drawn.pdf", "--plot drawn.pdf: expected a file ending in .png or .svg"),
        ("drawn", "--plot drawn: expected a file ending in .png or .svg"),
        ("none/drawn.png", "--plot none/drawn.png: there is no folder none"),
    ],
)
def test_a_file_that_cannot_be_is_refused_first(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "fidelity", "--topology", "not-there.json", "--plot", name]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "taken.png").mkdir()
    assert run("plan fidelity --topology t.json --plot taken.png".split()) == 1
    shown = capsys.readouterr()
    assert "taken.png: the drawing cannot be written" in shown.err
    assert shown.out == ""


@pytest.mark.usefixtures("folder")
def test_without_matplotlib_it_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("plan fidelity --topology t.json --plot drawn.png".split()) == 3
    assert "type `pip install 'matplotlib>=3.10,<4'`" in capsys.readouterr().err


def test_operators_stand_right_of_what_they_read_and_no_two_partitions_in_one_place() -> None:
    for seed in range(20):
        topology = draw(Random(seed), Drawn(parallelism=(1, 30)))
        places = topology_plot.placed(topology)
        assert len(np.unique(places, axis=0)) == topology.partitions
        for stream in topology.streams:
            left, right = (places[topology.slice(n), 0] for n in (stream.source, stream.target))
            assert left.max() < right.min()


def test_a_large_stream_is_an_area(tmp_path: Path) -> None:
    pairs = tuple((i, j, 1.0) for i in range(40) for j in range(40))
    nodes = [Node("a", 40), Node("b", 40, output_rates=(1.0,) * 40)]
    topology = Topology(nodes, [Stream("a", "b", pairs)])
    path = tmp_path / "drawn.svg"
    topology_plot.draw(path, topology, {"whole": range(80)}, "title")
    drawn = path.read_text()
    assert "stream of more than 500 substreams" in drawn
    assert "substream (width" not in drawn
    assert len(drawn) < 100_000
