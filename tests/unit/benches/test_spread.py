"""The job of `bench spread` through the harness, how it is cut, and its longest gap."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benches import spread
from perseid.cli.scenario.bed import Names
from perseid.errors import PermanentError
from perseid.jobs.model.layout import build
from perseid.jobs.model.spread import spread_of
from perseid.jobs.validation import parse
from perseid.testing.operators import Harness


def test_every_count_passes_through_the_second_level() -> None:
    words, counts, endings = (Harness(spread.JOB, n) for n in ("words", "counts", "endings"))
    truth: Counter[str] = Counter()
    last: dict[str, int] = {}
    for lines in (["word1 word21 word1", "@17 word21"], ["word21 word9"]):
        truth.update(word for line in lines for word in line.split())
        split = words.epoch({"value": lines})
        counted = counts.epoch({"word": [row["word"] for row in split], "n": [1] * len(split)})
        names = ("word", "n", "ending")
        shown = endings.epoch({name: [row[name] for row in counted] for name in names})
        last.update({row["word"]: row["n"] for row in shown})
    assert last == truth


def test_its_folder_is_cut_into_as_many_fragments_as_asked(tmp_path: Path) -> None:
    names = Names("bench-1")
    spec = parse.load(spread.job_folder(tmp_path, names, 3))
    found = spread_of(spec, build(spec, 1))
    assert found is not None
    assert [len(share.gids) for share in found.shares] == [2, 2, 2]
    assert (spec.sources["lines"].topic, spec.sinks["counts"].topic) == (names.source, names.sink)


def test_a_gap_is_the_longest_that_has_a_part_after_the_kill() -> None:
    shown = [0, 5_000, 5_100, 9_000, 9_050, 30_000, 60_000]
    assert spread.longest_gap_s(shown, 5_200, 10_000) == 20.95
    assert spread.longest_gap_s(shown, 5_050, 9_040) == 3.9
    with pytest.raises(PermanentError, match="before or after the kill at 70000 ms"):
        spread.longest_gap_s(shown, 70_000, 80_000)
