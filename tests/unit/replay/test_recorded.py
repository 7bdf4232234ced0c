"""Which environments count, of ledgers as plain records."""

from __future__ import annotations

import pytest

from perseid.replay.recorded import Environments
from perseid.replay.verdict import changes
from perseid.topics.records import LedgerRecord

A, B = {"numpy": "2.1.0", "cpu": "AVX2"}, {"numpy": "2.2.0", "cpu": "AVX2"}


def record(epoch: int, environment: dict[str, str] | None = None, *, partition: int = 0,
           uuid: str = "u", layout: int = 1) -> LedgerRecord:  # fmt: skip
    return LedgerRecord(uuid, layout, "op", partition, 1, epoch, epoch, (), environment or {})


def taken(*records: LedgerRecord, base: int = 10) -> Environments:
    found = Environments("u", 1, base)
    for one in records:
        found.committed(one)
    return found


def epochs(first: int, last: int, **more: int) -> list[LedgerRecord]:
    return [record(epoch, **more) for epoch in range(first, last + 1)]  # type: ignore[arg-type]


def test_it_holds_up_to_the_next_record_that_names_one() -> None:
    found = taken(record(4, A), *epochs(5, 14), record(15, B), *epochs(16, 20))
    assert found.upto(14) == A
    assert found.upto(15) == {"numpy": "2.1.0 and 2.2.0", "cpu": "AVX2"}


def test_what_ran_before_the_base_does_not_count() -> None:
    assert taken(record(4, A), record(11, B), record(12)).upto(12) == B
    assert taken(record(4, A), record(10, B), record(12)).upto(12) == B


def test_a_claim_changes_nothing() -> None:
    assert taken(record(11, A), record(12), record(12), record(13)).upto(13) == A


def test_every_partition_counts() -> None:
    found = taken(record(11, A), record(11, B, partition=1), record(12), record(12, partition=1))
    assert found.upto(12)["numpy"] == "2.1.0 and 2.2.0"


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(11), record(12, A)],  # written by a version that recorded none
        [record(12, A)],  # the ledger begins later
        [record(11, A), record(11, partition=1)],
        [record(11, A, uuid="v"), record(11, A, layout=2)],
    ],
)
def test_what_is_not_known_of_all_is_not_known(records: list[LedgerRecord]) -> None:
    assert taken(*records).upto(12) == {}


def test_changes_name_what_was_recorded_and_what_is_here() -> None:
    found = taken(record(11, A), record(12, B)).upto(12)
    assert changes(found, A) == {"numpy": "2.2.0 recorded, 2.1.0 here"}
    assert changes(found, {"numpy": "3", "cpu": "AVX2"}) == {
        "numpy": "2.1.0 and 2.2.0 recorded, 3 here"
    }
