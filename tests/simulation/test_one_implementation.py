"""What the simulation shows, it shows of the modules that users run, and not of copies of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import perseid
from perseid.testing import simulation
from perseid.testing.simulation.scenario import run

FOLDER = Path(inspect.getfile(simulation)).parent
# Every decision of the protocol, from the token to the sink's commit and back from a failure.
PROTOCOL = [
    "perseid.coordinator." + name for name in (
        "adoption", "buffer_bound", "core", "checkpoints", "failing", "invariants", "issue",
        "leadership", "lifecycle", "loading", "log_trimming", "performing", "placement", "progress",
        "replicas", "sources", "splits", "statuses", "switching", "timing", "trimming", "watermark",
    )
] + [
    "perseid.engine." + name for name in (
        "acknowledged", "agreement", "checkpoints", "comparison", "epoch", "feed", "fragment",
        "last_word", "levels", "promotion", "reports", "resume", "task_report", "token_loop",
    )
] + [
    "perseid.worker." + name for name in (
        "checkpoint.parts", "dataflow.barriers", "dataflow.buffered", "dataflow.edges",
        "dataflow.graph", "epoch.inbox", "epoch.outbox", "fragments",
        "dataflow.operators", "dataflow.source", "epoch.feedback", "epoch.partition_state",
        "recovery.migration", "recovery.resplit", "recovery.restore", "sink.audit",
        "sink.committed", "sink.sink_outputs", "sink.transaction",
    )
] + [
    "perseid.state.durability." + name for name in (
        "blob", "checkpoint", "log", "merging", "outputs", "owners",
    )
] + [
    "perseid.topics." + name for name in (
        "buffer_limits", "buffer_topics", "buffers", "chain", "codec", "ledger", "log", "records",
    )
] + ["perseid.registry.facade", "perseid.registry.fenced", "perseid.jobs.model.layout"]  # fmt: skip
# A copy of a decision would have its name. These are what drives decisions, and Spark's part.
DRIVERS = {"Fragment", "Worker", "Coordinator", "run", "main"}
# Also by another name: functions of which all statements are those of production. What a ZooKeeper
# session's end means to a coordinator is its service's, threads and HTTP around it, so a driver's.
COPIED = {"_session_changed"}
COPY_MIN = 200  # characters of a syntax tree: about two statements


def test_a_seed_runs_through_every_module_of_the_protocol() -> None:
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    files = {name: inspect.getfile(importlib.import_module(name)) for name in PROTOCOL}
    kinds = [(0, 1)] * 2 + [(1, 0)] * 4 + [(0, 0)] * 12  # of several fragments, with replicas
    sys.setprofile(note)
    try:
        for seed, (spread, replicas) in enumerate(kinds):
            run(seed, spread=bool(spread), replicas=bool(replicas))
            if seen.issuperset(files.values()):
                break
    finally:
        sys.setprofile(None)
    assert [name for name, file in files.items() if file not in seen] == []


def test_nothing_of_the_protocol_is_defined_a_second_time() -> None:
    real = {n for name in PROTOCOL for n in _defined(importlib.import_module(name).__file__)}
    copies = {n for file in FOLDER.rglob("*.py") for n in _defined(str(file)) if n in real}
    assert copies - DRIVERS == set()


def test_no_function_of_production_is_written_again() -> None:
    areas = [Path(area) for area in perseid.__path__]
    files = [file for area in areas for file in area.rglob("*.py")]
    real = {body for file in files if "testing" not in file.parts for body in _bodies(file)}
    copies = {
        name for file in FOLDER.rglob("*.py")
        for body, name in _bodies(file).items() if body in real and len(body) >= COPY_MIN
    }  # fmt: skip
    assert copies == COPIED


def _bodies(file: Path) -> dict[str, str]:
    """Statements of functions and methods, without docstrings, to names."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef):
            rest = node.body[1:] if ast.get_docstring(node) is not None else node.body
            found["\n".join(map(ast.dump, rest))] = node.name
    return found


def _defined(file: str | None) -> set[str]:
    """Public functions and classes of a module."""
    assert file is not None
    body = ast.parse(Path(file).read_text()).body
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {n.name for n in body if isinstance(n, kinds) and not n.name.startswith("_")}
