"""A small job.yaml that tests change, and what its validation finds in the changed text."""

from __future__ import annotations

import pytest

from perseid.errors import BadInputError, RefusedError
from perseid.jobs.model.problems import JobFileErrors, JobFileRefused
from perseid.jobs.validation import parse

BASE = """\
name: job
sources:
  a: {topic: a, format: json, columns: {k: string, n: int64}}
operators:
  o: {input: a, key: k, use: "m:O"}
sinks:
  s: {input: o, topic: out, format: json, key: k}
"""


def errors(text: str) -> list[str]:
    with pytest.raises(JobFileErrors) as caught:
        parse.loads(text)
    assert isinstance(caught.value, BadInputError)
    return str(caught.value).split("\n")


def refused(text: str) -> list[str]:
    with pytest.raises(JobFileRefused) as caught:
        parse.loads(text)
    assert isinstance(caught.value, RefusedError)
    return str(caught.value).split("\n")


def replaced(old: str, new: str, text: str = BASE) -> str:
    assert old in text
    return text.replace(old, new)
