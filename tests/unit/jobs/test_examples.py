"""The shipped jobs are valid, and their operators compute what they describe."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from perseid.errors import BadInputError, RefusedError, UsageError
from perseid.jobs.operations.classes import load_jobs
from perseid.jobs.repository import job_folders, template
from perseid.testing.operators import Harness


@pytest.mark.parametrize("name", job_folders.examples())
def test_examples_are_valid(name: str) -> None:
    with job_folders.validated(job_folders.find(f"example:{name}")) as jobs:
        (job,) = jobs
        assert job.spec.name == name
        python = {n for n, o in job.spec.operators.items() if o.use is not None}
        assert load_jobs(jobs)[name].keys() == python


@pytest.mark.parametrize("splits", [1, 3])
def test_wordcount_counts(splits: int) -> None:
    counts = Harness(job_folders.example("wordcount"), "counts")
    words = {"word": ["b", "a", "b", "c", "a", "b"]}
    first = counts.epoch(words, splits)
    assert {row["word"]: row["n"] for row in first} == {"b": 3, "a": 2, "c": 1}
    assert list(first[0]) == ["word", "n"]
    counts.crash()
    assert counts.epoch({"word": ["a", "d"]}, splits) == [
        {"word": "a", "n": 3}, {"word": "d", "n": 1},
    ]  # fmt: skip


def test_balances_are_the_running_sums_of_a_plain_dictionary() -> None:
    balances = Harness(job_folders.example("balances"), "balances")
    chance = random.Random(7)
    plain: dict[str, int] = {}
    for size in (0, 1, 400, 70_000, 3):
        few = 20 if size < 70_000 else 70_000  # also more keys than 16 bits can number
        rows = [
            {"account": f"a{chance.randrange(few)}", "amount": chance.randint(-9, 9), "sent": i}
            for i in range(size)
        ]
        expected = []
        for row in rows:
            account, amount = row["account"], row["amount"]
            assert isinstance(account, str) and isinstance(amount, int)
            plain[account] = plain.get(account, 0) + amount
            expected.append({**row, "sum": plain[account]})
        columns = {n: [row[n] for row in rows] for n in ("account", "amount", "sent")}
        schema = [("account", pa.string()), ("amount", pa.int64()), ("sent", pa.int64())]
        assert balances.epoch(pa.table(columns, schema=pa.schema(schema))) == expected
        balances.crash()


@pytest.mark.parametrize(
    ("amounts", "shown"),
    [
        ([2**62, 2**62, -(2**62)], "a sum does not fit into int64"),
        ([1, 2.5], "column 'amount': expected int64"),
    ],
)
def test_a_running_sum_that_does_not_fit_is_refused(amounts: list[float], shown: str) -> None:
    balances = Harness(job_folders.example("balances"), "balances")
    with pytest.raises(BadInputError, match=shown):
        balances.epoch({"account": ["a"] * len(amounts), "amount": amounts})


def test_a_column_named_sum_is_refused() -> None:
    balances = Harness(job_folders.example("balances"), "balances")
    with pytest.raises(BadInputError, match="rename it"):
        balances.epoch({"account": ["a"], "amount": [1], "sum": [0]})


def test_enrich_leaves_small_payments_out() -> None:
    enrich = Harness(job_folders.example("enrich"), "enriched")
    payments = {"account": ["a", "b", "c"], "amount": [99, 100, 500], "sent": [1, 2, 3]}
    assert enrich.epoch(payments) == [
        {"account": "b", "amount": 100, "sent": 2, "cents": 10_000, "large": False},
        {"account": "c", "amount": 500, "sent": 3, "cents": 50_000, "large": True},
    ]


def test_pageviews_joins_and_counts() -> None:
    enrich = Harness(job_folders.example("pageviews"), "enriched")
    users = {"user": ["ann"], "country": ["SE"]}
    views = {"user": ["ann", "bob"], "page": ["/", "/x"], "ms": [5, 6]}
    none: dict[str, list[str]] = {"user": [], "country": []}
    first = enrich.epoch({"users": users, "views": views})
    assert [row["country"] for row in first] == ["SE", "unknown"]
    enrich.crash()
    second = enrich.epoch({"users": {"user": ["bob"], "country": ["NO"]}, "views": views})
    assert [row["country"] for row in second] == ["SE", "NO"]
    assert enrich.epoch({"users": none, "views": views}) == second
    countries = Harness(job_folders.example("pageviews"), "countries")
    rows = {"country": ["SE", "NO", "SE"], "ms": [1, 2, 3], "user": ["a"] * 3, "page": ["/"] * 3}
    assert countries.epoch(rows, splits=2) == [
        {"country": "SE", "views": 2, "ms": 4}, {"country": "NO", "views": 1, "ms": 2},
    ]  # fmt: skip


def test_top_words_and_heavy_hitters_are_the_most_frequent_of_a_plain_count() -> None:
    top = Harness(job_folders.example("top-words"), "top")
    heavy = Harness(job_folders.example("heavy-hitters"), "heavy")
    chance = random.Random(5)
    counts: Counter[str] = Counter()
    seen: dict[str, int] = {}
    for _ in range(3):
        words = [f"w{int(chance.paretovariate(0.8)) % 300}" for _ in range(2000)]
        counts.update(words)
        ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        assert top.epoch({"word": words, "scope": ["all"] * 2000}, splits=2) == [
            {"scope": "all", "rank": i, "word": word, "n": n}
            for i, (word, n) in enumerate(ranked, 1)
        ]
        for row in heavy.epoch({"word": words}, splits=2):
            seen.pop(row["word"], None)
            if row["heavy"]:
                seen[row["word"]] = row["n"]
        top.crash()
        heavy.crash()
    # So few words do not meet in all four rows of the sketch: its counts are exact.
    assert seen == {word: n for word, n in counts.items() if n >= 60}


def test_tmi_distinguishes_walking_from_driving_every_ten_minutes() -> None:
    modes = Harness(job_folders.example("tmi"), "modes")
    chance = random.Random(6)
    kinds = {"still": (0, 0), "walk": (5, 20), "bus": (30, 100), "car": (70, 180)}
    moving = [
        (kind, kinds[kind][0] + chance.random(), kinds[kind][1] + chance.random(), second * 1000)
        for second, kind in enumerate(chance.choices(list(kinds), k=600))
    ]
    for at in range(0, 600, 200):
        part = moving[at : at + 200]
        modes.watermark = part[-1][3]
        columns = {
            "speed": [p[1] for p in part], "turn": [p[2] for p in part], "ms": [p[3] for p in part],
        }  # fmt: skip
        assert modes.epoch({"cell": ["c1"] * 200, **columns}) == []
        modes.crash()
    modes.watermark = 600_000
    found = modes.epoch()
    assert modes.rows("points") == []
    sizes = Counter(kind for kind, *_ in moving)
    assert [row["points"] for row in found] == sorted(sizes.values(), reverse=True)
    for kind in kinds:
        speeds = [speed for name, speed, *_ in moving if name == kind]
        nearest = min(found, key=lambda row: abs(row["speed"] - kinds[kind][0]))
        assert nearest["speed"] == pytest.approx(sum(speeds) / len(speeds))
        assert (nearest["cell"], nearest["start"], nearest["end"]) == ("c1", 0, 600_000)


def test_the_harness_names_what_there_is() -> None:
    with pytest.raises(UsageError, match="it has \\['counts'\\]"):
        Harness(job_folders.example("wordcount"), "words")
    with pytest.raises(UsageError, match="rows for each of the inputs"):
        Harness(job_folders.example("pageviews"), "enriched").epoch({"views": {"user": []}})


@pytest.mark.parametrize(
    ("folder", "name", "module"),
    [
        ("my-job", "my-job", "my_job"),
        ("My Job 2", "my-job-2", "my_job_2"),
        ("json", "json", "json_job"),
    ],
)
def test_init_makes_a_valid_job(tmp_path: Path, folder: str, name: str, module: str) -> None:
    made, paths = template.write(tmp_path / folder)
    assert made == name
    assert {p.name for p in paths} == {
        "job.yaml", f"{module}.py", f"test_{module}.py", template.INPUT_FILE,
    }  # fmt: skip
    with job_folders.validated(job_folders.find(str(tmp_path / folder))) as jobs:
        load_jobs(jobs)
    source = (tmp_path / folder / f"{module}.py").read_text().splitlines()
    assert len([line for line in source if line.strip()]) < 20


def test_the_test_of_a_new_job_passes(tmp_path: Path) -> None:
    template.write(tmp_path / "my-job")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "my-job")],
        capture_output=True, text=True, cwd=tmp_path, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("x")
    with pytest.raises(RefusedError, match="is there already"):
        template.write(tmp_path / "there")
    with pytest.raises(UsageError, match="gives no job name"):
        template.write(tmp_path / "123")
