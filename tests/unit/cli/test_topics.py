"""`perseid topics`: what needs no broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.cli.topic_records import lines_of
from perseid.cli.topic_roles import layout_in_force, of_spec
from perseid.cli.topics import _settings
from perseid.errors import PermanentError, UsageError
from perseid.jobs.model.spec import PlacementSpec
from perseid.jobs.repository.job_folders import example
from perseid.jobs.validation import parse
from perseid.records import JobEntry, Plan


def test_lines_with_and_without_keys(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"a=1=2\r\nb=\n\xff=x")
    assert list(lines_of(str(file), None)) == [(None, b"a=1=2"), (None, b"b="), (None, b"\xff=x")]
    assert list(lines_of(str(file), b"=")) == [(b"a", b"1=2"), (b"b", b""), (b"\xff", b"x")]


def test_a_line_without_its_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(b"a=1\nb\n")
    with pytest.raises(PermanentError, match=r"in.txt:2: no key separator '='"):
        list(lines_of(str(file), b"="))


def test_settings_are_pairs() -> None:
    assert _settings(["retention.ms=5", "x=a=b"]) == {"retention.ms": "5", "x": "a=b"}
    with pytest.raises(UsageError, match="expected KEY=VALUE"):
        _settings(["retention.ms"])


def test_the_topics_of_a_job_and_why() -> None:
    roles = of_spec(parse.load(example("wordcount")))
    assert roles["lines"] == "source lines"
    assert roles["word-counts"] == "sink counts"
    assert roles["perseid.wordcount.ledger"] == "which epochs are committed"
    assert {"perseid.wordcount.tokens", "perseid.wordcount.progress"} <= roles.keys()


def test_a_spread_job_has_buffer_topics_of_the_layout_in_force() -> None:
    spec = parse.load(example("wordcount"))
    assert of_spec(spec, 3) == of_spec(spec)
    spread = spec.model_copy(update={"placement": PlacementSpec(spread=2)})
    assert of_spec(spread) == of_spec(spec)
    name = "perseid.wordcount.buffer.counts.3"
    assert of_spec(spread, 3)[name] == "rows for counts from other fragments"


def test_a_layout_is_in_force_once_the_plan_has_the_revision() -> None:
    entry = JobEntry("job", "u1", "r1", "a1", "running", 1, 0)
    plan = Plan.fused("job", "u1", 1, None, "r1", "a1", 4, 0, 0)
    assert layout_in_force(entry, plan) == 4
    assert layout_in_force(entry, None) is None
    for other in (replace(entry, uuid="u2"), replace(entry, archive="a2")):
        assert layout_in_force(other, plan) is None
