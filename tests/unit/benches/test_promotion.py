"""The job of `bench promotion` through the harness, its judge, and the parts of its times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from benches import promotion
from perseid.cli.scenario.bed import Names
from perseid.jobs.validation import parse
from perseid.testing.operators import Harness


def test_each_record_comes_out_with_its_number() -> None:
    numbered = Harness(promotion.JOB, "numbered")
    sent = [{"i": i, "k": "abca"[i % 4], "ms": 10 * i} for i in range(12)]
    found = []
    for epoch in (sent[:5], sent[5:]):
        found += numbered.epoch(pa.Table.from_pylist(epoch))
    seen: Counter[str] = Counter()
    expected = []
    for row in sent:
        seen[str(row["k"])] += 1
        expected.append({"i": row["i"], "n": seen[str(row["k"])], "ms": row["ms"]})
    assert sorted(found, key=lambda row: row["i"]) == expected


def test_its_folder_has_other_topics_and_a_replica(tmp_path: Path) -> None:
    names = Names("bench-1")
    spec = parse.load(promotion.job_folder(tmp_path, names))
    topics = spec.sources["visits"].topic, spec.sinks["numbered"].topic
    assert topics == (names.source, names.sink)
    assert spec.fault_tolerance.replicas == "all"


@pytest.mark.parametrize(
    ("found", "lost", "duplicated", "wrong"),
    [
        ([(1, 1), (0, 1), (2, 2)], 0, 0, 0),
        ([(0, 1), (2, 2)], 1, 0, 0),
        ([(0, 1), (1, 1), (2, 2), (2, 2)], 0, 1, 0),
        ([(0, 1), (1, 2), (2, 1)], 0, 0, 2),
        ([(0, 1), (1, 1), (2, 2), (3, 1)], 0, 0, 1),
    ],
)
def test_what_is_lost_doubled_or_wrong(
    found: list[tuple[int, int]], lost: int, duplicated: int, wrong: int
) -> None:
    verdict = promotion.judged([1, 1, 2], found)
    assert verdict == {"lost": lost, "duplicated": duplicated, "wrong": wrong}


def test_the_parts_of_a_kill_make_the_whole() -> None:
    total, *parts = promotion.Moments(1_000, 3_100, 3_400, 4_000).parts_s.values()
    assert total == 3.0
    assert parts == [2.1, 0.3, 0.6]


def test_rows_have_median_percentile_and_maximum() -> None:
    times = [float(n) for n in range(1, 21)]
    first, second = promotion.rows({"a": times, "b": [2.0]}, {"lost": 0})
    assert (first["seconds"], first["p95_s"], first["max_s"]) == (10.5, 19.0, 20.0)
    assert (second["seconds"], second["p95_s"], second["max_s"]) == (2.0, 2.0, 2.0)
    assert first["lost"] == 0 and "lost" not in second


def test_the_parts_of_the_next_replica_make_the_whole() -> None:
    total, *parts = promotion.Protected(1_000, 11_100, 17_400, 40_000, 99).parts_s.values()
    assert total == 39.0
    assert parts == [10.1, 6.3, 22.6]
