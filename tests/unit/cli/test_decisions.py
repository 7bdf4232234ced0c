"""`perseid decisions`: what it lists, what a replay prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseid.coordinator.decision_log.files import FOLDER
from perseid.coordinator.decision_log.lines import (
    Decided,
    End,
    Head,
    digests,
    end_line,
    event_line,
    head_line,
)
from perseid.coordinator.events import ProgressLost
from perseid.records import Assignment, Deployment
from support.coordinator_steps import JOB, leading, one_job
from support.coordinator_steps import run as epochs
from support.decisions import written

Run = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a cluster whose coordinator c1 led, and then c2."""
    logs = tmp_path / "logs"
    settings = Deployment(
        kafka="k:9092", zookeeper="z:2181", redis="redis://r:6379/0", store=str(tmp_path / "store"),
        state=str(tmp_path / "state"), logs=str(logs),
    )  # fmt: skip
    (tmp_path / "deployment.json").write_text(settings.model_dump_json())
    world = one_job()
    for name in ("c1", "c2"):
        leader = leading(world)
        epochs(world, leader, 3)
        written(logs / FOLDER / name, leader.decided, epoch=leader.state.epoch)
    return tmp_path


@pytest.fixture
def first(data: Path) -> Path:
    return data / "logs" / FOLDER / "c1" / "00000001-00001.jsonl"


def test_files_are_listed(run: Run, data: Path, first: Path) -> None:
    shown = run("decisions", "list", "--data", str(data), "--json")
    assert shown["folder"] == str(data / "logs" / FOLDER)
    assert [row["file"] for row in shown["files"]] == [
        "c1/00000001-00001.jsonl", "c2/00000002-00001.jsonl",
    ]  # fmt: skip
    assert shown["files"][0]["bytes"] == first.stat().st_size
    first.write_bytes(first.read_bytes()[:100])  # killed while it began the file
    text = run("decisions", "list", "--data", str(data))
    assert "c2/00000002-00001.jsonl" in text
    assert f"{first}, line 1: expected the first line of a leader's decisions" in text


def test_a_replay_shows_each_fragment_of_a_spread_job(run: Run, tmp_path: Path) -> None:
    """From the state with which a file begins: its core has nothing to decide."""
    world = one_job()
    leader = leading(world)
    epochs(world, leader, 1)
    job = leader.job()
    assert job.plan is not None
    made = tuple(Assignment(str(n), (n,), "w1-1", 1, split=n) for n in (0, 1))
    ownership = replace(
        job.ownership, plan=replace(job.plan, assignments=made), done_by={"0": 1, "1": 0}
    )
    state = leader.state.with_job(replace(job, ownership=ownership))
    event = ProgressLost("other", "of a job that is gone")
    path = tmp_path / "decisions.jsonl"
    decided = Decided(state, event, world.now, state)
    head = Head("1", "c1", 1, 0, state)
    path.write_bytes(head_line(head) + event_line(1, decided) + end_line(End(1, digests(state))))
    shown = run("decisions", "replay", str(path), "--job", JOB)
    assert "fragment 0: counts 0; worker w1-1, generation 1, epoch 1, waiting" in shown
    assert "fragment 1: counts 1; worker w1-1, generation 1, epoch 0, waiting" in shown


def test_a_replay_without_a_difference(run: Run, data: Path, first: Path) -> None:
    shown = run("decisions", "replay", str(first), "--data", str(data), "--json")
    assert (shown["same"], shown["difference"], shown["ending"]) == (True, None, "closed")
    assert shown["last_event"] == sum(shown["events"].values()) > 10
    assert shown["events"]["TokenAppended"] == 3
    text = run("decisions", "replay", "c1/00000001-00001.jsonl", "--data", str(data))
    assert "TokenAppended 3" in text
    assert "the core decides as it is recorded" in text


def test_the_newest_file_is_the_default(run: Run, data: Path) -> None:
    shown = run("decisions", "replay", "--data", str(data), "--json")
    assert (shown["coordinator"], shown["epoch"]) == ("c2", 2)


def test_a_difference(run: Run, data: Path, first: Path) -> None:
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    number = next(i for i, line in enumerate(lines) if "AppendToken" in str(line.get("actions")))
    lines[number]["actions"][-1]["epoch"] = 7
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = run("decisions", "replay", str(first), "--data", str(data), "--json", code=1)
    assert shown["difference"]["n"] == number
    text = run("decisions", "replay", str(first), "--data", str(data), code=1)
    kind = lines[number]["event"]["$"]
    assert f"event {number} ({kind}" in text
    assert "  recorded: AppendToken job=wordcount" in text and " epoch=7" in text
    assert "  replayed: AppendToken job=wordcount" in text and " epoch=1" in text


def test_a_job_after_an_event(run: Run, data: Path, first: Path) -> None:
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    number = max(i for i, one in enumerate(lines) if "TokenAppended" in str(one.get("event")))
    asked = ("decisions", "replay", str(first), "--data", str(data), "--until", str(number))
    job = run(*asked, "--job", JOB, "--json")["job"]
    assert (job["phase"], job["epoch"], job["committed_epoch"]) == ("running", 3, 2)
    assert (job["generation"], job["owner"]) == (1, "w1-1")
    text = run(*asked, "--job", JOB)
    assert f"wordcount after event {number}:" in text
    assert "RESTORING -> RUNNING: its owner runs it" in text
    assert "the jobs are wordcount" in run(*asked, "--job", "other", code=2)


def test_what_cannot_be_replayed(run: Run, data: Path, first: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    text = run("decisions", "replay", str(other), "--data", str(data), code=2)
    assert f"{other}, line 1: expected the first line of a leader's decisions" in text
    assert "`perseid decisions list`" in text
    absent = run("decisions", "replay", "c9/absent", "--data", str(data), code=2)
    assert "c9/absent cannot be read (No such file or directory)" in absent
    content = first.read_bytes()
    first.write_bytes(content[:-30])
    killed = run("decisions", "replay", str(first), "--data", str(data))
    assert "the last line is cut off and left out" in killed


def test_a_deployment_whose_coordinators_never_led(run: Run, data: Path, first: Path) -> None:
    for path in (data / "logs" / FOLDER).glob("*/*"):
        path.unlink()
    assert "no coordinator has led yet" in run("decisions", "list", "--data", str(data))
    assert "start a coordinator" in run("decisions", "replay", "--data", str(data), code=2)
