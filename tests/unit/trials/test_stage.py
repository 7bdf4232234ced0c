from __future__ import annotations

from pathlib import Path

import pytest

from perseid.cli.trials.stage import WORDS_IN_PYTHON, Names, Trial, job_folder
from perseid.errors import PermanentError
from perseid.jobs.model import layout
from perseid.jobs.repository.job_folders import example
from perseid.jobs.validation import parse


def test_the_staged_job_is_the_example_but_for_name_and_topics(tmp_path: Path) -> None:
    names = Names.fresh("demo")
    staged = parse.load(job_folder(tmp_path, names))
    shipped = parse.load(example("wordcount"))
    assert staged.name == names.job
    assert staged.sources["lines"].topic == names.source
    assert staged.sinks["counts"].topic == names.sink
    assert staged.operators == shipped.operators
    assert staged.epoch == shipped.epoch
    assert staged.fault_tolerance == shipped.fault_tolerance
    assert len(layout.build(staged, 1).ledger_tasks) == 4


def test_without_sql_only_the_operator_of_the_words_differs(tmp_path: Path) -> None:
    names = Names.fresh("bench")
    staged = parse.load(job_folder(tmp_path, names, WORDS_IN_PYTHON))
    shipped = parse.load(example("wordcount"))
    assert staged.operators["words"].sql is None
    assert staged.operators["words"].use == "wordcount:Words"
    assert staged.operators["counts"] == shipped.operators["counts"]


@pytest.mark.parametrize("name", ["balances", "enrich"])
def test_every_trial_gets_topics_of_its_own(tmp_path: Path, name: str) -> None:
    names = Names.fresh("bench", "shared")
    staged = parse.load(job_folder(tmp_path, names, Trial(name)))
    assert [source.topic for source in staged.sources.values()] == ["shared"]
    assert [sink.topic for sink in staged.sinks.values()] == [names.sink]
    assert staged.operators == parse.load(example(name)).operators


def test_an_edit_that_meets_nothing_is_an_error(tmp_path: Path) -> None:
    trial = Trial(edits=(("no such text", ""),))
    with pytest.raises(PermanentError, match="'no such text' 0 times"):
        job_folder(tmp_path, Names.fresh("bench"), trial)
