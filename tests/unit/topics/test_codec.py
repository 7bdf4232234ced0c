"""Control records: what goes in comes out, and what is damaged or foreign is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import PermanentError
from perseid.records import WHOLE
from perseid.topics import codec
from perseid.topics.records import (
    Begin,
    BufferRecord,
    Claim,
    EpochDone,
    EpochsEqual,
    EventTime,
    EventTimes,
    FragmentState,
    InputCheck,
    LedgerRecord,
    OperatorState,
    PartDone,
    PartFailed,
    Redriven,
    RedrivenLetter,
    Rewind,
    SinkWindow,
    SourceRange,
    Token,
)

LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=20)
FRAGMENT = st.just(WHOLE) | TEXT
CHECKS = st.lists(st.builds(InputCheck, LONG, INT, TEXT, LONG, LONG), max_size=3).map(tuple)
OFFSET = st.integers(0, 2**62)
RANGE = st.builds(SourceRange, TEXT, TEXT, TEXT, st.integers(0, 2**31 - 1), OFFSET, OFFSET)
SPLITS = st.lists(st.lists(RANGE, max_size=3).map(tuple), max_size=3).map(tuple)
WINDOW = st.builds(SinkWindow, TEXT, INT, LONG, LONG, LONG, st.integers(0, 2**64 - 1))
TIMES = st.lists(st.builds(EventTime, TEXT, INT, LONG), max_size=3).map(tuple)
STATES = st.lists(st.builds(OperatorState, TEXT, LONG, LONG), max_size=3).map(tuple)
LETTERS = st.lists(st.builds(RedrivenLetter, INT, LONG, TEXT, INT, LONG, LONG), max_size=3).map(
    tuple
)
STAGES = st.dictionaries(TEXT, LONG, max_size=3)

RECORDS = st.one_of(
    st.builds(Begin, LONG, TEXT, LONG),
    st.builds(Claim, LONG, TEXT),
    st.builds(Rewind, LONG, TEXT, LONG, LONG, TEXT),
    st.builds(
        Token, LONG, TEXT, LONG, LONG, TEXT, INT, SPLITS, LONG,
        st.none() | LONG, st.booleans(), st.booleans(), CHECKS,
    ),
    st.builds(
        EpochDone, TEXT, LONG, TEXT, LONG, LONG, LONG, LONG, LONG, STAGES, LONG, LONG, LONG,
        CHECKS, STATES, STAGES, FRAGMENT,
    ),
    st.builds(EpochsEqual, TEXT, LONG, INT),
    st.builds(EventTimes, TEXT, LONG, LONG, LONG, LONG, TIMES, FRAGMENT),
    st.builds(PartDone, TEXT, LONG, LONG, INT, TEXT, INT, TEXT, LONG, LONG, st.floats(0, 1e6)),
    st.builds(PartFailed, TEXT, LONG, LONG, TEXT, INT, TEXT),
    st.builds(
        FragmentState, TEXT, LONG, TEXT, TEXT, LONG, TEXT, TEXT, st.booleans(), TEXT,
        st.lists(TEXT, max_size=3).map(tuple), FRAGMENT,
    ),
    st.builds(
        LedgerRecord, TEXT, INT, TEXT, INT, LONG, LONG, LONG,
        st.lists(WINDOW, max_size=3).map(tuple),
    ),
    st.builds(Redriven, TEXT, TEXT, LONG, TEXT, LETTERS),
    st.builds(
        BufferRecord, TEXT, TEXT, INT, LONG, LONG, INT, INT, LONG, LONG, INT, INT, LONG,
        st.binary(max_size=40),
    ),
)  # fmt: skip


@given(RECORDS)
def test_what_goes_in_comes_out(record: Any) -> None:
    assert codec.decode(codec.encode(record)) == record


@given(RECORDS, st.data())
def test_a_truncated_record_is_refused(record: Any, data: st.DataObject) -> None:
    whole = codec.encode(record)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(PermanentError):
        codec.decode(whole[:cut])


@given(RECORDS, st.binary(min_size=1, max_size=4))
def test_bytes_after_a_record_are_refused(record: Any, more: bytes) -> None:
    with pytest.raises(PermanentError):
        codec.decode(codec.encode(record) + more)


@pytest.mark.parametrize("data", [b"", b"no record", codec.encode(Redriven("j", "u", 1, "", ()))])
def test_what_is_no_record_of_its_topic_is_named_with_its_place(data: bytes) -> None:
    for decode in (codec.decode_token, codec.decode_progress):
        with pytest.raises(PermanentError, match=r"^t\[0\] at offset 7: "):
            decode("t", 7, data)
    for decode_at in (codec.decode_ledger, codec.decode_buffer):
        with pytest.raises(PermanentError, match=r"^t\[3\] at offset 7: "):
            decode_at(("t", 3), 7, data)


@pytest.mark.parametrize(
    ("record", "stored"),
    [
        (EventTimes("u", 1, 2, 3, 4, ()), "c301c709d9314670a5d102750204060800"),
        (
            FragmentState("u", 1, "w", "running", 4),
            "c301bcea9692d8aaad0f02750202770e72756e6e696e67080000000000",
        ),
        (
            EpochDone("u", 1, "w", 2, 3, 4, 5, 6),
            "c301c1b3bb0a90772a3702750202770406080a0c00000000000000",
        ),
    ],
)
def test_reports_of_a_job_that_is_one_fragment_stay_as_they_were(
    record: EventTimes | FragmentState | EpochDone, stored: str
) -> None:
    """Versions that know no fragments write and read them."""
    assert codec.encode(record).hex() == stored
    assert codec.decode(bytes.fromhex(stored)) == record
    assert record.fragment == WHOLE
    part = dataclasses.replace(record, fragment="f1")
    assert codec.encode(part)[:10] != codec.encode(record)[:10]
    assert codec.decode(codec.encode(part)) == part


def test_only_a_token_that_frees_buffers_names_that() -> None:
    """Other versions of this protocol read all other tokens."""
    token = Token(4, "u", 7, 3, "r1", 2, (), 1000, None, True)
    whole = dataclasses.replace(token, whole=True)
    assert codec.decode(codec.encode(token)) == token
    assert codec.decode(codec.encode(whole)) == whole
    assert codec.encode(token)[:10] != codec.encode(whole)[:10]
    assert len(codec.encode(whole)) == len(codec.encode(token)) + 1


def test_an_unknown_fingerprint_names_the_bytes_and_the_way_out() -> None:
    with pytest.raises(PermanentError, match=r"c3010000000000000000.*another version"):
        codec.decode(b"\xc3\x01" + bytes(8) + b"rest")


def test_every_record_has_a_schema_with_its_fields_in_order() -> None:
    schemas = {s.name: s.parsed for s in sorted(codec._schemas(), key=lambda s: s.has_more)}
    assert set(schemas) == {t.__name__ for t in get_args(codec.Record)}
    for kind in get_args(codec.Record):
        fields = [f["name"] for f in schemas[kind.__name__]["fields"]]
        if kind is Token:
            at = fields.index("topics")
            assert fields[at : at + 2] == ["topics", "reads"]  # as its ranges are packed
            fields[at : at + 2] = ["splits"]
        assert fields == [f.name for f in dataclasses.fields(kind)]


def test_a_token_that_names_10_000_partitions_fits_into_a_record_ten_times() -> None:
    """The first token, and every checkpoint's."""
    ranges = tuple(
        SourceRange(f"source-{p // 2500}", f"topic-{p // 2500}", "Jz0q0vV7R6K0m1g5c8dYtA",
                    p % 2500, 10**9 + 7 * p, 10**9 + 7 * p + p % 90)
        for p in range(10_000)
    )  # fmt: skip
    splits = tuple(ranges[task::8] for task in range(8))
    token = Token(4, "u" * 36, 7, 3, "r" * 40, 2, splits, 1000, None, True)
    data = codec.encode(token)
    assert len(data) < 100_000
    assert codec.decode(data) == token


def test_a_token_of_protocol_3_can_be_read() -> None:
    before = bytes.fromhex(
        "c301350157c151fb8d230802750e060472310402020a6c696e657302740269020a120000d00f02880e010002"
        "0c000a6c696e657308c6010018"
    )
    split = (SourceRange("lines", "t", "i", 1, 5, 9),)
    assert codec.decode(before) == Token(
        4, "u", 7, 3, "r1", 2, (split,), 1000, 900, True, False,
        (InputCheck(6, 0, "lines", 4, 99),), 12,
    )  # fmt: skip


def test_event_times_of_10_000_partitions_fit_into_a_record() -> None:
    """Of sources with the longest name that there can be."""
    times = tuple(EventTime("s" * 63, p, 1_800_000_000_000 + p) for p in range(10_000))
    data = codec.encode(EventTimes("u" * 36, 10**6, 10**9, 10**9, 10**9, times))
    assert len(data) < 1_000_000  # what the client sends at most


def test_the_format_does_not_change_unseen() -> None:
    """Bytes as they stand in topics: a change here breaks every running deployment."""
    claim = codec.encode(Claim(coordinator_epoch=3, leader="c1"))
    assert claim.hex() == "c301" + "eaa97e3f4d71ab95" + "06" + "046331"
    sent = BufferRecord("u", "r", 2, 3, 40, 1, 5, 6, 7, 0, 1, 8, b"rows")
    assert codec.encode(sent).hex() == (
        "c301" + "b124e7936d7ed65b" + "02750272040650020a0c0e00021008726f7773"
    )
