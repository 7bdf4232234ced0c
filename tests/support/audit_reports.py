"""Audits to make reports of: one with every kind of cause, and all that can be."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from perseid.replay.findings import (
    FORMAT,
    Audit,
    Bisection,
    Cause,
    Compared,
    ComparedState,
    Difference,
    Record,
)

HOSTILE = '</code><script>alert("x")</script> @team ``` | [a](javascript:b) & \u202e ]]>'


def difference(
    kind: str, position: int, committed: bytes | None, made: bytes | None, *fields: str
) -> Difference:
    return Difference(
        kind=kind,  # type: ignore[arg-type]
        operator="spent",
        partition=1,
        epoch=77,
        topic="orders-spent",
        topic_partition=1,
        position=position,
        committed=None if committed is None else Record(b"ann", committed, 8000 + position),
        made=None if made is None else Record(b"ann", made),
        fields=fields,
    )


def example(value: bytes = b'{"customer": "ann", "total": 31}') -> Audit:
    """A diverged audit: an operator made another value, one less, one more, and another order."""
    causes = (
        Cause("spent", "value", ("total",), 77, 4, 120, 30, 0.0123,
              (difference("value", 3, value, value + b" ", "total"),
               difference("value", 4, b"\x00\x01\x02", b"\x00\x01\x03"))),
        Cause("spent", "missing", (), 77, 1, 1, 1, 0.00001,
              (difference("missing", 5, value, None),)),
        Cause("spent", "added", (), 78, 1, 1, 1, 1.0, (difference("added", 6, None, value),)),
        Cause("spent", "order", (), 78, 1, 2, 1, 0.5, (difference("order", 7, None, None),)),
    )  # fmt: skip
    return Audit(
        job="orders",
        job_uuid="3f0c2a52-5e4e-4b6f-9d5e-0d6b1c8e7f10",
        revision="r7",
        audited="r8",
        first_epoch=70,
        last_epoch=140,
        from_ms=1_795_000_000_000,
        to_ms=1_795_000_360_000,
        base="checkpoint 68",
        verdict="diverged",
        reasons=("Revision r8 made other outputs of 4 epochs than r7 committed.", "Seen twice."),
        compared=(
            Compared("orders-spent", "records", 120_000, 140),
            Compared("orders-late", "ledger", 800, 140, "Retention removed its records."),
        ),
        causes=causes,
        records_in=1_204_332,
        epochs=71,
        seconds=12.4,
        time_ms=1_795_000_999_000,
        version="0.1.0",
        environment={"python": "3.11.9", "pyarrow": "22.0.0"},
        recorded={"python": "3.11.9", "pyarrow": "21.0.0"},
    )


def with_states() -> Audit:
    """An audit that found the state alone to differ, by a bisection."""
    sample = replace(
        difference("value", 0, None, None, "total"),
        topic="", topic_partition=0, epoch=120, state="totals",
        committed=Record(b"user=ann,day=3", b'{"total": 31}'),
        made=Record(b"user=ann,day=3", b'{"total": 30}'),
    )  # fmt: skip
    return replace(
        example(),
        causes=(Cause("spent", "value", ("total",), 120, 1, 1, 1, 0.25, (sample,), "totals"),),
        states=(
            ComparedState(100, 4, 1_200, 0),
            ComparedState(120, 3, 1_204, 1, "operator spent, partition 2: a part is damaged"),
        ),
        bisection=Bisection(1, 140, 7, (), None, ("21:40",)),
    )  # fmt: skip


_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_STATES = st.sampled_from(["", "totals"])
_DIFFERENCES = st.builds(Difference, state=_STATES)
_CAUSES = st.builds(
    Cause, keys_share=_FINITE, samples=st.lists(_DIFFERENCES).map(tuple), state=_STATES
)
AUDITS = st.builds(
    Audit,
    causes=st.lists(_CAUSES, max_size=3).map(tuple),
    states=st.lists(st.builds(ComparedState, why=st.text()), max_size=2).map(tuple),
    bisection=st.none() | st.builds(Bisection),
    seconds=_FINITE,
    environment=st.dictionaries(st.text(), st.text(), max_size=3),
    recorded=st.dictionaries(st.text(), st.text(), max_size=3),
    redacted=st.booleans(),
    format=st.just(FORMAT),
)
