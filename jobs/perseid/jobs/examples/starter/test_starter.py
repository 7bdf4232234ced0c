"""Runs the operator without Kafka and Spark: `python -m pytest` in this folder."""

from pathlib import Path

from perseid.testing.operators import Harness


def test_totals_continue_after_a_crash() -> None:
    spent = Harness(Path(__file__).parent, "spent")
    assert spent.epoch({"customer": ["ann", "bob", "ann"], "amount": [1, 2, 3]}) == [
        {"customer": "ann", "total": 4},
        {"customer": "bob", "total": 2},
    ]
    spent.crash()
    assert spent.epoch({"customer": ["bob"], "amount": [5]}) == [{"customer": "bob", "total": 7}]
