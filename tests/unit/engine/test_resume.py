"""From which epoch a fragment resumes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.engine import resume
from perseid.engine.resume import Again, Proceed, Restored, decide
from perseid.errors import PermanentError


def restored(*found: tuple[int, int]) -> dict[int, Restored]:
    """By gid: (epoch, held_from)."""
    return {g: Restored(g, epoch, held, "log") for g, (epoch, held) in enumerate(found)}


def test_a_job_without_state_and_sinks_resumes_after_its_base() -> None:
    assert decide({}, {}, 7) == Proceed(7)


def test_a_fragment_without_state_and_sinks_resumes_after_what_is_complete() -> None:
    """Of a complete checkpoint all was sent, and the token log may begin there."""
    assert decide({}, {}, 7, 9, resends=True) == Proceed(9)
    assert decide({}, {}, 7, 0, resends=True) == Proceed(7)


def test_the_lowest_of_logs_and_ledgers_decides() -> None:
    assert decide(restored((9, 5), (7, 5)), {0: 8, 1: 8}, 0) == Proceed(7)
    assert decide(restored((9, 5), (9, 5)), {0: 9, 1: 8}, 0) == Proceed(8)
    assert decide({}, {0: 8, 1: 6}, 0) == Proceed(6)


def test_a_ledger_ahead_of_the_log_does_not_raise_it() -> None:
    assert decide(restored((5, 6)), {0: 9}, 0) == Proceed(5)


def test_a_ledger_before_a_complete_checkpoint_is_an_error() -> None:
    """Tokens are read from the checkpoint on, so there is none to resume from further back."""
    state = restored((2, 1))
    assert decide(state, {0: 1}, 0) == Proceed(1)
    assert decide(state, {0: 2}, 0, 2) == Proceed(2)
    with pytest.raises(PermanentError, match="ends with epoch 1, and epoch 2 was committed"):
        decide(state, {0: 1}, 0, 2)


def test_one_that_is_ahead_and_cannot_hand_out_again_goes_back() -> None:
    assert decide(restored((9, 8), (6, 7)), {}, 0) == Again((0,), 6)
    assert decide(restored((9, 7), (6, 7)), {}, 0) == Proceed(6)
    assert decide(restored((9, 10), (8, 9), (6, 1)), {2: 8}, 0) == Again((0, 1), 6)


@pytest.mark.parametrize("source, committed", [("log", 8), ("checkpoint:9", 9), ("scratch", 9)])
def test_a_ledger_before_what_was_committed_is_an_error(source: str, committed: int) -> None:
    """State 9 came to be when all had committed 8; a checkpoint of 9 when all had committed 9."""
    found = {0: Restored(0, 9, 1, source)}
    assert isinstance(decide(found, {0: committed, 1: committed}, 0), Proceed)
    with pytest.raises(PermanentError, match=f"task 1: it ends with epoch {committed - 1}"):
        decide(found, {0: committed, 1: committed - 1}, 0)


def test_what_is_at_the_floor_needs_to_hold_nothing() -> None:
    assert decide(restored((6, 7), (6, 7)), {0: 6, 1: 6}, 0) == Proceed(6)


partition = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
    lambda p: (p[0], max(1, p[0] + 1 - p[1]))
)


@given(st.lists(partition, max_size=4), st.dictionaries(st.integers(0, 3), st.integers(0, 9)))
def test_no_task_is_asked_for_an_epoch_that_it_lacks(
    found: list[tuple[int, int]], ahead: dict[int, int]
) -> None:
    committed = max([0, *(epoch - 1 for epoch, _ in found)])
    ledgers = {gid: committed + more for gid, more in ahead.items()}
    verdict = decide(restored(*found), ledgers, 0)
    lowest = min([e for e, _ in found] + list(ledgers.values()), default=0)
    if isinstance(verdict, Proceed):
        assert verdict.epoch == lowest
        assert all(epoch == lowest or held <= lowest + 1 for epoch, held in found)
    else:
        assert verdict.floor == lowest
        assert verdict.gids
        assert all(found[g][0] > lowest and found[g][1] > lowest + 1 for g in verdict.gids)


def test_people_are_reported_how_fast_it_went() -> None:
    restored = {
        g: Restored(g, 7, 8, source, rows=1_500_000, bytes=30_000_000)
        for g, source in enumerate(("log", "checkpoint:7"))
    }
    assert resume.summary(restored, 2.0) == (
        "checkpoint:7, log (3,000,000 rows, 60.0 MB in 2.0 s: 1,500,000 rows/s, 30.0 MB/s)"
    )
    assert resume.summary({}, 2.0) == ""


@pytest.mark.parametrize(
    "state, ledgers, complete, resumes",
    [
        (((6, 4), (6, 4)), {1: 6}, 0, 5),  # 6 is done, and may not have been sent
        (((6, 4), (7, 4)), {1: 6}, 3, 5),
        (((6, 4), (6, 4)), {1: 6}, 6, 6),  # a complete checkpoint: all of 6 was sent
        (((4, 5), (4, 5)), {1: 7}, 6, 4),  # from an older checkpoint, whose epoch was sent
    ],
)
def test_a_fragment_that_sends_to_others_repeats_its_last_epoch(
    state: tuple[tuple[int, int], ...], ledgers: dict[int, int], complete: int, resumes: int
) -> None:
    found = restored(*state)
    assert decide(found, ledgers, 2, complete, resends=True) == Proceed(resumes)


def test_a_fragment_does_not_repeat_what_is_not_its_own() -> None:
    assert decide(restored((2, 3)), {}, 2, resends=True) == Proceed(2)


def test_outputs_that_are_to_be_sent_again_must_be_held() -> None:
    assert decide(restored((6, 7), (6, 4)), {}, 0, resends=True) == Again((0,), 5)


def test_a_replica_may_be_ahead_of_all_ledgers() -> None:
    """Of its state nothing is known to be committed, but what a complete checkpoint has."""
    found = {0: Restored(0, 9, 1, resume.UNCOMMITTED)}
    assert decide(found, {0: 4, 1: 5}, 0, 4) == Proceed(4)
    with pytest.raises(PermanentError, match="ends with epoch 4, and epoch 5 was committed"):
        decide(found, {0: 4, 1: 5}, 0, 5)
