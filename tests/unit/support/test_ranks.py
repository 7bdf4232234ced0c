"""The judge of ranked rows accepts what the job makes, and no row less, more, later or other."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from perseid.testing.operators import Harness
from support.ranks import CODE, JOB, Row, assert_ranked


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], list[Row]]:
    """What is sent in three epochs, and what the job makes of it."""
    folder = tmp_path_factory.mktemp("ranks")
    text = JOB.format(
        name="ranks", parallelism=3, spread=1, replicas=0, buffer_bytes="10GiB", period="3s"
    )
    (folder / "job.yaml").write_text(text)
    (folder / "ranks.py").write_text(CODE)
    first, second = (Harness(folder, name, parallelism=3) for name in ("first", "second"))
    chance = random.Random(5)
    sent = [{"i": i, "a": chance.choice("xyz"), "b": chance.choice("pqr")} for i in range(90)]
    found: list[Row] = []
    for begin in range(0, 90, 30):
        found += second.epoch(
            pa.Table.from_pylist(first.epoch(pa.Table.from_pylist(sent[begin : begin + 30])))
        )
    return sent, found


def test_what_the_job_makes_is_accepted(made: tuple[list[Row], list[Row]]) -> None:
    sent, found = made
    assert len(found) == len(sent) == 90
    assert_ranked(sent, found)


def test_a_fault_is_found(made: tuple[list[Row], list[Row]]) -> None:
    sent, found = made
    of_p = [at for at, row in enumerate(found) if row["b"] == "p"]
    swapped = list(found)
    swapped[of_p[0]], swapped[of_p[1]] = found[of_p[1]], found[of_p[0]]
    forgotten = [row | {"of_b": 1} if at == of_p[-1] else row for at, row in enumerate(found)]
    faults = {
        "lost": found[:-1], "twice": [*found, found[0]], "swapped": swapped,
        "state of a": [found[0] | {"of_a": 7}, *found[1:]], "state of b": forgotten,
    }  # fmt: skip
    for name, wrong in faults.items():
        with pytest.raises(AssertionError):
            assert_ranked(sent, wrong)
            pytest.fail(f"{name} is accepted")
