"""Which epochs an audit runs: against a plain search for the base, and what is refused in words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import RefusedError
from perseid.records import CheckpointPointer
from perseid.replay.ranges import (
    Estimate,
    Past,
    Range,
    Sample,
    dry_run,
    past,
    resolve,
    sampled,
    window,
)
from perseid.replay.request import Request, SourceOffsets
from perseid.topics.chain import Base
from perseid.topics.records import (
    Begin,
    Claim,
    EpochDone,
    Rewind,
    SourceRange,
    Token,
    TokenRecord,
)

FIRST_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z
EPOCH_MS = 1_000


def read(start: int, end: int, partition: int = 0, topic: str = "orders") -> SourceRange:
    return SourceRange("orders", topic, "id", partition, start, end)


def token(
    epoch: int, previous: int, revision: str = "r1", layout: int = 1, *, uuid: str = "u"
) -> Token:
    """Epoch n reads offsets 10 * n to 10 * n + 9 of orders[0], and nothing of orders[1]."""
    splits = (read(10 * epoch, 10 * epoch + 10),), (read(5, 5, 1),)
    time_ms = FIRST_MS + EPOCH_MS * epoch
    return Token(1, uuid, epoch, previous, revision, layout, splits, time_ms)


def log(kinds: list[tuple[str, int]], *, begin: int = 0) -> list[tuple[int, TokenRecord]]:
    """A Claim, a Begin and a token of each revision and layout."""
    records: list[TokenRecord] = [Claim(1, "l"), Begin(1, "u", begin)]
    records += [token(begin + 1 + i, 1 + i, *kind) for i, kind in enumerate(kinds)]
    return list(enumerate(records))


def trimmed(entries: list[tuple[int, TokenRecord]], epoch: int) -> list[tuple[int, TokenRecord]]:
    """From the token of that epoch on."""
    at = next(i for i, (_, r) in enumerate(entries) if isinstance(r, Token) and r.epoch == epoch)
    return entries[at:]


def pointer(entries: list[tuple[int, TokenRecord]], epoch: int) -> CheckpointPointer:
    [(offset, found)] = [(o, r) for o, r in entries if isinstance(r, Token) and r.epoch == epoch]
    assert isinstance(found, Token)
    return CheckpointPointer(epoch, 1, found.layout, found.revision, offset, "m", 0, 0, 0)


PLAIN = log([("r1", 1)] * 20)


def seen(entries: list[tuple[int, TokenRecord]] = PLAIN, *, is_trimmed: bool = False) -> Past:
    found = past(entries, trimmed=is_trimmed)
    assert found is not None
    return found


def resolved(
    request: Request, held: Past | None = None, *checkpoints: CheckpointPointer,
    committed: int = 20, now_ms: int = FIRST_MS + 30 * EPOCH_MS,
) -> Range:  # fmt: skip
    return resolve(
        request, held or seen(), checkpoints, job="shop", committed_epoch=committed, now_ms=now_ms
    )


KINDS = st.sampled_from([("r1", 1), ("r2", 1), ("r2", 2)])


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, TokenRecord]], int, list[int]]:
    """A token log, the epoch with which it is trimmed (0: not), and epochs with a checkpoint."""
    runs = draw(st.lists(st.tuples(KINDS, st.integers(1, 6)), min_size=1, max_size=5))
    entries = log([kind for kind, size in runs for _ in range(size)])
    last = len(entries) - 2
    cut = draw(st.integers(0, last - 1))
    return entries, cut, draw(st.lists(st.integers(max(1, cut), last), unique=True, max_size=3))


@given(histories(), st.integers(0, 30), st.integers(0, 8))
def test_the_base_is_the_newest_from_which_all_is_of_one_revision(
    history: tuple[list[tuple[int, TokenRecord]], int, list[int]], first: int, more: int
) -> None:
    entries, cut, epochs = history
    held = seen(trimmed(entries, cut) if cut else entries, is_trimmed=bool(cut))
    kinds = {r.epoch: (r.revision, r.layout) for _, r in entries if isinstance(r, Token)}
    last, tip = first + more, max(kinds)
    bases = [
        base for base in [*epochs, *([] if cut else [0])]
        if cut <= base < first and last <= tip
        and len({kinds[e] for e in range(base + 1, last + 1)}) == 1
    ]  # fmt: skip
    checkpoints = [pointer(entries, epoch) for epoch in epochs]
    request = Request(epochs=(first, last))
    try:
        found = resolved(request, held, *checkpoints, committed=tip)
    except RefusedError:
        assert not bases
        return
    assert bases
    assert found.base_epoch == max(bases)
    assert (found.checkpoint is None) == (found.base_epoch not in epochs)
    assert found.base == ("scratch" if found.base_epoch == 0 else f"checkpoint {max(bases)}")
    assert entries[found.base_offset][0] == found.base_offset
    assert [t.epoch for t in found.tokens.values()] == [*range(found.base_epoch + 1, last + 1)]
    assert all(entries[offset][1] == t for offset, t in found.tokens.items())
    assert {(t.revision, t.layout) for t in found.tokens.values()} == {
        (found.revision, found.layout)
    }
    assert (found.first_epoch, found.last_epoch) == (first, last)


def test_a_checkpoint_that_a_previous_revision_made_at_its_end_is_a_base() -> None:
    entries = log([("r1", 1)] * 5 + [("r2", 2)] * 5)
    at_end, before = pointer(entries, 5), pointer(entries, 4)
    found = resolved(Request(epochs=(8, 9)), seen(entries), at_end, before, committed=10)
    assert (found.base_epoch, found.checkpoint, found.redistributed) == (5, at_end, True)
    with pytest.raises(RefusedError, match="cannot be audited: no checkpoint before it"):
        resolved(Request(epochs=(8, 9)), seen(entries), before, committed=10)


def test_a_checkpoint_of_the_first_epoch_itself_is_no_base() -> None:
    newest, older = pointer(PLAIN, 12), pointer(PLAIN, 11)
    assert resolved(Request(epochs=(12, 13)), None, newest, older).base_epoch == 11
    assert resolved(Request(epochs=(13, 14)), None, newest, older).base_epoch == 12


def test_a_checkpoint_of_a_token_that_does_not_count_is_no_base() -> None:
    wrong = replace(pointer(PLAIN, 9), token_offset=999)
    assert resolved(Request(epochs=(12, 13)), None, wrong).base == "scratch"
    right = pointer(PLAIN, 9)
    assert resolved(Request(epochs=(12, 13)), None, wrong, right).base == "checkpoint 9"


NOW_MS = FIRST_MS + 21 * EPOCH_MS


@pytest.mark.parametrize(
    ("request_", "epochs"),
    [
        (Request(epochs=(3, 3)), (3, 3)),
        (Request(epochs=(7, None)), (7, 18)),
        (Request(last_ms=4 * EPOCH_MS), (17, 18)),
        (Request(last_ms=10**9), (1, 18)),
        (Request(from_ms=FIRST_MS + 5 * EPOCH_MS), (5, 18)),
        (Request(from_ms=FIRST_MS + 5 * EPOCH_MS + 1, to_ms=FIRST_MS + 8 * EPOCH_MS), (6, 7)),
        (Request(to_ms=FIRST_MS + 8 * EPOCH_MS + 1), (1, 8)),
        (Request(offsets=SourceOffsets("orders", 0, 59, 59)), (5, 5)),
        (Request(offsets=SourceOffsets("orders", 0, 59, 71)), (5, 7)),
        (Request(offsets=SourceOffsets("orders", 0, 60, 70)), (6, 7)),
    ],
)
def test_what_is_asked_for_as_epochs(request_: Request, epochs: tuple[int, int]) -> None:
    found = resolved(request_, committed=18, now_ms=NOW_MS)
    assert (found.first_epoch, found.last_epoch) == epochs
    assert (found.from_ms, found.to_ms) == tuple(FIRST_MS + EPOCH_MS * e for e in epochs)


CUT = seen(trimmed(PLAIN, 6), is_trimmed=True)
BEGUN_AGAIN = seen(
    [*PLAIN, (22, Begin(1, "v", 20)), (23, token(21, 22, uuid="v")), (24, token(22, 23, uuid="v"))]
)


@pytest.mark.parametrize(
    ("request_", "held", "words"),
    [
        (Request(epochs=(21, 30)), None, ["epoch 30 of shop is not committed", "--epochs 20:20"]),
        (Request(epochs=(40, None)), None, ["epoch 40 of shop is not committed, the last one"]),
        (Request(epochs=(0, 3)), None, ["epoch 0 of shop is before what is kept", "from 1 on"]),
        (
            Request(epochs=(6, 9)),
            CUT,
            ["epoch 6 of shop is before what is kept: the token log begins with epoch 6", "from 7"],
        ),
        (
            Request(from_ms=FIRST_MS),
            CUT,
            ["the time 2026-09-21T14:13:20.000+00:00 of shop is before", "14:13:27.000"],
        ),
        (Request(last_ms=10**8), CUT, ["of shop is before what is kept"]),
        (Request(from_ms=FIRST_MS + 6 * EPOCH_MS), CUT, ["14:13:26.000+00:00 of shop is before"]),
        (Request(epochs=(9, 9)), CUT, ["epoch 9 of shop cannot be audited", "nor the job's start"]),
        (Request(epochs=(20, 21)), BEGUN_AGAIN, ["shop was started again after epoch 20"]),
        (Request(last_ms=10**8), BEGUN_AGAIN, ["shop was started again after epoch 20"]),
        (
            Request(from_ms=FIRST_MS + 10**6),
            None,
            ["no committed epoch of shop has its time", "1 to 20, are from 2026-09-21T14:13:21"],
        ),
        (
            Request(offsets=SourceOffsets("orders", 0, 9, 12)),
            None,
            ["offset 9 of orders[0] is before 10", "shop began to read it there"],
        ),
        (
            Request(offsets=SourceOffsets("orders", 0, 69, 75)),
            CUT,
            ["offset 69 of orders[0] is before 70", "is trimmed", "from 70 on"],
        ),
        (
            Request(offsets=SourceOffsets("orders", 0, 50, 210)),
            None,
            ["offset 210 of orders[0] is not read yet: shop has read it up to 209"],
        ),
    ],
)
def test_what_cannot_be_audited_is_refused(
    request_: Request, held: Past | None, words: list[str]
) -> None:
    committed = 22 if held is BEGUN_AGAIN else 20
    with pytest.raises(RefusedError) as refused:
        resolved(request_, held, committed=committed)
    for word in words:
        assert word in str(refused.value)


KINDS = st.sampled_from([("r1", 1), ("r1", 1), ("r1", 1), ("r2", 1)])
ENDS = st.tuples(st.integers(1, 20), st.integers(1, 20)).map(sorted)


@given(st.lists(KINDS, min_size=20, max_size=20), st.sets(st.integers(1, 20)), ENDS, st.booleans())
def test_a_window_of_the_log_gives_what_all_of_it_gives(
    kinds: list[tuple[str, int]], saved: set[int], ends: list[int], by_time: bool
) -> None:
    entries, (first, last) = log(sorted(kinds)), ends
    listed = [
        replace(pointer(entries, n), time_ms=FIRST_MS + EPOCH_MS * n) for n in sorted(saved)
    ]
    request_ = Request(epochs=(first, last))
    if by_time:
        start_ms = FIRST_MS + EPOCH_MS * first
        request_ = Request(from_ms=start_ms, to_ms=start_ms + EPOCH_MS * (last - first + 1))
    found = window(request_, listed, 0)
    if found is None:
        assert not [n for n in saved if n < first]
        return
    low, high = found
    part = past([e for e in entries if low <= e[0] <= (high or e[0])], trimmed=True)
    try:
        narrow = resolve(request_, part, listed, job="shop", committed_epoch=20, now_ms=0)
    except RefusedError:
        assert len(set(kinds)) > 1, "of one revision, a checkpoint before it is enough"
        return
    assert narrow == resolved(request_, seen(entries), *listed)
    assert len(narrow.tokens) <= high - low if high is not None else True


@pytest.mark.parametrize("request_", [
    Request(epochs=(6, 9)), Request(last_ms=10**8), Request(epochs=(9, 9)),
    Request(offsets=SourceOffsets("orders", 0, 69, 75)),
])  # fmt: skip
def test_a_refusal_names_the_horizon(request_: Request) -> None:
    for horizon_s, words in (
        (7 * 86_400.0, "; its audit horizon is 7d"),
        (None, '; `audit: {horizon: "7d"}` in job.yaml keeps more of its past, from then on'),
    ):
        with pytest.raises(RefusedError) as refused:
            resolve(
                request_, CUT, (), job="shop", committed_epoch=20,
                now_ms=FIRST_MS + 30 * EPOCH_MS, horizon_s=horizon_s,
            )  # fmt: skip
        assert str(refused.value).endswith(words)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (("orders", 2), "shop does not read orders[2]; it reads orders partition 0 to 1"),
        (("sales", 0), "shop does not read sales[0]; it reads orders"),
    ],
)
def test_a_partition_that_is_not_read_is_named(place: tuple[str, int], words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        resolved(Request(offsets=SourceOffsets(*place, 1, 2)))
    assert words in str(refused.value)


def test_a_range_of_several_revisions_names_each_part() -> None:
    entries = log([("r1", 1)] * 4 + [("r2", 1)] * 3 + [("r2", 2)])
    with pytest.raises(RefusedError) as refused:
        resolved(Request(epochs=(2, 8)), seen(entries), committed=8)
    assert str(refused.value) == (
        "epochs 2 to 8 of shop are of 3 revisions or layouts, and an audit is of one; ask for "
        "each: --epochs 2:4 (revision r1, layout 1), --epochs 5:7 (revision r2, layout 1), "
        "--epochs 8:8 (revision r2, layout 2)"
    )
    many = log([(f"r{i}", 1) for i in range(15)])
    with pytest.raises(RefusedError, match=r"--epochs 10:10 \(revision r9, layout 1\), and 5 more"):
        resolved(Request(epochs=(1, 15)), seen(many), committed=15)


def test_the_first_epoch_that_can_be_audited_is_named() -> None:
    with pytest.raises(RefusedError, match=r"the first one that can be is 10: ask for --epochs 10"):
        resolved(Request(epochs=(8, 15)), CUT, pointer(PLAIN, 9), pointer(PLAIN, 12))


@pytest.mark.parametrize("held", [None, seen([(0, Claim(1, "l")), (1, Begin(1, "u", 0))])])
def test_a_job_that_never_ran_has_nothing_to_audit(held: Past | None) -> None:
    with pytest.raises(RefusedError, match="shop has committed no epoch"):
        resolve(
            Request(epochs=(1, 1)), held, [], job="shop", committed_epoch=0, now_ms=FIRST_MS
        )  # fmt: skip


def test_a_job_without_a_committed_epoch_has_nothing_to_audit() -> None:
    with pytest.raises(RefusedError, match="shop has committed no epoch"):
        resolved(Request(last_ms=10**9), committed=0)


def test_the_past_has_the_tokens_that_count() -> None:
    entries: list[tuple[int, TokenRecord]] = [
        *log([("r1", 1)] * 4), (6, token(9, 5)), (7, Rewind(1, "u", 2, 3, "")), (8, token(3, 3)),
        (9, Claim(2, "m")), (10, token(4, 8)), (11, replace(token(4, 8), coordinator_epoch=2)),
    ]  # fmt: skip
    held = seen(entries)
    assert [(o, t.epoch) for o, t in held.tokens.items()] == [(2, 1), (3, 2), (8, 3), (11, 4)]
    assert (held.base, held.begun, held.before_ms) == (Base("u", 0, 1), True, None)
    cut = seen(entries[3:], is_trimmed=True)
    assert [(o, t.epoch) for o, t in cut.tokens.items()] == [(8, 3), (11, 4)]
    assert (cut.base, cut.begun, cut.before_ms) == (Base("u", 2, 3), False, FIRST_MS + 2 * EPOCH_MS)
    assert (BEGUN_AGAIN.base, list(BEGUN_AGAIN.tokens)) == (Base("v", 20, 22), [23, 24])
    assert BEGUN_AGAIN.before_ms == FIRST_MS + 20 * EPOCH_MS
    assert past([], trimmed=False) is past([(0, Claim(1, "l"))], trimmed=False) is None


def done(epoch: int, duration_ms: int, size: int, **others: object) -> EpochDone:
    made = EpochDone("u", 1, "i", epoch, 1 + epoch, 10, 10, duration_ms, bytes_in={"orders": size})
    return replace(made, **others)  # type: ignore[arg-type]


def test_a_dry_run_counts_epochs_and_records() -> None:
    found = resolved(Request(epochs=(12, 20)), None, pointer(PLAIN, 9))
    assert dry_run(found, seen(), []) == Estimate(11, 9, 110, 0, None, None)


def test_a_dry_run_estimates_from_the_epochs_that_were_measured() -> None:
    found = resolved(Request(epochs=(1, 20)))
    reports = [
        done(18, 400, 1_000), done(19, 9_999, 1, generation=0), done(19, 600, 3_000),
        done(20, 100, 500, fragment="a"), done(20, 500, 1_500, fragment="b"),
        done(7, 99_999, 10**9, token_offset=999), done(8, 99_999, 10**9, job_uuid="other"),
    ]  # fmt: skip
    assert dry_run(found, seen(), reports) == Estimate(20, 20, 200, 3, 40_000, 10.0)


@given(
    st.lists(st.integers(1, 1_000), min_size=3, max_size=12, unique=True), st.integers(0, 50),
    st.integers(0, 50),
)  # fmt: skip
def test_a_cost_by_epoch_and_record_is_found(sizes: list[int], each: int, by_record: int) -> None:
    """A backlog is estimated from small epochs by both."""
    offsets = count(2)
    tokens = {
        next(offsets): replace(token(i + 1, i + 1), splits=((read(0, size),),))
        for i, size in enumerate(sizes)
    }
    held = Past(Base("u", 0, 1), True, tokens)
    found = resolved(Request(epochs=(1, len(sizes))), held, committed=len(sizes))
    half = len(sizes) // 2 + 1
    reports = [done(i + 1, each + by_record * size, size) for i, size in enumerate(sizes[:half])]
    estimate = dry_run(found, held, reports)
    assert estimate.seconds is not None
    expected = sum(each + by_record * size for size in sizes) / 1000
    assert estimate.seconds == pytest.approx(expected, abs=1e-6)
    assert estimate.bytes == sum(sizes)


def in_a_sample(share: Fraction, seed: int, *ends: int) -> Sample:
    return sampled(
        resolved(Request(epochs=(3, 19))), [pointer(PLAIN, end) for end in ends], share, seed
    )


@given(st.sets(st.integers(1, 20)), st.fractions(Fraction(1, 30), 1), st.integers(0, 10**6))
def test_a_sample_has_its_share_of_the_intervals_between_checkpoints(
    ends: set[int], share: Fraction, seed: int
) -> None:
    """Against a plain list of all intervals."""
    found = in_a_sample(share, seed, *ends)
    assert found == in_a_sample(share, seed, *sorted(ends))
    inner = sorted(ends & set(range(3, 19)))
    intervals = list(zip([3, *(e + 1 for e in inner)], [*inner, 19], strict=True))
    covered = [e for first, last in found.parts for e in range(first, last + 1)]
    whole = [one for one in intervals if set(range(one[0], one[1] + 1)) <= set(covered)]
    assert sorted(covered) == [e for first, last in whole for e in range(first, last + 1)]
    assert len(whole) == found.chosen
    assert found.intervals == len(intervals)
    assert share <= Fraction(found.chosen, found.intervals) < share + Fraction(1, found.intervals)
    assert all(b[0] > a[1] + 1 for a, b in pairwise(found.parts))


def test_another_seed_draws_another_sample() -> None:
    drawn = {in_a_sample(Fraction(1, 4), seed, *range(3, 19)).parts for seed in range(20)}
    assert len(drawn) > 15
    every = {part[0] for parts in drawn for part in parts}
    assert len(every) > 10


def test_a_sample_without_a_checkpoint_is_the_whole_range() -> None:
    assert in_a_sample(Fraction(1, 16), 7) == Sample(7, 1, 1, ((3, 19),))
    assert str(in_a_sample(Fraction(1), 7, 5)) == (
        "a sample of 2 of 2 intervals between checkpoints, drawn with seed 7: epochs 3 to 19"
    )


def test_a_checkpoint_of_a_token_that_was_rolled_back_ends_no_interval() -> None:
    gone = replace(pointer(PLAIN, 8), token_offset=999)
    found = sampled(resolved(Request(epochs=(3, 19))), [gone], Fraction(1), 0)
    assert found.intervals == 1
