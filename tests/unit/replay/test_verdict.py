"""The verdict of each combination of facts, and its reasons."""

from __future__ import annotations

from itertools import product

import pytest

from perseid.replay.findings import EXIT, Compared, ComparedState
from perseid.replay.verdict import PLACES_MAX, Facts, changes, judged

DIFFERS = "operator sums, partition 0, epoch 12, out[1]"
STATE = "operator sums, partition 0, state total at the checkpoint of epoch 12: 1 entry"
OTHER = {"numpy": "2.3"}


def plain(facts: Facts) -> str:
    """The table of AUDITS.md, line by line."""
    if facts.gone:
        return "input_gone"
    if facts.input_changed:
        return "input_changed"
    if facts.sink_changed:
        return "sink_changed"
    if facts.repeated:
        return "not_deterministic"
    differs = facts.differs or facts.state
    same = facts.audited == facts.revision and facts.repeated == ""
    if differs and same and facts.environment["numpy"] == "2.3":
        return "environment_differs"
    return "diverged" if differs else "equal"


COMBINATIONS = list(
    product(
        ["", "orders[0] begins at 70"], ["", "split 1"], [(), ("out[0]",)], ["", DIFFERS],
        [None, "", "epoch 11"], ["2.1", "2.3"], ["r1", "r2"], ["", STATE],
    )
)  # fmt: skip


def test_every_combination_has_the_verdict_of_the_table() -> None:
    seen = set()
    for gone, changed, sink, differs, repeated, numpy, audited, state in COMBINATIONS:
        facts = Facts(
            "r1", audited, 10, 20, gone, changed, sink, differs, repeated, {"numpy": numpy},
            {"numpy": "2.1"}, state=state,
        )  # fmt: skip
        verdict, reasons = judged(facts)
        assert verdict == plain(facts)
        assert (STATE in " ".join(reasons)) == bool(
            state and verdict not in {"input_gone", "input_changed"}
        )
        assert all(r[0].isupper() and r.endswith(".") for r in reasons), reasons
        seen.add(verdict)
    assert len(seen) == 7
    assert EXIT.keys() < seen


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ["Revision r1 makes all outputs of epochs 10 to 20 again"]),
        ({"audited": "r2"}, ["Revision r2 in the place of r1 makes all outputs"]),
        ({"states": (ComparedState(12, 2, 9, 0), ComparedState(18, 2, 9, 0))},
         ["as they were committed, with the state of the checkpoints of epochs 12, 18."]),
        ({"states": (ComparedState(12, 0, 0, 0, "x.part is missing"),)},
         ["as they were committed.", "with the checkpoint of epoch 12: x.part is missing."]),
        (
            {"state": STATE, "environment": OTHER, "repeated": ""},
            [f"the same outputs, and another state than the job had: {STATE}.", "chance", "not"],
        ),
        ({"gone": "orders[0] begins at offset 70"}, ["cannot be run again: orders[0] begins"]),
        ({"input_changed": "split 1 of epoch 12"}, ["not the one that was recorded: split 1"]),
        (
            {"sink_changed": tuple(f"out[{i}]" for i in range(9)), "differs": DIFFERS},
            ["out[4] and 4 more. Another writer", "differ from the committed ones too"],
        ),
        ({"repeated": "epoch 11", "differs": DIFFERS}, ["Two runs of revision r1", "too"]),
        (
            {"differs": DIFFERS, "environment": OTHER, "recorded": {"numpy": "2.1"},
             "repeated": ""},
            ["operator sums, partition 0, epoch 12, out[1]. The environment is another one: numpy "
             "2.1 recorded, 2.3 here"],
        ),
        (
            {"differs": DIFFERS, "environment": OTHER, "recorded": {"numpy": "2.1"}},
            ["committed", "was not run a second time", "is another one too: numpy 2.1 recorded"],
        ),
        (
            {"differs": DIFFERS, "environment": OTHER},
            ["has other outputs than were committed: operator sums", "was not run a second time",
             "was not recorded"],
        ),
        (
            {"differs": DIFFERS, "environment": OTHER, "recorded": OTHER, "repeated": ""},
            ["committed", "chance is not the cause", "The environment is the recorded one"],
        ),
        (
            {"differs": DIFFERS, "environment": OTHER, "recorded": {"numpy": "2.1"},
             "audited": "r2", "repeated": ""},
            ["Revision r2 in the place of r1 has other", "chance", "another one too: numpy 2.1"],
        ),
        (
            {"compared": (Compared("out", "ledger", 7, 2, "the topic is compacted"),)},
            ["makes all", "Topic out was compared by the ledger alone: the topic is compacted"],
        ),
    ],
)  # fmt: skip
def test_reasons_explain(facts: dict[str, object], words: list[str]) -> None:
    known = {"revision": "r1", "audited": "r1", "first_epoch": 10, "last_epoch": 20}
    _, reasons = judged(Facts(**{**known, **facts}))  # type: ignore[arg-type]
    assert len(reasons) == len(words)
    for word, reason in zip(words, reasons, strict=True):
        assert word in reason


def test_what_one_side_does_not_know_is_no_change() -> None:
    assert changes({}, OTHER) == changes(OTHER, {}) == changes(OTHER, OTHER) == {}
    assert changes({"numpy": "1"}, OTHER) == {"numpy": "1 recorded, 2.3 here"}
    assert PLACES_MAX < 9
