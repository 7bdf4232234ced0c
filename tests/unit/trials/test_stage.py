from __future__ import annotations

from pathlib import Path

from perseid.cli.trials.stage import Names, wordcount_folder
from perseid.jobs import layout, parse
from perseid.jobs.repository import example


def test_the_staged_job_is_the_example_but_for_name_and_topics(tmp_path: Path) -> None:
    names = Names.fresh("demo")
    staged = parse.load(wordcount_folder(tmp_path, names))
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
    staged = parse.load(wordcount_folder(tmp_path, names, sql=False))
    shipped = parse.load(example("wordcount"))
    assert staged.operators["words"].sql is None
    assert staged.operators["words"].use == "wordcount:Words"
    assert staged.operators["counts"] == shipped.operators["counts"]
