"""What `perseid explain` refuses before it looks for a cluster."""

from __future__ import annotations

import pytest

from perseid.cli.main import run


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["out:0"], "expected TOPIC:PARTITION:OFFSET"),
        (["out:0:x"], "expected TOPIC:PARTITION:OFFSET"),
        (["out:0:1", "--key", "ann"], "--key, --epoch and --operator are for a JOB"),
        (["job"], "a job with --key and --epoch"),
        (["job", "--key", "ann"], "a job with --key and --epoch"),
        (["job", "--key", "ann", "--epoch", "0"], "--epoch"),
    ],
)
def test_a_question_that_is_none_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", *words]) == 2
    assert why in capsys.readouterr().err
