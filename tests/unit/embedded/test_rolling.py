"""Which processes a rolling restart takes, and in which order."""

from __future__ import annotations

import pytest

from perseid.embedded.rolling import order
from perseid.embedded.table import ProcessSpec
from perseid.errors import RefusedError

SPECS = [
    ProcessSpec(name, kind, [])
    for name, kind in (
        ("kafka", "kafka"), ("c1", "coordinator"), ("c2", "coordinator"), ("w1", "worker"),
        ("w2", "worker"),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("leader", "names", "wanted"),
    [
        ("c1", [], ["c2", "c1", "w1", "w2"]),
        ("c2", [], ["c1", "c2", "w1", "w2"]),
        (None, [], ["c1", "c2", "w1", "w2"]),
        ("c1", ["w2", "c1"], ["c1", "w2"]),
    ],
)
def test_coordinators_come_first_and_the_leader_last_of_them(
    leader: str | None, names: list[str], wanted: list[str]
) -> None:
    assert order(SPECS, leader, names) == wanted


def test_what_cannot_be_restarted_is_refused_with_what_can() -> None:
    with pytest.raises(RefusedError, match=r"'kafka' is no coordinator .* are: c1, c2, w1, w2"):
        order(SPECS, "c1", ["w1", "kafka"])
    with pytest.raises(RefusedError, match="perseid up"):
        order(SPECS[:1], None, [])
