"""`perseid plan`: the shapes of its files and answers, and its answers to files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perseid.cli.main import run

# Figure 2 of PPA, and a plan file as the contracts show it.
TOPOLOGY = {
    "operators": [
        {"name": "o1", "parallelism": 2},
        {"name": "o2", "parallelism": 2},
        {"name": "o3", "parallelism": 1, "input": "correlated", "output_rates": [5.0]},
    ],
    "edges": [
        {"from": "o1", "to": "o3", "substreams": [[0, 0, 1.0], [1, 0, 2.0]], "kind": "merge"},
        {"from": "o2", "to": "o3", "substreams": [[0, 0, 3.0], [1, 0, 2.0]]},
    ],
}
PLACEMENT = {
    "workers": {"w1": "rack1", "w2": "rack2"},
    "primaries": [["o1", 0, "w1"], ["o1", 1, "w2"]],
    "replicate": [["o1", 0], ["o1", 1]],
    "replicas": [["o1", 0, "w2"], ["o1", 1, "w1"]],
    "worker_mttf_s": 1000.0,
    "worker_mttr_s": 10.0,
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: dict[str, Any]) -> Path:
    monkeypatch.chdir(tmp_path)
    documents = {"topology": TOPOLOGY, "failure": failure, "placement": PLACEMENT}
    for name, value in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("algorithm", ["dp", "structure-aware"])
@pytest.mark.usefixtures("files")
def test_replication(capsys: pytest.CaptureFixture[str], algorithm: str) -> None:
    flags = ("--topology", "topology.json", "--budget", "3", "--algorithm", algorithm)
    found = answer(capsys, "replication", *flags)
    assert found.pop("elapsed_ms") >= 0
    assert found == {
        "algorithm": algorithm, "budget": 3,
        "replicate": [["o1", 1], ["o2", 0], ["o3", 0]],
        "fidelity": pytest.approx(2 / 3 * 3 / 5), "fidelity_none_replicated": 0.0,
    }  # fmt: skip


@pytest.mark.usefixtures("files")
def test_fidelity_of_figure_2(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--topology", "topology.json", "--failed", '[["o2", 1]]')
    assert answer(capsys, "fidelity", *flags) == {
        "fidelity": pytest.approx(3 / 5), "loss": {"o2": [0.0, 1.0], "o3": [0.4]}, "mc_trees": 4,
    }  # fmt: skip


def test_trees_of_a_diamond_are_counted_as_they_are(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the choices at its ends only those that agree about `a` are trees; too many: at most."""
    for partitions, named in ((2, {"mc_trees": 2}), (50, {"mc_trees_at_most": 2500})):
        to_one = [[i, 0, 1.0] for i in range(partitions)]
        edges = [("a", "b", to_one), ("a", "c", to_one), ("b", "d", [[0, 0, 1.0]])]
        edges += [("c", "d", [[0, 0, 1.0]])]
        join = {"name": "d", "parallelism": 1, "input": "correlated", "output_rates": [1.0]}
        wide = [("a", partitions), ("b", 1), ("c", 1)]
        diamond = {
            "operators": [*({"name": n, "parallelism": p} for n, p in wide), join],
            "edges": [{"from": s, "to": t, "substreams": rows} for s, t, rows in edges],
        }
        (files / "diamond.json").write_text(json.dumps(diamond))
        found = answer(capsys, "fidelity", "--topology", "diamond.json")
        assert found == {"fidelity": 1.0, "loss": {}, **named}
    assert run(["plan", "fidelity", "--topology", "diamond.json"]) == 0
    assert "mc_trees  at most 2500" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "verb", "shown"),
    [
        ({"replicas": [["o1", 0, "w1"]]}, "mttf", "o1[0] has its primary and its replica on w1"),
        ({"replicas": [["o9", 0, "w1"]]}, "mttf", "the replica of o9[0] on w1 has no primary"),
        ({"replicas": [["o1", 0, "w9"]]}, "mttf", "replicas: o1[0] on w9: workers has no w9"),
        ({"primaries": [["o1", -1, "w1"]]}, "placement", "primaries: o1[-1] on w1: partitions are"),
        (
            {"primaries": [["o1", 0, "w1"], ["o1", 0, "w2"]]},
            "placement", "primaries: o1[0] on w2: it is on w1 already",
        ),
        ({"primaries": [], "replicas": []}, "mttf", "no partitions, or times of workers too long"),
        ({"worker_mttf_s": 1e308}, "mttf", "no partitions, or times of workers too long"),
    ],
)  # fmt: skip
def test_placements_that_cannot_be_are_named(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    verb: str,
    shown: str,
) -> None:
    (files / "placement.json").write_text(json.dumps({**PLACEMENT, **change}))
    assert run(["plan", verb, "--input", "placement.json"]) == 1
    assert shown in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_a_gain_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "now.json").write_text(json.dumps({"budget": 1, "replicate": [["o1", 0]]}))
    flags = ["--plan", "now.json", "--rates", "topology.json", "--moves", "1", "--gain", "nan"]
    assert run(["plan", "adapt", *flags]) == 2
    assert "the gain that a change must bring is nan: 0 to 1" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[" * 100_000, "a: " + "9" * 5000, "a: 2001-99-99", "a: \x00"])
def test_a_file_that_cannot_be_read_is_named(
    files: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (files / "topology.json").write_text(text)
    assert run(["plan", "fidelity", "--topology", "topology.json"]) == 1
    assert "topology.json: " in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_recovery(capsys: pytest.CaptureFixture[str]) -> None:
    for algorithm in ("dp", "best-density", "oc"):
        found = answer(capsys, "recovery", "--input", "failure.json", "--algorithm", algorithm)
        assert found.pop("elapsed_ms") >= 0
        assert found == {
            "algorithm": algorithm, "recover": ["p1"], "queries": ["q1"], "priority": 3,
            "cost": 0.2,
        }  # fmt: skip


COUNTED = {
    "operators": [
        {"name": "lines", "parallelism": 2},
        {"name": "counts", "parallelism": 2, "output_rates": [1.0, 1.0]},
    ],
    "edges": [{"from": "lines", "to": "counts", "substreams": [[0, 0, 4.0], [1, 1, 1.0]]}],
}


def test_recovery_of_a_topology(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Costs are those of the rows, the busiest partition 1 core, or those that are given."""
    (files / "a.json").write_text(json.dumps(COUNTED))
    (files / "loads.json").write_text('{"lines": [0.1, 0.5], "counts": [0.1, 0.5]}')
    everything = json.dumps([[name, p] for name in ("lines", "counts") for p in (0, 1)])
    flags = ("recovery", "--topology", "a.json", "--failed", everything, "--free")
    found = answer(capsys, *flags, "1")
    assert (found["recover"], found["queries"]) == (["lines[1]", "counts[1]"], ["counts[1]"])
    assert found["cost"] == pytest.approx(0.5)
    priorities = ("--priorities", '{"counts": [5, 1]}')
    assert answer(capsys, *flags, "2", *priorities)["queries"] == ["counts[0]"]
    assert answer(capsys, *flags, "1", "--loads", "loads.json")["queries"] == ["counts[0]"]
    replicated = ("--replicated", '[["lines", 0]]')
    assert answer(capsys, *flags, "1", *replicated, *priorities)["recover"] == ["counts[0]"]


def test_recovery_of_jobs_that_share(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (files / f"{name}.json").write_text(json.dumps(COUNTED))
    jobs = ("recovery", "--topology", "a.json", "--topology", "b.json", "--free", "3")
    apart = ("--failed", '[["a/lines", 0], ["a/counts", 0], ["b/lines", 0], ["b/counts", 0]]')
    assert answer(capsys, *jobs, *apart)["queries"] == ["a/counts[0]"]
    shared = ("--shared", "lines", "--failed", '[["lines", 0], ["a/counts", 0], ["b/counts", 0]]')
    found = answer(capsys, *jobs, *shared)
    assert found["recover"] == ["lines[0]", "a/counts[0]", "b/counts[0]"]
    assert found["priority"] == 2


WHOLE = ["--topology", "a.json", "--failed", '[["lines", 0]]', "--free", "1"]


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        ([], 2, "give --input FILE, or --topology FILE with --failed and --free"),
        (["--input", "f", "--topology", "f"], 2, "give --input FILE, or --topology FILE"),
        (["--input", "failure.json", "--free", "1"], 2, "--free goes with --topology"),
        (WHOLE[:4], 2, "--free is missing"),
        (WHOLE[:2] + WHOLE[4:], 2, "--failed is missing"),
        ([*WHOLE, "--failed", "[[0]]"], 2, "--failed '[[0]]': expected JSON like"),
        ([*WHOLE, "--priorities", '{"counts": "high"}'], 2, 'expected JSON like {"top": 3}'),
        ([*WHOLE, "--priorities", '{"count": 1}'], 1, "no operator count; there are lines, counts"),
        ([*WHOLE, "--failed", '[["counts", 2]]'], 1, "operator counts has partitions 0 to 1"),
        ([*WHOLE, "--free", "nan"], 1, "free is nan"),
        ([*WHOLE, "--shared", "lines"], 2, "--shared lines: there is one --topology"),
        ([*WHOLE, "--topology", "a.json"], 2, "--topology: 2 are called a"),
        ([*WHOLE, "--topology", "b.json", "--rates", "r"], 2, "--rates r: goes with one"),
        ([*WHOLE, "--topology", "b.json", "--shared", "x"], 1, "shared operator x: none of a, b"),
    ],
)
def test_a_recovery_that_cannot_be_is_named(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, shown: str
) -> None:
    for name in ("a", "b"):
        (files / f"{name}.json").write_text(json.dumps(COUNTED))
    assert run(["plan", "recovery", *arguments]) == code
    assert shown in capsys.readouterr().err


def test_checkpoint(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [90, 30, 90, 60, 90, 50, 95, 70, 90]
    rows = "".join(f"{t},a,{size}\n" for t, size in enumerate(sizes))
    (files / "sizes.csv").write_text("time_s,operator,bytes\n" + rows)
    found = answer(capsys, "checkpoint", "--sizes", "sizes.csv", "--period", "4")
    assert found["oracle"] == [{"time_s": 1.0, "bytes": 30.0}, {"time_s": 5.0, "bytes": 50.0}]
    assert found["fixed"] == [{"time_s": 4.0, "bytes": 90.0}, {"time_s": 8.0, "bytes": 90.0}]
    assert [len(plan) for plan in found.values()] == [2, 2, 2, 2]


@pytest.mark.usefixtures("files")
def test_placement_and_how_long_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    placed = answer(capsys, "placement", "--input", "placement.json")
    assert placed == {"replicas": PLACEMENT["replicas"]}
    assert answer(capsys, "mttf", "--input", "placement.json")["mttf_s"] == pytest.approx(1e5)


def test_a_plan_is_adapted_to_new_rates(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = answer(capsys, "replication", "--topology", "topology.json", "--budget", "3")
    (files / "now.json").write_text(json.dumps(now))
    rates = json.loads(json.dumps(TOPOLOGY))
    rates["edges"][0]["substreams"] = [[0, 0, 9.0], [1, 0, 1.0]]
    (files / "rates.json").write_text(json.dumps(rates))
    flags = ("--plan", "now.json", "--rates", "rates.json", "--moves", "1")
    found = answer(capsys, "adapt", *flags)
    assert (found["start"], found["stop"]) == ([["o1", 0]], [["o1", 1]])
    assert found["fidelity"] == pytest.approx(9 / 10 * 3 / 5)


@pytest.mark.usefixtures("files")
def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "replication", "--topology", "topology.json", "--budget", "3"]) == 0
    assert "replicate                 o1[1], o2[0], o3[0]" in capsys.readouterr().out
    assert run(["plan", "placement", "--input", "placement.json"]) == 0
    assert "o1[0] on w2, o1[1] on w1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "arguments", "code", "shown"),
    [
        ({"edges": []}, ["fidelity"], 1, "operator o1 has no consumers: give its output_rates"),
        ({"nodes": []}, ["fidelity"], 1, "topology.json: nodes: Extra inputs are not permitted"),
        ({"operators": 1}, ["fidelity"], 1, "topology.json: operators: Input should be a valid"),
        ({}, ["fidelity", "--failed", "o1"], 2, "--failed 'o1': expected JSON like"),
        ({}, ["fidelity", "--failed", '[["o1", 1e999]]'], 2, "expected JSON like"),
        ({}, ["fidelity", "--failed", '[["o1", 0.5]]'], 2, "expected JSON like"),
        ({}, ["fidelity", "--failed", '[["o1", 7]]'], 1, "o1 has partitions 0 to 1, not 7"),
        ({}, ["replication", "--budget", "6"], 2, "a budget of 6: the topology has 5 partitions"),
    ],
)
def test_what_is_wrong_is_named(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    arguments: list[str],
    code: int,
    shown: str,
) -> None:
    (files / "topology.json").write_text(json.dumps({**TOPOLOGY, **change}))
    assert run(["plan", *arguments, "--topology", "topology.json"]) == code
    assert shown in capsys.readouterr().err


def test_a_kind_that_does_not_fit_its_substreams_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = json.loads(json.dumps(TOPOLOGY))
    wrong["edges"][0]["kind"] = "split"
    (files / "topology.json").write_text(json.dumps(wrong))
    assert run(["plan", "fidelity", "--topology", "topology.json"]) == 1
    assert "o1 -> o3 is declared as split, its substreams are merge" in capsys.readouterr().err


def test_sizes_that_are_none_are_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, shown in (
        ("time,size\n1,2\n", "columns ['time', 'size'], expected time_s, operator, bytes"),
        ("time_s,operator,bytes\n1,a,many\n", "sizes.csv, line 2: could not convert"),
    ):
        (files / "sizes.csv").write_text(text)
        assert run(["plan", "checkpoint", "--sizes", "sizes.csv", "--period", "4"]) == 1
        assert shown in capsys.readouterr().err
    assert run(["plan", "checkpoint", "--sizes", "none.csv", "--period", "4"]) == 1
    assert "none.csv: [Errno 2]" in capsys.readouterr().err


JOB = """
name: views
parallelism: 2
sources:
  lines: {topic: lines, format: text}
operators:
  words: {input: lines, sql: "SELECT explode(split(value, ' ')) AS word FROM input"}
  counts: {input: words, key: word, use: "wordcount:Counts"}
sinks:
  counts: {input: counts, topic: word-counts, format: json, key: word}
"""


def test_a_job_is_a_topology(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "job.yaml").write_text(JOB)
    for path in ("job.yaml", "."):
        found = answer(capsys, "replication", "--topology", path, "--budget", "3")
        assert found["replicate"] == [["lines", 0], ["lines", 1], ["counts", 0]]
        assert found["fidelity"] == pytest.approx(1 / 2)
    (files / "rates.yaml").write_text("lines: [30, 10, 60]\ncounts: [1, 3]\n")
    flags = ("--topology", "job.yaml", "--rates", "rates.yaml")
    found = answer(capsys, "fidelity", *flags, "--failed", '[["lines", 2]]')
    assert found["loss"] == {"lines": [0.0, 0.0, 1.0], "counts": [0.6, 0.6]}
    now = answer(capsys, "replication", *flags, "--budget", "2")
    assert now["replicate"] == [["lines", 2], ["counts", 1]]
    assert now["fidelity"] == pytest.approx(6 / 10 * 3 / 4)
    (files / "now.json").write_text(json.dumps(now))
    (files / "rates.yaml").write_text("lines: [30, 10, 60]\ncounts: [9, 1]\n")
    found = answer(capsys, "adapt", "--plan", "now.json", *flags, "--moves", "2")
    assert (found["start"], found["stop"]) == ([["counts", 0]], [["counts", 1]])


UNION = """
name: union
parallelism: 1
sources:
  a: {topic: a, format: text}
  b: {topic: b, format: text}
operators:
  either: {inputs: {left: a, right: b}, key: value, use: "m:Either"}
sinks:
  either: {input: either, topic: either, format: text, order: free}
"""


@pytest.mark.parametrize(("shown", "kept"), [("", 0.0), ("needs_all_inputs = False", 0.5)])
def test_a_job_declares_what_is_a_union(
    files: Path, capsys: pytest.CaptureFixture[str], shown: str, kept: float
) -> None:
    (files / "job.yaml").write_text(UNION)
    (files / "m.py").write_text(
        f"from perseid.jobs import Operator\nclass Either(Operator):\n    {shown}\n"
        "    def process(self, batch, out): pass\n"
    )
    found = answer(capsys, "fidelity", "--topology", ".", "--failed", '[["a", 0]]')
    assert found["fidelity"] == pytest.approx(kept)


@pytest.mark.parametrize(
    ("job", "rates", "code", "shown"),
    [
        (JOB.replace("lines, sql", "rows, sql"), "{}", 1, "job.yaml:7: operators.words.input"),
        (JOB, "words: [1]", 1, "rates of words: it runs inside lines"),
        (JOB, "lines: 1", 1, "rates.yaml: lines: Input should be a valid list"),
        (json.dumps(TOPOLOGY), "{}", 2, "--rates rates.yaml: job.yaml is no job"),
    ],
)
def test_what_is_wrong_with_a_job_is_named(
    files: Path, capsys: pytest.CaptureFixture[str], job: str, rates: str, code: int, shown: str
) -> None:
    (files / "job.yaml").write_text(job)
    (files / "rates.yaml").write_text(rates)
    flags = ("--topology", "job.yaml", "--rates", "rates.yaml")
    assert run(["plan", "fidelity", *flags]) == code
    assert shown in capsys.readouterr().err
