"""`audit:` of a job file, and that changing it changes no result."""

from __future__ import annotations

import pytest

from perseid.jobs.model import units
from perseid.jobs.operations import change
from perseid.jobs.validation import parse
from support.job_files import errors, replaced

JOB = replaced("name: job\n", "name: job\naudit: {continuous: 1%}\n")


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("100%", 1.0)])
def test_a_share_of_the_epochs(text: str, share: float) -> None:
    assert parse.loads(JOB.replace("1%", text)).audit.continuous == share == units.share(text)


def test_none_is_audited_without_it() -> None:
    assert parse.loads(replaced("name: job\n", "name: job\n")).audit.continuous == 0.0


@pytest.mark.parametrize("text", ["0.01", "101%", "-1%", "all", "[1%]"])
def test_what_is_no_share_is_refused_with_what_to_write(text: str) -> None:
    found = "\n".join(errors(JOB.replace("1%", text)))
    assert found.startswith("job.yaml:2: audit.continuous: ")
    assert "a share from 0% to 100%" in found
    assert 'write `continuous: "1%"`' in found


def test_another_share_gives_the_same_results() -> None:
    old, new = parse.loads(JOB), parse.loads(JOB.replace("1%", "2%"))
    assert change.only_loosens(old, new)
