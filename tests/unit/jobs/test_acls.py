"""The rights that a job needs, and that the commands agree with the document."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perseid.jobs.model.spec import JobSpec, PlacementSpec
from perseid.jobs.operations import acls
from perseid.jobs.validation import parse
from perseid.topics import names

JOB = """\
name: clicks
sources: {in: {topic: seen, format: json, columns: {user: string}}}
operators: {o: {input: in, use: "library:Distinct", key: user, errors: {operator: bisect}}}
sinks: {out: {input: o, topic: unique, format: json, key: user}}
errors: {tolerance: all}
"""
Run = Callable[..., Any]


def granted(rules: tuple[acls.Acl, ...]) -> set[tuple[str, str, str, bool]]:
    return {(o, r.resource, r.name, r.prefixed) for r in rules for o in r.operations}


def test_workers_have_least_rights() -> None:
    found = granted(acls.of_workers(parse.loads(JOB), "User:a"))
    writes = {name for operation, kind, name, _ in found if (operation, kind) == ("Write", "topic")}
    assert writes == {
        "unique", "perseid.clicks.dlq", "perseid.clicks.progress", "perseid.clicks.ledger"
    }  # fmt: skip
    reads = {name for operation, kind, name, _ in found if (operation, kind) == ("Read", "topic")}
    assert reads == {"seen", "perseid.clicks.tokens", "perseid.clicks.ledger"}
    assert ("Write", "transactional-id", "perseid.clicks.", True) in found
    assert {p for *_, p in found if p} == {True} and "Create" not in {o for o, *_ in found}
    assert {(kind, name) for _, kind, name, prefixed in found if prefixed} == {
        ("transactional-id", "perseid.clicks.")
    }


def spread() -> JobSpec:
    return parse.loads(JOB).model_copy(update={"placement": PlacementSpec(spread=2)})


def test_workers_of_a_spread_job_use_its_buffers_and_delete_their_records() -> None:
    fused = granted(acls.of_workers(parse.loads(JOB), "User:a"))
    assert granted(acls.of_workers(spread(), "User:a")) - fused == {
        (operation, "topic", names.buffers("clicks"), True)
        for operation in ("Read", "Write", "Delete", "Describe", "DescribeConfigs")
    }


def test_a_jobs_prefix_is_no_other_jobs() -> None:
    """No name of a job has a dot, so after the name of one there is never more of another."""
    rules = acls.of_workers(spread(), "User:a")
    ids, buffers = ("perseid.clicks-more.1.op.0", names.buffer("clicks-more", "op", 1))
    prefixes = {r.resource: r.name for r in rules if r.prefixed}
    assert not ids.startswith(prefixes["transactional-id"])
    assert not buffers.startswith(prefixes["topic"])
    assert names.buffer("clicks", "op", 1).startswith(prefixes["topic"])


@pytest.mark.security("5.2")
def test_commands_and_document_are_the_same_rules(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    asked = ("jobs", "acls", str(tmp_path), "--coordinator", "User:boss")
    document = run(*asked, "--json")["acls"]
    assert {rule["principal"] for rule in document} == {"User:perseid-clicks", "User:boss"}
    commands = [shlex.split(line, comments=True) for line in run(*asked).splitlines()]
    assert [_parsed(words) for words in commands] == [
        (
            rule["principal"], tuple(rule["operations"]), rule["resource"], rule["name"],
            rule["prefixed"],
        )
        for rule in document
    ]  # fmt: skip


def _parsed(words: list[str]) -> tuple[Any, ...]:
    """A line of the kafka-acls tool."""
    assert words[0] == "kafka-acls.sh" and "--add" in words
    pairs = list(pairwise(words))
    operations = tuple(value for option, value in pairs if option == "--operation")
    (resource,) = [
        (option[2:], value) for option, value in pairs
        if option in {"--topic", "--transactional-id", "--group"}
    ] or [("cluster", acls.CLUSTER)]  # fmt: skip
    principal = dict(pairs)["--allow-principal"]
    prefixed = ("--resource-pattern-type", "prefixed") in pairs
    return (principal, operations, *resource, prefixed)
