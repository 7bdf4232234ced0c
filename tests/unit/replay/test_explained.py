"""The forms of an explanation: nothing of a record's values is in a redacted one."""

from __future__ import annotations

import json

import numpy as np
import orjson
import pyarrow as pa
import pytest

from perseid.replay.explained import (
    Earlier,
    Explained,
    Input,
    Record,
    Through,
    document,
    lines,
    ranges_of,
    rows_of,
    text_of,
    without_values,
)

FOUND = Explained(
    job="views", job_uuid="u", revision="r1", epoch=7, time_ms=1_000, operator="countries",
    partition=1, record=Record("out", 0, 12, "austria", '{"country": "austria"}', 2),
    key=({"country": "austria"},),
    through=(Through("countries", 1, 1, {"input": 3}, "proven"),
             Through("enriched", 0, None, {"views": 3, "users": 0}, "whole")),
    inputs=(Input("views", "views", 0, 3, ((4, 5), (9, 9)), ({"user": "ann", "ms": 4711},)),),
    before={"seen": ()}, after={"seen": ({"key": "austria", "views": 3},)},
    base="checkpoint 4", epochs=3, seconds=0.5,
    earlier=tuple(Earlier(epoch, 2) for epoch in range(20)), notes=("a note",),
)  # fmt: skip


def test_the_text_has_all_facts() -> None:
    text = "\n".join(lines(FOUND))
    for fact in (
        "out[0] offset 12", "2 records of this epoch are equal", "job views, revision r1, epoch 7",
        "operator countries, partition 1", '{"country":"austria"}', "state seen before: no row",
        'state seen after: {"key":"austria","views":3}', "3 of views, 0 of users", "proven",
        "not narrowed", "input records: 3", "offsets 4-5, 9", "40 in 20 epochs", "a note",
        "3 epochs from checkpoint 4",
    ):  # fmt: skip
        assert fact in text, fact


def test_a_redacted_explanation_has_no_value() -> None:
    hidden = without_values(FOUND, b"0123456789abcdef")
    text = json.dumps(document(hidden)) + "\n".join(lines(hidden))
    for value in ("austria", "ann", "4711"):
        assert value not in text
    assert hidden.redacted
    assert "--show-values" in text
    assert hidden.key[0]["country"] == hidden.after["seen"][0]["key"]  # type: ignore[index]
    assert (hidden.inputs[0].ranges, hidden.through) == (FOUND.inputs[0].ranges, FOUND.through)


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [([], ()), ([5], ((5, 5),)), ([1, 2, 3], ((1, 3),)), ([1, 3, 4, 9], ((1, 1), (3, 4), (9, 9)))],
)
def test_offsets_as_ranges(offsets: list[int], ranges: tuple[tuple[int, int], ...]) -> None:
    assert ranges_of(np.array(offsets, np.int64)) == ranges


def test_rows_have_a_json_form_whatever_their_types() -> None:
    times = pa.array([0], pa.timestamp("ms", tz="UTC"))
    table = pa.table({"b": [b"\xff"], "t": times, "l": [[b"x"]], "s": [{"a": 1.5}], "n": [None]})
    (row,) = rows_of(table)
    assert orjson.loads(orjson.dumps(row)) == row
    assert (row["b"], row["l"], row["s"], row["n"]) == ("base64:/w==", ["x"], {"a": 1.5}, None)
    assert (text_of(b"x"), text_of(None)) == ("x", None)
