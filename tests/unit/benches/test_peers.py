"""The peers' programs as far as they run without their systems, and what is made of a run."""

from __future__ import annotations

import runpy
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from benches import install, updates, wordcount
from benches.bench_cluster import Place
from benches.catalogue import BENCHES
from benches.peer_sides import TRIGGER_LINES, Spark
from perseid.cli.scenario.bed import Names
from perseid.embedded.cluster import Cluster
from perseid.errors import PermanentError
from perseid.testing.payments import JOBS

RIGHT: dict[str, Any] = {
    "lost": 0, "duplicated": 0, "reordered": 0, "wrong": 0, "examples": [],
    "output_records": 500, "answers_per_s": 12.345, "seconds": 40.0,
}  # fmt: skip


def test_the_peers_answer_as_the_judge_does() -> None:
    peer = runpy.run_path(str(install.PROGRAMS / "answers.py"))
    payments = [{"account": f"a{i % 3}", "amount": 83 * i % 1_000, "sent": i} for i in range(50)]
    balance, enrich = JOBS["balances"](), JOBS["enrich"]()
    totals: dict[str, int] = {}
    for payment in payments:
        account = str(payment["account"])
        totals[account], found = peer["balance"](totals.get(account), dict(payment))
        assert found == balance(payment)
        assert list(found) == ["account", "amount", "sent", "sum"]
        assert peer["enrich"](dict(payment)) == enrich(payment)


@pytest.mark.parametrize("name", sorted({p for b in BENCHES.values() for p in b.peers}))
def test_every_peer_is_pinned(name: str) -> None:
    program = name.partition("-")[0]
    locked = (install.PROGRAMS / f"{program}.txt").read_text()
    assert all(line.count("==") == 1 for line in locked.split())
    assert install.version_of(program, locked)[0].isdigit()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that fetch a peer into an empty cache; none of them is run."""
    monkeypatch.setenv("PERSEID_CACHE", str(tmp_path))
    monkeypatch.setattr(venv, "create", lambda to, with_pip: venv.EnvBuilder().create(to))
    commands: list[list[str]] = []
    monkeypatch.setattr(install, "_run", commands.append)
    return commands


def test_a_peer_that_is_there_is_not_fetched_again(made: list[list[str]]) -> None:
    text: list[str] = []
    first = install.install("loop", text.append)
    assert [command[-1] for command in made] == [str(install.PROGRAMS / "loop.txt")]
    assert first.python.is_file()
    assert install.install("loop", text.append) == first
    assert (len(made), len(text)) == (1, 1)


def test_spark_fetches_its_jars_into_the_folder_that_its_program_reads(
    made: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install.install("spark", print)
    assert made[1] == [
        str(installed.python), str(install.PROGRAMS / "spark_jars.py"), str(installed.ivy),
    ]  # fmt: skip
    place = Place(Cluster(tmp_path / "own"), tmp_path, "k:1", None)  # type: ignore[arg-type]
    names = Names("j")
    (command,) = Spark(installed, place, "wordcount", memory="2g").commands(names)
    program = runpy.run_path(command[1])
    monkeypatch.setattr(sys, "argv", command[1:])
    options = program["_options"]()
    assert (options.kafka, options.source, options.sink) == ("k:1", names.source, names.sink)
    assert options.state == "hdfs"
    assert (options.ivy, options.memory) == (str(installed.ivy), "2g")
    assert (options.max_offsets, options.job) == (TRIGGER_LINES, "wordcount")


COUNTED: dict[str, Any] = {
    "lost": 0, "duplicated": 0, "reordered": 0, "wrong": 0, "examples": [], "output_records": 90,
    "lines_per_s": 10.04, "seconds": 8.0, "lines": 80.0, "messages_out": 60,
}  # fmt: skip


def test_a_row_of_counts_shows_how_many_messages_a_line_takes() -> None:
    assert wordcount.saturated_row("x", COUNTED, 7.5) == {
        "messages_out": 60, "rss_mb": 7.5, "rows_per_s": 10.0, "window_s": 8.0,
        "messages_per_line": 0.75,
    }  # fmt: skip
    short = {**COUNTED, "seconds": 0.0, "lines_per_s": 0.0, "lines": 0.0, "messages_out": 0}
    assert wordcount.saturated_row("x", short, 7.5) == {"messages_out": 0, "rss_mb": 7.5}


@pytest.mark.parametrize("change", [{"lost": 2}, {"duplicated": 1}, {"output_records": 0}])
def test_wrong_counts_end_a_benchmark(change: dict[str, Any]) -> None:
    with pytest.raises(PermanentError, match="x: missing or wrong counts"):
        wordcount.saturated_row("x", {**COUNTED, **change}, 7.5)


def test_a_row_has_a_rate_where_there_is_one() -> None:
    assert updates.row("x", RIGHT, 7.5) == {
        "messages_out": 500, "rss_mb": 7.5, "rows_per_s": 12.3, "window_s": 40.0,
    }  # fmt: skip
    short = {**RIGHT, "seconds": 0.0, "answers_per_s": 0.0}
    assert updates.row("x", short, 7.5) == {"messages_out": 500, "rss_mb": 7.5}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"wrong": 3, "examples": ["wrong: this"]}, "wrong answers: {'wrong': 3}.*this"),
        ({"lost": 1}, "{'lost': 1}"),
        ({"output_records": 0}, "x: missing or wrong answers"),
    ],
)
def test_wrong_answers_end_a_benchmark(change: dict[str, Any], text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        updates.row("x", {**RIGHT, **change}, 7.5)
