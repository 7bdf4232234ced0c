"""job.yaml: the event time of sources, and the fields of Avro sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.jobs.model.layout import build
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.model.spec import EventTimeSpec
from perseid.jobs.validation import parse
from support.job_files import errors, replaced


@pytest.mark.parametrize(
    ("block", "wanted"),
    [
        ("{column: n}", EventTimeSpec(column="n")),
        ('{column: n, watermark: "5s", late: update}',
         EventTimeSpec(column="n", delay_ms=5000, late="update")),
        ("{column: timestamp}", EventTimeSpec(column="timestamp")),  # of the Kafka record
    ],
)  # fmt: skip
def test_event_time_of_a_source(block: str, wanted: EventTimeSpec) -> None:
    spec = parse.loads(replaced("topic: a,", f"topic: a, eventTime: {block},"))
    assert spec.event_times == {"a": wanted}
    assert (spec.dead_letters, "out" in spec.written_topics) == (None, True)


def test_late_rows_may_be_dead_letters_of_a_job_that_tolerates_no_bad_ones() -> None:
    late = replaced("topic: a,", "topic: a, eventTime: {column: n, late: dlq},")
    spec = parse.loads(late)
    assert (spec.errors.tolerance, spec.dead_letters) == ("none", "perseid.job.dlq")
    assert spec.written_topics == {"out": 1, "perseid.job.dlq": 1}
    assert [t.operator for t in build(spec, 1).tasks] == ["dead-letters", "o"]
    named = late + "errors: {deadletterqueue: {topic: mine}}\n"
    assert parse.loads(named).dead_letters == "mine"


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (
            "{column: k}",
            "sources.a.eventTime.column: found 'k' of type string, expected a column "
            "of type timestamp or int64 (milliseconds since 1970); write `n`",
        ),
        ("{column: m}", "found 'm', expected a column of type timestamp or int64"),
        ("{column: offset}", "found 'offset', expected a column of type timestamp"),
        ("{watermark: 5s}", "sources.a.eventTime.column: is missing"),
        ("{column: n, watermark: 5}", "sources.a.eventTime.watermark: found 5, expected"),
        ('{column: n, watermark: "31d"}', "expected a duration from 0s to 86400s"),
        ("{column: n, late: dropp}", "expected drop, dlq or update; write `late: drop`"),
        ("{column: n, lateness: 1}", "lateness: found an unknown key"),
    ],
)
def test_mistakes_of_event_time(block: str, shown: str) -> None:
    (text,) = errors(replaced("topic: a,", f"topic: a, eventTime: {block},"))
    assert shown in text, text
    assert text.startswith("job.yaml:3: ")


def test_text_has_no_event_time_but_that_of_the_record() -> None:
    text = replaced("json, columns: {k: string, n: int64}", "text, eventTime: {column: n}")
    found = [e for e in errors(text) if "eventTime" in e]
    assert "write `timestamp`, which is the time of the Kafka record" in found[0]


def test_event_time_of_avro_is_looked_up_in_its_schema(tmp_path: Path) -> None:
    fields = [
        {"name": "k", "type": "string"}, {"name": "n", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]  # fmt: skip
    schema = {"type": "record", "name": "A", "fields": fields}
    (tmp_path / "a.avsc").write_text(json.dumps(schema))
    (tmp_path / "m.py").write_text("")
    avro = "format: avro, schema: a.avsc, eventTime: {column: COLUMN}"
    for column, shown in (("n", ""), ("at", ""), ("timestamp", ""), ("k", "of type string")):
        (tmp_path / "job.yaml").write_text(
            replaced("format: json, columns: {k: string, n: int64}", avro).replace("COLUMN", column)
        )
        if not shown:
            assert parse.load(tmp_path).event_times["a"].column == column
            continue
        with pytest.raises(JobFileErrors, match=shown):
            parse.load(tmp_path)


UNREADABLE = [
    {"name": "k", "type": "string"},
    {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["A"]}},
    {"name": "address", "type": {"type": "record", "name": "D", "fields": []}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "id", "type": ["string", "long"]},
    {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal",
                                         "precision": 10, "scale": 2}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]  # fmt: skip
WRONG = "status (enum), address (record), tags (array), id (a union of long, string), amount "


@pytest.mark.parametrize(
    ("more", "remedy"),
    [("", "write `format: bytes` and decode the records in a Python operator"),
     (", registry: main", "leave them out of a.avsc: what the records have besides its fields is")],
)  # fmt: skip
def test_all_avro_fields_that_a_source_cannot_read_are_named_with_the_line(
    tmp_path: Path, more: str, remedy: str
) -> None:
    schema = {"type": "record", "name": "A", "fields": UNREADABLE}
    (tmp_path / "a.avsc").write_text(json.dumps(schema))
    (tmp_path / "m.py").write_text("")
    avro = f"format: avro, schema: a.avsc{more}"
    (tmp_path / "job.yaml").write_text(
        replaced("format: json, columns: {k: string, n: int64}", avro)
    )
    with pytest.raises(JobFileErrors) as caught:
        parse.load(tmp_path)
    (text,) = str(caught.value).splitlines()
    assert text.startswith(
        f"job.yaml:3: sources.a.schema: a.avsc has fields that a source cannot read: {WRONG}"
        "(decimal), day (date); expected string, bytes,"
    )
    assert remedy in text
    sink = {"type": "record", "name": "A", "fields": UNREADABLE[:2]}
    (tmp_path / "a.avsc").write_text(json.dumps(sink))
    (tmp_path / "job.yaml").write_text(
        replaced("topic: out, format: json", "topic: out, format: avro, schema: a.avsc")
    )
    assert parse.load(tmp_path).sinks["s"].format == "avro", "rows are written with all types"
