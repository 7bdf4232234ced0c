"""From tokens and progress records to rates and loads, and back to what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator.planners.graph import Node, Stream, TopologyError
from perseid.coordinator.planners.job_topology import feeding, job_topology
from perseid.coordinator.planners.measured_rates import Measured, job_rates, loads, measured
from perseid.coordinator.planners.topology import Topology
from perseid.errors import BadInputError
from perseid.jobs.model.spec import EventTimeSpec, JobSpec
from perseid.jobs.validation import parse
from perseid.topics.records import EpochDone, EventTimes, InputCheck, SourceRange, Split, Token

JOB = """
name: two
parallelism: 2
sources:
  a: {topic: a, format: text}
  b: {topic: b, format: text}
operators:
  joined: {inputs: {left: a, right: b}, key: value, use: "m:Joined"}
  counted: {input: joined, key: value, use: "m:Counted", parallelism: 1}
sinks:
  joined: {input: joined, topic: joined, format: text, order: free}
  counted: {input: counted, topic: counted, format: text, order: free}
  raw: {input: b, topic: raw, format: text, order: free}
"""


@pytest.fixture
def job() -> JobSpec:
    return parse.loads(JOB)


def rows(source: str, partition: int, start: int, end: int) -> SourceRange:
    return SourceRange(source, source, "t", partition, start, end)


def token(epoch: int, *splits: Split) -> Token:
    return Token(1, "u", epoch, 10 * (epoch - 1), "r", 1, splits, time_ms=epoch * 2000)


def done(epoch: int, *counts: tuple[int, str, int], sent: int = 0, letters: int = 0) -> EpochDone:
    checks = tuple(InputCheck(epoch, split, source, count, 0) for split, source, count in counts)
    return EpochDone(
        "u", 1, "w-1", epoch, 10 * epoch, sum(c.count for c in checks), sent, 900,
        {"process": 500, "commit": 9}, dead_letters=letters, checks=checks,
    )  # fmt: skip


TOKENS = {
    10: token(1, (rows("a", 0, 0, 900),)),
    20: token(2, (rows("a", 0, 900, 960), rows("a", 1, 0, 30), rows("b", 0, 0, 5)),
              (rows("b", 1, 0, 20),)),
    30: token(3, (rows("a", 0, 960, 1000),), (rows("a", 2, 7, 7), rows("b", 1, 20, 40))),
}  # fmt: skip
LATE = EventTimes("u", 1, 2, 20, 6, ())
# Of the 90 offsets of a in epoch 2, 30 were markers and aborted records.
SECOND = done(2, (0, "a", 60), (0, "b", 5), (1, "b", 20), sent=24, letters=4)
THIRD = done(3, (0, "a", 40), (1, "b", 20), (1, "a", 0), sent=20)
PROGRESS: list[EpochDone | EventTimes] = [done(1, (0, "a", 900)), LATE, SECOND, THIRD]


def test_rows_are_dealt_to_the_partitions_that_their_splits_name() -> None:
    """Over the 4 s after the first token; nothing shows how long the first epoch took."""
    found = measured(TOKENS, PROGRESS)
    assert found == Measured({"a": (20.0, 5.0, 0.0), "b": (1.25, 10.0)}, 10.0, 1.5, 0.25)


def test_what_does_not_count_is_left_out() -> None:
    again: list[EpochDone | EventTimes] = [
        replace(SECOND, generation=2, incarnation="w-2"),  # run again by the next owner
        replace(THIRD, job_uuid="before", rows_out=10**6),  # of a job of the same name
        replace(THIRD, epoch=4, rows_out=10**6),  # of a token that was taken back
        replace(LATE, generation=2),  # reported again after a restore
        replace(THIRD, epoch=9, token_offset=90),  # its token is not in the window
    ]
    assert measured(TOKENS, [*PROGRESS, *again]) == measured(TOKENS, PROGRESS)


def test_an_epoch_without_a_report_is_left_out_with_its_time() -> None:
    """Its owner died after the commit, and the next one resumed after it."""
    found = measured(TOKENS, [THIRD])
    assert found == Measured({"a": (20.0, 0.0, 0.0), "b": (0.0, 10.0)}, 10.0, 0.0, 0.25)


@pytest.mark.parametrize(
    ("tokens", "progress", "named"),
    [
        (TOKENS, PROGRESS[:2], "0 epochs that are done, with their tokens and those before, take"),
        ({20: TOKENS[20]}, PROGRESS, "0 epochs that are done"),
        (
            {10: TOKENS[10], 20: replace(TOKENS[20], time_ms=TOKENS[10].time_ms)}, PROGRESS,
            "1 epochs .* take 0.0 s: rates need some time; give a longer window",
        ),
        (
            TOKENS, [*PROGRESS, done(2, (1, "a", 60))],
            "epoch 2: split 1 read 60 rows of a, and its token has no offsets of it there",
        ),
        (TOKENS, [*PROGRESS, done(3, (7, "a", 1))], "epoch 3: split 7 read 1 rows of a"),
    ],
)  # fmt: skip
def test_windows_without_measurements_are_named(
    tokens: dict[int, Token], progress: list[EpochDone | EventTimes], named: str
) -> None:
    with pytest.raises(BadInputError, match=named):
        measured(tokens, progress)


@pytest.mark.parametrize("output", [0.0, 7.0, 90.0, 3e5])
def test_operators_make_of_rows_what_the_sinks_got(job: JobSpec, output: float) -> None:
    rates = job_rates(job, Measured({"a": (20.0, 10.0), "b": (6.0,)}, output, 0.0, 0.1))
    found = job_topology(job, rates)
    assert {node.name: node.parallelism for node in found.nodes}["b"] == 1
    assert sum(sum(rates[name]) for name in feeding(job)) == pytest.approx(output)
    # All of them make as much of a row: of 36 rows/s, of what `joined` makes of these, and of 6.
    per_row = sum(rates["joined"]) / 36
    assert sum(rates["counted"]) == pytest.approx(per_row * sum(rates["joined"]))
    assert sum(rates["b writer"]) == pytest.approx(per_row * 6)


def test_without_input_nothing_flows(job: JobSpec) -> None:
    """Windows that end without input: what was measured shows nothing of any operator."""
    rates = job_rates(job, Measured({}, 30.0, 0.0, 0.0))
    assert {sum(each) for each in rates.values()} == {0.0}


def test_late_rows_are_missing_where_they_are_dropped(job: JobSpec) -> None:
    event_time = EventTimeSpec(column="timestamp")
    late = {
        "a": job.sources["a"].model_copy(update={"event_time": event_time}),
        "b": job.sources["b"].model_copy(
            update={"event_time": event_time.model_copy(update={"late": "update"})}
        ),
    }
    timed = job.model_copy(update={"sources": late})
    found = Measured({"a": (20.0, 10.0), "b": (10.0,)}, 1.0, late=4.0, busiest=0.0)
    assert job_rates(timed, found)["a"] == pytest.approx([18.0, 9.0])
    assert job_rates(timed, found)["b"] == [10.0]
    assert job_rates(job, found)["a"] == [20.0, 10.0]


def test_a_source_of_another_job_is_named(job: JobSpec) -> None:
    with pytest.raises(TopologyError, match="rates of c, which is not there"):
        job_rates(job, Measured({"c": (1.0,)}, 1.0, 0.0, 0.0))


def test_loads_are_shares_of_the_rows() -> None:
    into = Stream("a", "b", ((0, 0, 6.0), (0, 1, 2.0), (1, 0, 2.0)))
    ends = [Node("b", 2), Node("c", 1, output_rates=(9.0,)), Node("d", 1, output_rates=(9.0,))]
    tail = [Stream("b", name, ((0, 0, 1.0), (1, 0, 1.0))) for name in ("c", "d")]
    for rates in (None, (8.0, 2.0)):
        topology = Topology([Node("a", 2, output_rates=rates), *ends], [into, *tail])
        found = loads(topology, busiest=0.4)
        assert found == {"a": [0.4, 0.1], "b": [0.4, 0.1], "c": [0.1], "d": [0.1]}
    nothing = Stream("a", "b", ((0, 0, 0.0), (1, 1, 0.0)))
    still = Topology([Node("a", 2), Node("b", 2, output_rates=(0.0, 0.0))], [nothing])
    assert loads(still, 0.5) == {"a": [0.5, 0.5], "b": [0.5, 0.5]}
    with pytest.raises(BadInputError, match=r"the busiest partition takes -1.0: 0 or more cores"):
        loads(still, -1.0)
