from __future__ import annotations

from typing import Any

from benches.measuring import rows
from benches.recovery import Settings
from benches.results import median_row, ratios


def test_median_row_takes_medians_of_numbers_and_keeps_texts() -> None:
    runs = [
        {"system": "a", "rows_per_s": 10.0, "ok": True, "messages_out": 5},
        {"system": "a", "rows_per_s": 30.0, "ok": True, "messages_out": 7},
        {"system": "a", "rows_per_s": 11.0, "ok": False},
    ]
    assert median_row(runs) == {
        "system": "a",
        "rows_per_s": 11.0,
        "ok": False,
        "messages_out": 6.0,
        "runs": 3,
    }


def test_ratio_is_the_median_of_ratios_within_a_run() -> None:
    assert ratios([10.0, 100.0, 30.0], [5.0, 100.0, 10.0]) == 2.0
    assert ratios([1.0], [0.0]) is None


def test_rows_compare_ours_with_each() -> None:
    runs = {
        "perseid": [{"system": "perseid", "rows_per_s": 150.0, "p50_ms": 300.0}],
        "spark": [{"system": "spark", "rows_per_s": 75.0, "p50_ms": 750.0}],
    }
    ours, theirs = rows(runs)
    assert (ours["ratio"], ours["p50_ratio"]) == (1.0, 1.0)
    assert (theirs["ratio"], theirs["p50_ratio"]) == (2.0, 0.4)


def test_a_column_that_only_one_side_has_gives_no_ratio() -> None:
    one_sided = {"a": [{"system": "a", "rows_per_s": 1.0}], "b": [dict[str, Any](system="b")]}
    assert "ratio" not in rows(one_sided)[1]


def test_the_state_has_the_size_asked_for() -> None:
    assert Settings(state_bytes=100_000_000).state_lines * 10 * 100 == 100_000_000
