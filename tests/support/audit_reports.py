"""Audits to make reports of: one with every kind of cause, and all that can be."""

from __future__ import annotations

from hypothesis import strategies as st

from perseid.replay.findings import FORMAT, Audit, Cause, Compared, Difference, Record

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


_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_CAUSES = st.builds(Cause, keys_share=_FINITE, samples=st.lists(st.builds(Difference)).map(tuple))
AUDITS = st.builds(
    Audit,
    causes=st.lists(_CAUSES, max_size=3).map(tuple),
    seconds=_FINITE,
    environment=st.dictionaries(st.text(), st.text(), max_size=3),
    recorded=st.dictionaries(st.text(), st.text(), max_size=3),
    redacted=st.booleans(),
    format=st.just(FORMAT),
)
