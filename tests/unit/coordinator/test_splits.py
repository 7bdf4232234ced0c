"""Which source task reads what: whole partitions where that is even, pieces of them where not."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.coordinator.job.positions import first_positions
from perseid.coordinator.splits import SPLIT_RECORDS_MIN, UNEVEN, by_share, ordered_sources, split
from perseid.jobs.model.spec import JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.jobs.model.spread import Share, Spread
from perseid.topics.records import SourceRange, Split
from support.coordinator import Leader, World, job_spec


def source_range(partition: int, count: int, source: str = "lines") -> SourceRange:
    return SourceRange(source, source, "id", partition, 7, 7 + count)


def read(splits: tuple[Split, ...]) -> list[list[tuple[int, int, int]]]:
    return [[(r.partition, r.start - 7, r.end - 7) for r in found] for found in splits]


def test_small_epochs_have_one_split_and_large_ones_up_to_the_parallelism() -> None:
    small = tuple(source_range(p, 10) for p in range(4))
    assert [len(found) for found in split(small, 4)] == [4]
    large = tuple(source_range(p, n * 10_000) for p, n in enumerate((4, 1, 1, 2)))
    assert [[r.partition for r in found] for found in split(large, 2)] == [[0], [1, 2, 3]]
    assert split((), 4) == ()


def test_a_large_partition_is_read_by_all_tasks_unless_its_order_counts() -> None:
    one = (source_range(0, 90_001),)
    assert read(split(one, 2)) == [[(0, 0, 45_001)], [(0, 45_001, 90_001)]]
    assert read(split(one, 2, ["other"])) == read(split(one, 2))
    assert split(one, 2, ["lines"]) == (one,)
    uneven = (source_range(0, 10_000), source_range(1, 80_000), source_range(2, 0))
    assert read(split(uneven, 2)) == [
        [(0, 0, 10_000), (1, 0, 35_000)], [(1, 35_000, 80_000), (2, 0, 0)]
    ]  # fmt: skip
    assert read(split(uneven, 2, ["lines"])) == [[(1, 0, 80_000)], [(0, 0, 10_000), (2, 0, 0)]]


def test_a_quiet_partition_does_not_move_the_others_to_other_tasks() -> None:
    """Else each task would open its consumers again whenever one of 200 has nothing."""
    places = [("lines", p) for p in range(200)]
    home = {p: task for task in range(4) for p in range(task, 200, 4)}
    for quiet in (0, 1, 77):
        ranges = tuple(source_range(p, 500) for p in range(200) if p != quiet)
        for task, found in enumerate(split(ranges, 4, places=places)):
            assert {home[r.partition] for r in found} == {task}


@pytest.mark.parametrize("large", [range(0, 10_000, 16), range(1)])
def test_10_000_uneven_partitions_are_distributed_in_a_moment(large: range) -> None:
    """Each epoch again, by the process that leads all jobs."""
    ranges = tuple(source_range(p, 100_000 if p in large else 2) for p in range(10_000))
    started_s = time.process_time()
    split(ranges, 16)
    assert time.process_time() - started_s < 0.5


@pytest.mark.parametrize("seed", range(300))
def test_tasks_in_a_row_read_each_partition_in_order_and_once(seed: int) -> None:
    chance = Random(seed)
    ranges = tuple(
        source_range(partition, chance.choice([0, 1, 100, 30_000, 200_000]), source)
        for source in ("a", "b") for partition in range(chance.randrange(5))
    )  # fmt: skip
    tasks, ordered = chance.randrange(1, 6), chance.choice([(), ("a",), ("a", "b")])
    splits = split(ranges, tasks, ordered)
    assert len(splits) <= tasks
    pieces: dict[tuple[str, int], list[SourceRange]] = {}
    for found in (r for one in splits for r in one):
        pieces.setdefault((found.source, found.partition), []).append(found)
    for whole in ranges:
        mine = pieces.pop((whole.source, whole.partition))
        assert [p.start for p in mine] == [whole.start, *(p.end for p in mine[:-1])]
        assert mine[-1].end == whole.end
        assert len(mine) == 1 or whole.source not in ordered
    assert not pieces
    records = sum(r.end - r.start for r in ranges)
    if not ordered and records >= SPLIT_RECORDS_MIN:
        largest = max(sum(r.end - r.start for r in one) for one in splits)
        assert largest <= UNEVEN * records / tasks + 1


def spec(sinks: dict[str, str], free: set[str]) -> JobSpec:
    def operator(upstream: str, **more: Any) -> OperatorSpec:
        return OperatorSpec(inputs={"input": upstream}, use="m:C", parallelism=2, **more)

    return JobSpec(
        name="j", parallelism=2,
        sources={name: SourceSpec(topic=name, format="text") for name in ("plain", "summed")},
        operators={
            "cut": operator("plain"), "clean": operator("cut.rest"),
            "sums": operator("summed", key=("k",)), "after": operator("sums"),
        },
        sinks={
            name: SinkSpec(
                input=stream, topic=name, format="json",
                order="free" if name in free else "required",
            )
            for name, stream in sinks.items()
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sinks", "ordered"),
    [
        ({"s": "plain"}, {"plain"}), ({"s": "clean"}, {"plain"}), ({"s": "cut.rest"}, {"plain"}),
        ({"s": "sums"}, set()), ({"s": "after"}, set()),
        ({"s": "sums", "t": "summed"}, {"summed"}), ({"free": "clean"}, set()),
        ({"free": "clean", "t": "cut"}, {"plain"}),
    ],
)  # fmt: skip
def test_order_counts_where_rows_reach_a_sink_without_a_shuffle(
    sinks: dict[str, str], ordered: set[str]
) -> None:
    assert ordered_sources(spec(sinks, {"free"})) == ordered


def test_a_job_that_takes_a_cut_epoch_back_begins_where_it_began(
    world: World, leader: Leader
) -> None:
    world.produce(0, 3)
    leader.poll()
    job = leader.job()
    issued = job.chain.tokens[0]
    (one,) = issued.token.splits
    cut = ((replace(one[0], end=one[0].start + 1),), (replace(one[0], start=one[0].start + 1),))
    chain = replace(job.chain, tokens=(replace(issued, token=replace(issued.token, splits=cut)),))
    again = replace(job, chain=chain)
    as_cut, as_issued = (
        first_positions(job_spec(), [i.token for i in j.chain.tokens]) for j in (again, job)
    )
    assert as_cut["lines", 0] == as_issued["lines", 0]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(0, 100_000)),
        unique_by=lambda r: r[:2],
    ),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_a_spread_job_has_one_split_for_each_fragment(
    found: list[tuple[str, int, int]], of_a: int, of_b: int
) -> None:
    shares = [
        *(Share((at,), {"a": (at, of_a)}, 0) for at in range(of_a)),
        *(Share((9 + at,), {"b": (at, of_b)}, 1) for at in range(of_b)),
        Share((99,), {}, -1),
    ]
    spread = Spread(tuple(shares))
    ranges = [SourceRange(source, source, "id", p, 5, 5 + n) for source, p, n in found]
    dealt = by_share(ranges, spread)
    assert len(dealt) == len(shares)
    assert sorted((r.source, r.partition) for part in dealt for r in part) == sorted(
        (source, p) for source, p, _ in found
    )
    for at, part in enumerate(dealt):
        assert list(part) == sorted(part, key=lambda r: (r.source, r.partition))
        assert all(spread.split_of(r.source, r.partition) == at for r in part)
    assert dealt[-1] == ()
