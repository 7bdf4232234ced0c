from __future__ import annotations

import json

import pytest

from perseid.testing.verify import MultisetCheck, Verdict
from perseid.testing.verify.read import Record


def records(ids: list[int], key: bytes | None = b"k") -> list[Record]:
    return [Record(0, i, key, json.dumps({"id": id_}).encode()) for i, id_ in enumerate(ids)]


def judge(sent: list[int], output: list[Record], *, ordered: bool = True) -> Verdict:
    check = MultisetCheck(ordered=ordered)
    check.input(records(sent))
    for record in output:
        check.output(record)
    return check.verdict()


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        pytest.param([1, 2, 3], (0, 0, 0, 0), id="good"),
        pytest.param([1, 3], (1, 0, 0, 0), id="lost-in-the-middle"),
        pytest.param([1, 2, 2, 3], (0, 1, 0, 0), id="duplicated"),
        pytest.param([2, 1, 3], (0, 0, 1, 0), id="reordered"),
        pytest.param([1, 2, 3, 4], (0, 0, 0, 1), id="wrong"),
    ],
)
def test_four_faults(out: list[int], expected: tuple[int, int, int, int]) -> None:
    found = judge([1, 2, 3], records(out))
    assert (found.lost, found.duplicated, found.reordered, found.wrong) == expected
    assert found.ok == (expected == (0, 0, 0, 0))


def test_an_id_sent_twice_must_leave_twice() -> None:
    assert judge([1, 1, 2], records([1, 1, 2])).ok
    assert judge([1, 1, 2], records([1, 2])).lost == 1


def test_order_is_judged_only_where_there_is_a_key() -> None:
    assert judge([1, 2, 3], records([3, 1, 2], key=None)).ok
    assert judge([1, 2, 3], records([3, 1, 2]), ordered=False).ok


def test_undecodable_output_is_wrong_and_undecodable_input_is_an_error() -> None:
    assert judge([1], [*records([1]), Record(0, 5, None, b"?")]).wrong == 1
    with pytest.raises(ValueError, match="has no 'id'"):
        MultisetCheck().input([Record(0, 0, None, b"{}")])
