"""The pure parts of the benchmarks of state: input, timeline, speed, columns, judges."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from benches import checkpoint, keyed, restore, scale, timed
from benches.keyed import Shape, Window, check_origin
from benches.keys import BLOCK, Keys, ends_of
from benches.reading import Record
from benches.timeline import Checkpoint, Epoch, Timeline, ends_at, speed
from perseid.errors import PermanentError
from perseid.records import PartFile
from perseid.topics import codec
from perseid.topics.records import EpochDone, PartDone, SourceRange, Token


def key_of(message: dict[str, bytes]) -> int:
    return int(message["value"])


def test_keys_count_to_what_their_messages_contain() -> None:
    keys = Keys(1_003, key_bytes=7, partitions=3, seed=5)
    ends = ends_of(keys, 3 * BLOCK + 900)
    counted: Counter[int] = Counter()
    for partition, end in ends.items():
        cuts = [0, 17, end // 3, end // 2, end]
        for start, stop in pairwise(cuts):
            messages = keys.messages(partition, start, stop)
            assert len(messages) == stop - start
            assert all(len(m["value"]) == 7 for m in messages)
            counted.update(map(key_of, messages))
    assert len(counted) == 1_003
    assert sum(counted.values()) == sum(ends.values())
    assert keys.counts(ends).tolist() == [counted[key] for key in range(1_003)]


def test_every_key_comes_once_before_any_is_drawn() -> None:
    keys = Keys(1_000, partitions=4)
    assert set(keys.counts(ends_of(keys, 0)).tolist()) == {1}
    assert Keys(10).messages(1, 0, 2) == [{"value": b"0000000001"}, {"value": b"0000000005"}]


def test_the_share_of_changed_keys_is_that_of_the_offsets_between() -> None:
    keys = Keys(100, partitions=2)
    preload = ends_of(keys, 0)
    assert keys.changed({}, preload) == 1.0
    assert keys.changed(preload, preload) == 0.0
    seen = {key_of(m) for p in preload for m in keys.messages(p, preload[p], preload[p] + 20)}
    more = {p: end + 20 for p, end in preload.items()}
    assert keys.changed(preload, more) == len(seen) / 100


def done(epoch: int, end_ms: int, duration_ms: int) -> Record:
    measured = EpochDone("u", 1, "w", epoch, epoch, 10, 10, duration_ms, state_bytes=5)
    return Record(epoch, codec.encode(measured), end_ms)


def part(
    epoch: int, partition: int, size: int, end_ms: int, chain: tuple[PartFile, ...] = ()
) -> Record:
    measured = PartDone("u", 1, epoch, 1, "counts", partition, "p", size, 1, 0.5, chain)
    return Record(epoch, codec.encode(measured), end_ms)


def test_a_timeline_knows_what_ran_while_a_checkpoint_was_made() -> None:
    records = [
        done(1, 1_100, 100), done(2, 1_200, 100), part(2, 0, 90, 1_250), done(3, 1_500, 300),
        part(2, 1, 10, 1_450), done(4, 1_600, 100), done(5, 2_600, 1_000), part(5, 0, 5, 2_601),
    ]  # fmt: skip
    found = Timeline.of(records, parts=2)
    assert found.checkpoints == [Checkpoint(2, 1_450, 100, 1.0, links=0, read_bytes=100)]
    assert found.longest_during_checkpoints() == 3.0  # epoch 3; the fifth is outside
    assert found.longest() == 10.0
    assert [e.epoch for e in found.within(1_200, 1_600).epochs] == [3, 4]


def test_a_checkpoint_that_changes_earlier_files_is_no_full_snapshot() -> None:
    whole, link = PartFile("w", 1, 1_000, 7), PartFile("l", 2, 30, 8)
    records = [
        part(1, 0, 1_000, 10), part(1, 1, 1_000, 11),
        part(2, 0, 990, 20, (whole,)), part(2, 1, 40, 21, (whole,)),  # as large as a full one
        part(3, 0, 20, 30, (whole, link)), part(3, 1, 5, 31),
    ]  # fmt: skip
    timeline = Timeline.of(records, parts=2)
    assert [c.links for c in timeline.checkpoints] == [0, 1, 2]
    assert [c.read_bytes for c in timeline.checkpoints] == [2_000, 3_030, 1_055]
    assert timeline.full_snapshots == 1


def test_the_speed_is_between_two_moments_of_output() -> None:
    counted = [(1_000, "0", 50), (1_000, "1", 50), (3_000, "0", 150), (4_000, "1", 250)]
    assert speed(counted, 1_500, 3_500) == (50.0, 1_000, 3_000)
    assert speed(counted, 1_500, 9_000) == (100.0, 1_000, 4_000)
    assert speed(counted, 4_000, 9_000) is None
    assert speed(counted, 0, 9_000) is None


def test_the_input_of_an_epoch_ends_where_its_tokens_end() -> None:
    def token(epoch: int, *ends: int) -> Token:
        ranges = [SourceRange("keys", "t", "i", p, 0, end) for p, end in enumerate(ends)]
        return Token(1, "u", epoch, 0, "r", 1, (tuple(ranges[:1]), tuple(ranges[1:])), 0)

    tokens = [token(1, 5, 7), token(2, 9), token(3, 9, 20)]
    assert ends_at(tokens, 2) == {0: 9, 1: 7}


def taken(*links: int) -> Timeline:
    epochs = [Epoch(e, 1_000 * e, 900, 10, 5) for e in range(1, 70)]
    made = [Checkpoint(10 * n, 10_000 * n + 500, 100, 0.2, of) for n, of in enumerate(links, 1)]
    return Timeline(epochs, [], made)


def measured(timeline: Timeline, changed: list[float], size: int = 10_000_000) -> dict[str, Any]:
    return checkpoint.figures(timeline, changed, 75.0, 10, size)


def test_the_columns_of_checkpoints() -> None:
    assert measured(taken(2, 0, 1, 2, 3, 0), [0.2, 0.3, 0.4]) == {
        "checkpoints_taken": 6, "full_snapshots": 2, "chain": 3, "changed_share": 0.3,
        "checkpoint_bytes": 100, "longest_epoch": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("timeline", "changed", "text"),
    [
        (taken(0, 0, 0, 0, 0), [0.5], "5 checkpoints in 75 s"),
        (taken(1, 2, 3, 0, 1, 2), [0.5], "6 checkpoints in 75 s, 1 of them full"),
        (taken(0, 1, 0, 1, 0, 1), [0.5, 0.049, 0.5], "only 4.9% of the keys changed"),
    ],
)
def test_checkpoints_that_cost_too_little_are_no_result(
    timeline: Timeline, changed: list[float], text: str
) -> None:
    with pytest.raises(PermanentError, match=text):
        measured(timeline, changed)


class Slow:
    """A job that has made one checkpoint more at each look."""

    def __init__(self) -> None:
        self.checkpoints = 0

    def outputs(self) -> list[tuple[int, str, int]]:
        self.checkpoints += 1
        return [(1, "0", 1), (10_000 * self.checkpoints + 1_000, "0", 2)]

    def progress(self) -> Timeline:
        return taken(*[0] * self.checkpoints)


@pytest.mark.parametrize(("wanted", "found"), [(3, 3), (10**9, None)])
def test_a_window_lasts_until_enough_was_seen(
    monkeypatch: pytest.MonkeyPatch, wanted: int, found: int | None
) -> None:
    monkeypatch.setattr(keyed, "_LONGER_LOOK_S", 0.01)
    job: Any = Slow()
    begin_s = time.monotonic()
    window_s = 10.0 if found else 0.05
    keyed._extend([job], 1, window_s, lambda seen: len(seen.checkpoints) >= wanted)
    if found:
        assert job.checkpoints == found
    else:
        assert time.monotonic() - begin_s >= (keyed.LONGER_MAX - 1) * window_s
        assert job.checkpoints > 1


def test_of_a_large_state_the_changed_share_is_only_reported() -> None:
    found = measured(taken(0, 1, 0, 1, 0, 1), [0.01], size=100_000_000)
    assert found["changed_share"] == 0.01


def test_a_larger_state_is_measured_for_longer() -> None:
    settings = checkpoint.Settings(records=5)
    assert settings.window(10_000_000) == Window(15.0, 75.0, 5)
    assert settings.window(100_000_000) == Window(15.0, 120.0, 5)
    assert settings.window(1_000_000_000) == Window(15.0, 150.0, 5)
    assert checkpoint.Settings(window_s=9.0).window(1_000_000_000).window_s == 9.0


def test_as_many_records_wait_as_the_fastest_would_count() -> None:
    assert scale.Settings(warm_up_s=10, window_s=30).window.records == 180_000_000
    assert scale.Settings(records=7).window.records == 7


def test_a_restore_is_from_the_newest_checkpoint_and_what_came_of_it() -> None:
    check_origin("checkpoint:40 (5 rows, 1.0 MB in 0.1 s)", 40)
    check_origin("checkpoint:40, log (5 rows, 1.0 MB in 0.1 s)", 40)
    for origin in ("checkpoint:4", "checkpoint:40, checkpoint:30 (5 rows)", "log (5 rows)", ""):
        with pytest.raises(PermanentError, match="not from checkpoint:40"):
            check_origin(origin, 40)


def test_a_restore_of_another_chain_is_no_result() -> None:
    newest = Checkpoint(7, 1, 10, 0.1, links=3, read_bytes=130)
    assert restore.chain_columns(newest, 3) == {"chain": 3, "read_bytes": 130}
    with pytest.raises(PermanentError, match="a chain of 3 files, not of 2"):
        restore.chain_columns(newest, 2)


def test_moments_are_compared_by_bytes_and_by_seconds() -> None:
    fixed = [{"checkpoint_bytes": b, "checkpoint_s": s} for b, s in ((100, 4.0), (200, 1.0))]
    small = [{"checkpoint_bytes": b, "checkpoint_s": s} for b, s in ((50, 1.0), (50, 0.5))]
    found = timed.compared(small, fixed)
    assert (found["ratio"], found["time_ratio"]) == (0.375, 0.375)
    assert timed.compared(fixed, fixed)["time_ratio"] == 1.0


def test_a_state_of_ten_byte_keys() -> None:
    assert Shape(Keys(1_000)).state_bytes == 22_000


def test_memory_of_a_key_is_against_the_fewest() -> None:
    least = {"x": 1_000, "memory_bytes": 500, "memory_peak_bytes": 900}
    more = {"x": 3_000, "memory_bytes": 200_500, "memory_peak_bytes": 600_900}
    assert scale.per_key(more, least) == {"bytes_per_key": 100.0, "peak_bytes_per_key": 300.0}
    assert scale.per_key(least, least) == {}


def test_the_jobs_of_scale_take_checkpoints() -> None:
    shape = scale.Settings(period_s=7).shape(50, 2)
    assert (shape.period, shape.parallelism, shape.keys.keys) == ("7s", 2, 50)


def test_the_slope_leaves_the_first_quarter_out() -> None:
    samples = [(t * 10.0, 1_000_000_000 if t < 10 else 2_000_000 + t * 10_000) for t in range(41)]
    assert scale.growth(samples) == 0.06
    assert scale.by_minute(samples)[:3] == [1000.0, 1000.0, 2.1]  # it jumped once


@pytest.mark.parametrize("begin_s", range(0, 600, 150))
@pytest.mark.parametrize("mb_per_minute", [0, 2])
def test_memory_that_comes_in_turns_grows_by_what_they_grow(
    begin_s: int, mb_per_minute: int
) -> None:
    samples = [
        (float(t), (t + begin_s) % 600 * 300_000 + t * mb_per_minute * 1_000_000 // 60)
        for t in range(0, 1_800, 10)
    ]
    assert scale.growth(samples) == pytest.approx(mb_per_minute, abs=0.01)


def test_windows_must_have_the_points_that_were_sent() -> None:
    sent = Counter({("a", 0): 3, ("b", 0): 4, ("a", 30): 5, ("a", 60): 1})
    timed.judge(sent, Counter({("a", 0): 3, ("b", 0): 4, ("a", 30): 5}))
    with pytest.raises(PermanentError, match="1 of 3 windows"):
        timed.judge(sent, Counter({("a", 0): 3, ("a", 30): 5}))
