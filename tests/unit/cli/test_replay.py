"""What `perseid replay --dry-run` shows, and which options exclude each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from perseid.cli.replay import planned_lines
from perseid.replay.planned import Planned, planned
from perseid.replay.ranges import Past, Range
from perseid.topics.chain import Base
from perseid.topics.records import EpochDone, SourceRange, Token
from support.coordinator import job_spec

PLANNED = Planned(
    "shop", "r7", "r8", 100, 200, 1_790_000_000_000, 1_790_000_060_000, "checkpoint 98", 102, 101,
    5_000, 40, 12_340_000, 150.0, ("late", "out"), "",
)  # fmt: skip


def test_it_shows_range_base_cost_and_what_would_be_compared() -> None:
    assert list(planned_lines(PLANNED)) == [
        "shop: epochs 100 to 200 of revision r7, 2026-09-21T14:13:20.000+00:00 to "
        "2026-09-21T14:14:20.000+00:00, audited with r8 from checkpoint 98",
        "would run 102 epochs with at most 5000 records: about 12.3 MB in 2.5 minutes, as 40 "
        "epochs of the job took",
        "would compare 101 epochs of late, out with the ledgers, record by record where they "
        "differ, and the state with the checkpoints that are kept",
        "nothing was run",
    ]


def test_it_shows_what_is_unknown_and_what_is_gone() -> None:
    lines = list(planned_lines(replace(PLANNED, bytes=None, seconds=None, gone="rows is trimmed")))
    assert "nothing is known of bytes and time" in lines[1]
    assert lines[3:] == ["cannot run: rows is trimmed", "nothing was run"]


def test_a_rate_makes_it_longer_and_never_shorter() -> None:
    splits = ((SourceRange("rows", "rows", "id", 0, 0, 100),),)
    tokens = {2: Token(1, "u", 1, 1, "r7", 1, splits, 1_000)}
    span = Range("u", "r7", 1, 1, 1, 0, 1, None, 1_000, 1_000, tokens)
    past = Past(Base("u", 0, 1), True, tokens)
    done = [EpochDone("u", 1, "i", 1, 2, 100, 100, 4_000, bytes_in={"rows": 700})]
    spec = job_spec()

    def seconds(rate: int | None, reports: list[EpochDone]) -> float | None:
        return planned(span, past, reports, spec, "r7", "", rate).seconds

    assert (seconds(None, done), seconds(10, done), seconds(100, done)) == (4.0, 10.0, 4.0)
    assert (seconds(None, []), seconds(10, [])) == (None, 10.0)
    found = planned(span, past, done, spec, "r8", "", None)
    assert (found.bytes, found.records, found.epochs, found.compared) == (700, 100, 1, 1)
    assert (found.base, found.audited, found.topics) == ("scratch", "r8", ("out",))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--seed", "7"), "--seed draws a sample; add --sample such as 1/16"),
        (("--bisect", "--sample", "1/2"), "--bisect searches all intervals: leave out it or"),
        (("--bisect", "--dry-run"), "--bisect: what it runs depends on what it finds"),
    ],
)
def test_options_that_exclude_each_other(
    run: Callable[..., str], options: tuple[str, ...], text: str
) -> None:
    assert text in run("replay", "shop", "--last", "1h", *options, code=2)
