"""Refused records: what the user sees, and the dead letters' headers."""

from __future__ import annotations

from perseid.worker.dead_letters.refused import SCHEMA, Refused, headers, to_table

BAD = Refused("lines", 2, 40, b"k", b"\xff", "BadInputError", "not valid UTF-8")


def test_the_text_names_place_reason_and_what_to_do() -> None:
    text = BAD.explain()
    assert text.startswith("topic lines, partition 2, offset 40: not valid UTF-8.")
    assert "errors: {tolerance: all}" in text
    assert "perseid jobs apply" in text


def test_a_table_keeps_the_original_bytes() -> None:
    table = to_table([BAD, Refused("lines", 0, 1, None, None, "BadInputError", "null")])
    assert table.schema == SCHEMA
    assert table["value"].to_pylist() == [b"\xff", None]
    assert to_table([]).schema == SCHEMA


def test_headers_are_those_of_kafka_connect() -> None:
    (row,) = to_table([BAD]).to_pylist()
    assert dict(headers(row, "job", 12)) == {
        "__connect.errors.topic": b"lines",
        "__connect.errors.partition": b"2",
        "__connect.errors.offset": b"40",
        "__connect.errors.connector.name": b"job",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.exception.class.name": b"BadInputError",
        "__connect.errors.exception.message": b"not valid UTF-8",
        "perseid.epoch": b"12",
    }
