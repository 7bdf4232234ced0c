"""Large records make epochs smaller, before any is read and after it; no offset is left out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.coordinator import input_bytes, issue
from perseid.coordinator.job.positions import ranges_of
from perseid.jobs.model.spec import JobSpec, SourceSpec
from perseid.topics.records import EpochDone, InputCheck, Token
from support.coordinator import Leader, World, job_spec

JOB = "wordcount"
MIB = 1 << 20
BYTES_MAX = 8 * MIB
SOURCES = st.sampled_from(["a", "b", "c"])
SHARES = st.dictionaries(st.tuples(SOURCES, st.integers(0, 9)), st.integers(0, 10**7))
KNOWN = st.dictionaries(SOURCES, st.floats(0, 10 * MIB))
CHECKS = (InputCheck(1, 0, "lines", 10, 0),)


def bounded(spec: JobSpec) -> JobSpec:
    return spec.model_copy(update={"epoch": spec.epoch.model_copy(update={"max_bytes": BYTES_MAX})})


@pytest.fixture
def world(world: World) -> World:
    world.programs["archive-1"] = bounded(job_spec())
    return world


def records(token: Token, source: str = "lines") -> int:
    return sum(r.end - r.start for r in ranges_of(token) if r.source == source)


def tokens(world: World) -> list[Token]:
    return list(world.valid(JOB).values())


def run(world: World, leader: Leader, epochs: int, duration_ms: int = 400) -> None:
    for _ in range(epochs):
        leader.poll()
        world.work(JOB, 1, duration_ms=duration_ms)
        leader.listen()


def test_before_a_source_is_read_its_records_are_taken_for_large_ones(
    world: World, leader: Leader
) -> None:
    world.produce(0, 100_000)
    leader.poll()
    assert [records(t) * input_bytes.FIRST_BYTES for t in tokens(world)] == [BYTES_MAX] * 2


def test_small_records_have_full_epochs_after_the_first(world: World, leader: Leader) -> None:
    world.produce(0, 10 * issue.SIZE_FIRST)
    run(world, leader, 3)
    assert records(tokens(world)[2]) == issue.SIZE_FIRST


@pytest.mark.parametrize("record_bytes", [100_000, MIB, 3 * MIB])
def test_no_epoch_of_large_records_is_above_the_bound(
    world: World, leader: Leader, record_bytes: int
) -> None:
    world.record_bytes = {"lines": record_bytes}
    world.produce(0, 1000)
    world.produce(1, 300)
    while leader.job().inputs.backlog or leader.job().in_flight or not tokens(world):
        run(world, leader, 1)
    named = tokens(world)
    read = [records(t) * record_bytes for t in named[2:]]
    assert 0.8 * BYTES_MAX - record_bytes <= max(read)
    assert max(read) <= BYTES_MAX + record_bytes  # each of the two partitions has one at least
    for partition, end in ((0, 1000), (1, 300)):
        ranges = [r for t in named for r in ranges_of(t) if r.partition == partition]
        assert (ranges[0].start, ranges[-1].end) == (0, end)
        assert all(a.end == b.start for a, b in pairwise(ranges))


def test_a_record_above_the_bound_is_an_epoch_of_its_own(world: World, leader: Leader) -> None:
    world.record_bytes = {"lines": 2 * BYTES_MAX}
    world.produce(0, 40)
    run(world, leader, 4)
    assert [records(t) for t in tokens(world)[2:4]] == [1, 1]


def test_slow_large_records_have_still_smaller_epochs(world: World, leader: Leader) -> None:
    """An epoch at the bound in bytes reports its duration, however few records it has."""
    world.record_bytes = {"lines": 1000}
    world.produce(0, 10**6)
    sizes = []
    for epoch in range(30):
        leader.tick(1)
        leader.poll()
        sizes.append(records(tokens(world)[epoch]))
        run(world, leader, 1, duration_ms=100 + 3 * sizes[-1])
    assert BYTES_MAX // 1000 in sizes
    wanted_ms = 1000 * bounded(job_spec()).epoch.target_s * issue.CATCH_UP
    assert 0.7 * wanted_ms <= 100 + 3 * sizes[-1] <= 1.3 * wanted_ms


def test_large_records_of_a_source_that_was_quiet_do_not_surprise(
    world: World, leader: Leader
) -> None:
    spec = bounded(job_spec())
    two = {"lines": spec.sources["lines"], "scans": SourceSpec(topic="scans", format="bytes")}
    world.programs["archive-1"] = spec.model_copy(update={"sources": two})
    world.ends["scans", 0] = 0
    world.record_bytes = {"scans": MIB}
    other = Leader(world)
    other.look()
    other.listen()
    world.produce(0, 200_000)
    run(world, other, 5)
    assert records(tokens(world)[-1]) >= issue.SIZE_FIRST
    world.produce(0, 500, topic="scans")
    run(world, other, 8)
    scans = [found for t in tokens(world) if (found := records(t, "scans"))]
    assert max(scans[:2]) <= BYTES_MAX // input_bytes.FIRST_BYTES  # not known yet
    assert max(scans[2:]) <= BYTES_MAX // MIB


def test_the_next_leader_knows_what_the_last_one_did(world: World, leader: Leader) -> None:
    world.produce(0, 100_000)
    run(world, leader, 3)
    other = Leader(world)
    other.look()
    other.listen()
    assert other.job().inputs.record_bytes == leader.job().inputs.record_bytes != {}


def test_large_records_are_expected_again_for_a_while() -> None:
    def read(known: dict[str, float], each: int) -> dict[str, float]:
        token_rows = {"lines": 10 * each}
        done = EpochDone("u", 1, "w", 1, 1, 10, 0, 5, checks=CHECKS, bytes_in=token_rows)
        return dict(input_bytes.seen(known, done))

    known = read({}, 1000)
    assert known == {"lines": 1000}
    assert read(known, 5000) == {"lines": 5000}
    for _ in range(30):
        known = read(known, 10)
    assert 10 < known["lines"] < 100


def test_an_epoch_without_rows_gives_no_estimate() -> None:
    done = EpochDone("u", 1, "w", 1, 1, 0, 0, 5, bytes_in={"lines": 0})
    assert input_bytes.seen({"lines": 7.0}, done) == {"lines": 7.0}
    assert input_bytes.records_max(done, BYTES_MAX) is None
    assert input_bytes.records_max(replace(done, rows_in=9, bytes_in={}), BYTES_MAX) is None


@given(SHARES, KNOWN)
def test_shares_are_within_the_bound_or_one_record_each(
    shares: dict[tuple[str, int], int], known: dict[str, float]
) -> None:
    found = input_bytes.within(shares, known, BYTES_MAX)
    assert {key for key, n in found.items() if n} == {key for key, n in shares.items() if n}
    assert all(n <= shares[key] for key, n in found.items())
    above = {key: n for key, n in found.items() if n > 1}
    expected = sum(n * known.get(s, input_bytes.FIRST_BYTES) for (s, _), n in above.items())
    assert expected <= BYTES_MAX * 1.000001
