"""How a job is cut into fragments, judged by what must hold for any job."""

from __future__ import annotations

from collections import Counter

import pytest

from perseid.jobs.model.layout import DEAD_LETTERS, build
from perseid.jobs.model.spec import (
    ErrorsSpec,
    JobSpec,
    OperatorSpec,
    PlacementSpec,
    SinkSpec,
    SourceSpec,
)
from perseid.jobs.model.spread import Spread, spread_of
from perseid.topics.records import Token
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.barriers import expected


def keyed(source: str, parallelism: int) -> OperatorSpec:
    return OperatorSpec(
        inputs={"in": source}, use="x:Y", key=("k",), parallelism=parallelism, sql=None,
    )  # fmt: skip


def job(spread: int, *, tolerant: bool = False, bisects: bool = False) -> JobSpec:
    """Two parts that exchange nothing: a, a1, a2 and b, b1."""
    b1 = keyed("b", 2)
    return JobSpec(
        name="job", parallelism=4,
        sources={n: SourceSpec(topic=n, format="json", columns={"k": "string"}) for n in "ab"},
        operators={
            "a1": keyed("a", 4), "a2": keyed("a1", 3),
            "b1": b1.model_copy(update={"errors": "bisect"}) if bisects else b1,
        },
        sinks={n: SinkSpec(input=n, topic=n, format="json") for n in ("a2", "b1")},
        errors=ErrorsSpec(tolerance="all" if tolerant else "none", deadletter_topic="dlq"),
        placement=PlacementSpec(spread=spread),
    )  # fmt: skip


def cut(spec: JobSpec) -> Spread:
    found = spread_of(spec, build(spec, 1))
    assert found is not None
    return found


def operators(spec: JobSpec, at: int) -> set[str]:
    layout = build(spec, 1)
    return {layout.task(gid).operator for gid in cut(spec).shares[at].gids}


def test_a_job_that_is_not_spread_is_one_fragment() -> None:
    spec = job(1)
    assert spread_of(spec, build(spec, 1)) is None


@pytest.mark.parametrize("spread", [2, 3, 4, 5, 6, 9, 64])
@pytest.mark.parametrize("tolerant", [False, True])
def test_every_partition_is_in_one_fragment_and_no_fragment_is_empty(
    spread: int, tolerant: bool
) -> None:
    spec = job(spread, tolerant=tolerant)
    shares = cut(spec).shares
    gids = Counter(gid for share in shares for gid in share.gids)
    assert gids == {task.gid: 1 for task in build(spec, 1).tasks}
    assert all(share.gids for share in shares)
    # 4 ranges of a's part and 2 of b's are the most that can be
    assert len(shares) == min(spread, 6) + tolerant


def test_parts_that_exchange_nothing_share_no_fragment_and_do_not_wait() -> None:
    spec = job(4)
    found = cut(spec)
    of_a = {at for at in range(4) if operators(spec, at) <= {"a1", "a2"}}
    of_b = {at for at in range(4) if operators(spec, at) <= {"b1"}}
    assert (len(of_a), len(of_b)) == (3, 1)
    assert {found.waits_for(at) for at in of_a} == {frozenset(of_a)}
    assert {found.waits_for(at) for at in of_b} == {frozenset(of_b)}
    assert set(found.splits_of("a")) == of_a
    assert Counter(found.split_of("a", p) for p in range(6)) == dict.fromkeys(of_a, 2)
    assert {found.split_of("b", p) for p in range(6)} == of_b


def test_the_writer_of_dead_letters_waits_for_all_and_none_for_it() -> None:
    spec = job(2, tolerant=True)
    found = cut(spec)
    (last,) = (at for at in range(3) if operators(spec, at) == {DEAD_LETTERS})
    assert found.waits_for(last) == {0, 1, 2}
    assert all(last not in found.waits_for(at) for at in range(3) if at != last)
    assert found.shares[last].among == {}


def test_letters_that_a_keyed_operator_writes_join_the_parts() -> None:
    found = cut(job(2, bisects=True))
    assert found.waits_for(0) == {0, 1}


def test_the_same_job_is_cut_in_the_same_way() -> None:
    assert cut(job(3)) == cut(job(3))


def test_a_partition_expects_sets_of_the_fragments_that_read_its_source() -> None:
    spec = job(4)
    layout, found = build(spec, 1), cut(spec)
    token = Token(
        coordinator_epoch=1, job_uuid="u", epoch=1, previous_offset=0, revision="r", layout=1,
        splits=((),) * 4, time_ms=0, watermark_ms=None, checkpoint=False, final=False, checks=(),
        generation=1,
    )  # fmt: skip
    made = graph.build(spec, layout)
    for task in layout.tasks:
        wanted = expected(made, token, task.gid).sets
        if task.operator in ("a1", "b1"):
            splits = found.splits_of(task.operator[0])
            assert {origin for _, origin in wanted} == set(splits)
        else:
            assert {origin for _, origin in wanted} == {t.gid for t in layout.of("a1")}
