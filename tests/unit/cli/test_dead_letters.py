"""Dead letters: what headers contain, which are chosen, and which cannot go back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from perseid.cli import dead_letters
from perseid.cli.dead_letters import Choice, Letter, Origin, choice, original, refusal, target
from perseid.errors import UsageError
from perseid.jobs.model.spec import ErrorsSpec, JobSpec, SourceSpec
from perseid.testing.kafka import FakeMessage
from perseid.testing.kafka_model import ModelRecord
from perseid.topics.admin import TopicInfo
from perseid.worker.dead_letters import refused

SPEC = JobSpec(
    name="shop",
    parallelism=1,
    sources={
        "lines": SourceSpec(topic="lines", format="text"),
        "orders": SourceSpec(
            topic="orders", format="json", columns={"user": "string", "n": "int64"}
        ),
        "framed": SourceSpec(
            topic="framed", format="json", columns={"n": "int64"}, registry="main"
        ),
    },
    operators={},
    sinks={},
    errors=ErrorsSpec(tolerance="all", deadletter_topic="shop-dlq"),
)
INFO = TopicInfo("t", "id", partitions=2)


def letter(**row: Any) -> Letter:
    """One as a worker writes it and a consumer gets it."""
    reported = {
        "topic": "lines", "partition": 1, "offset": 7, "key": b"k", "value": b"v",
        "kind": "BadInputError", "reason": "no UTF-8", "operator": None, "input": "input",
        "operator_partition": 0, "trace": "...", **row,
    }  # fmt: skip
    headers = refused.headers(reported, "shop", 9)
    record = ModelRecord(3, reported["key"], reported["value"], headers, 1000)
    return dead_letters.letter_of("shop-dlq", 0, FakeMessage(record))


def test_the_headers_that_workers_write_are_understood() -> None:
    found = letter()
    assert (found.job, found.kind, found.reason) == ("shop", "BadInputError", "no UTF-8")
    assert (found.place, found.time_ms, found.operator) == ((0, 3), 1000, None)
    assert found.origin == Origin("lines", 1, 7)
    of_operator = letter(operator="counts")
    assert (of_operator.operator, of_operator.origin) == ("counts", Origin("lines", 1, 7))
    assert letter(operator="counts", topic="", partition=-1, offset=-1).origin is None


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_headers_of_others_that_make_no_sense_name_no_origin(name: str) -> None:
    found = letter()
    headers = {**found.headers, f"__connect.errors.{name}": "" if name == "topic" else "-1"}
    assert replace(found, headers=headers).origin is None


@pytest.mark.parametrize(
    ("info", "words", "row"),
    [
        (None, "no topic lines any more", {}),
        (TopicInfo("lines", "id", 1), "partitions 0 to 0: it was created again", {}),
        (INFO, "no value", {"value": None}),
        (INFO, "format text", {"operator": "counts"}),
        (INFO, "format json of a schema registry", {"operator": "counts", "topic": "framed"}),
        (INFO, "no source of shop reads other", {"operator": "counts", "topic": "other"}),
        (INFO, "written with your rights", {"topic": "perseid.other.tokens"}),
        (None, "got from another operator",
         {"operator": "counts", "topic": "", "partition": -1, "offset": -1}),
        (None, "name no topic, partition and offset", {"offset": -1}),
    ],
)  # fmt: skip
def test_why_a_letter_cannot_go_back(
    info: TopicInfo | None, words: str, row: dict[str, Any]
) -> None:
    reason = refusal(letter(**row), SPEC, info, transformed=False)
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize("row", [{"value": None}, {"operator": "counts"}])
def test_a_transform_may_make_what_is_not_there(row: dict[str, Any]) -> None:
    assert refusal(letter(**row), SPEC, INFO, transformed=True) is None


@pytest.mark.parametrize("operator", [None, "counts"])
@pytest.mark.parametrize("topic", ["perseid.other.tokens", "orders-of-others", "shop-counts"])
def test_nothing_is_written_to_a_topic_that_the_job_does_not_read(
    topic: str, operator: str | None
) -> None:
    """Who may write dead letters sets in their headers where the records were."""
    row = {"topic": topic} | ({"operator": operator} if operator else {})
    for transformed in (True, False):
        reason = refusal(letter(**row), SPEC, INFO, transformed=transformed)
        assert reason is not None
        assert "would choose the topic that is written with your rights" in reason


def test_originals_go_back_as_they_are_and_rows_without_metadata() -> None:
    assert refusal(letter(), SPEC, INFO, transformed=False) is None
    assert original(letter(value=b"\xff"), SPEC) == b"\xff"
    row = letter(operator="o", topic="orders", value=b'{"n": 2, "offset": 7, "user": "\xc3\xa4"}')
    assert refusal(row, SPEC, INFO, transformed=False) is None
    assert orjson.loads(original(row, SPEC)) == {"user": "\u00e4", "n": 2}
    sent = target(row, b"x")
    assert (sent.topic, sent.partition, sent.key, sent.value) == ("orders", 1, b"k", b"x")


def test_a_record_that_the_topic_would_refuse_is_reported_before() -> None:
    sent = target(letter(), b"x" * 100)
    assert dead_letters.too_large(sent, INFO) is None
    reason = dead_letters.too_large(sent, replace(INFO, message_bytes_max=150))
    assert reason is not None
    assert "max.message.bytes" in reason


def test_letters_are_chosen_by_time_or_by_place() -> None:
    at = letter()  # 0:3, second 1
    assert Choice().takes(at)
    assert choice("1970-01-01T00:00:01", "1970-01-01T00:00:02", None).takes(at)
    assert not choice("1970-01-01T00:00:01.001", None, None).takes(at)
    assert not choice(None, "1970-01-01T01:00:01+01:00", None).takes(at)
    assert choice(None, None, "1:9, 0:2-3").takes(at)
    for others in ("0:4", "0:0-2", "1:3"):
        assert not choice(None, None, others).takes(at)


@pytest.mark.parametrize(
    "options",
    [("yesterday", None, None), (None, "8", None), (None, None, "3"), (None, None, "0:5-4"),
     (None, None, "0:1;2"), ("1970-01-01", None, "0:1")],
)  # fmt: skip
def test_an_empty_choice_is_bad_usage(options: tuple[str | None, ...]) -> None:
    with pytest.raises(UsageError):
        choice(*options)


def test_a_refusal_shows_some_letters_and_the_ways_out() -> None:
    many = [(replace(letter(), offset=n), "why") for n in range(12)]
    text = dead_letters.refused_text("shop", many)
    assert "12 dead letters of shop" in text
    assert "  0:9: why\n  and 2 more" in text
    assert "--transform" in text
    assert "perseid dlq show shop" in text


def test_a_summary_counts_kinds_operators_and_what_was_redriven() -> None:
    found = [letter(), letter(kind="LateRecord", operator="o"), letter(kind="LateRecord")]
    reported = dead_letters.summary(found, lambda place: place == (0, 3))
    assert reported == {"letters": 3, "of_operators": 1, "redriven": 3, "last_ms": 1000,
                    "kinds": {"LateRecord": 2, "BadInputError": 1}}  # fmt: skip
    assert dead_letters.summary([], lambda _: True)["last_ms"] is None
