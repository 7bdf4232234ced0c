from __future__ import annotations

from pathlib import Path

import pytest

from perseid.cli.scenario.bed import WORDS_IN_PYTHON, Names, Scenario, job_folder
from perseid.errors import PermanentError
from perseid.jobs.model import layout
from perseid.jobs.repository.job_folders import example
from perseid.jobs.validation import parse


def test_the_staged_job_is_the_example_but_for_name_and_topics(tmp_path: Path) -> None:
    names = Names.fresh("demo")
    applied = parse.load(job_folder(tmp_path, names))
    shipped = parse.load(example("wordcount"))
    assert applied.name == names.job
    assert applied.sources["lines"].topic == names.source
    assert applied.sinks["counts"].topic == names.sink
    assert applied.operators == shipped.operators
    assert applied.epoch == shipped.epoch
    assert applied.fault_tolerance == shipped.fault_tolerance
    assert len(layout.build(applied, 1).ledger_tasks) == 4


def test_without_sql_only_the_operator_of_the_words_differs(tmp_path: Path) -> None:
    names = Names.fresh("bench")
    applied = parse.load(job_folder(tmp_path, names, WORDS_IN_PYTHON))
    shipped = parse.load(example("wordcount"))
    assert applied.operators["words"].sql is None
    assert applied.operators["words"].use == "wordcount:Words"
    assert applied.operators["counts"] == shipped.operators["counts"]


@pytest.mark.parametrize("name", ["balances", "enrich"])
def test_every_scenario_gets_topics_of_its_own(tmp_path: Path, name: str) -> None:
    names = Names.fresh("bench", "shared")
    applied = parse.load(job_folder(tmp_path, names, Scenario(name)))
    assert [source.topic for source in applied.sources.values()] == ["shared"]
    assert [sink.topic for sink in applied.sinks.values()] == [names.sink]
    assert applied.operators == parse.load(example(name)).operators


def test_an_edit_that_meets_nothing_is_an_error(tmp_path: Path) -> None:
    scenario = Scenario(edits=(("no such text", ""),))
    with pytest.raises(PermanentError, match="'no such text' 0 times"):
        job_folder(tmp_path, Names.fresh("bench"), scenario)
