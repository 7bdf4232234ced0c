"""A job's rates and loads, as measured from the progress topic and the tokens.

Measured over the epochs of a window, each with the time since the previous token: the rows/s of
each source partition, of all sinks together and of late rows, and how busy the busiest operator
partition was (`stage_ms["process"]` of the slowest one). An epoch reports the rows that each split
read of a source; its token names the offsets and partitions that those were.

Flows between operators and the cost of each partition are not reported, so they are assumed:

1. A source that drops late rows lacks them downstream; all sources are late to the same degree.
2. Keys spread evenly, and each operator makes q rows of a row: one q for all, chosen so that the
   sinks get what was measured.
3. A row costs each partition the same. So a partition's share of the busiest one's cores is that of
   its rows, which is the paper's formula (incremental recovery, section 2.3).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perseid.coordinator.planners.job_topology import feeding, job_topology
from perseid.coordinator.planners.topology import Topology
from perseid.errors import BadInputError
from perseid.jobs.model.spec import JobSpec
from perseid.topics.records import EpochDone, EventTimes, Token

HALVINGS = 200  # of the interval that contains q: beyond the precision of a float


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a window. `sources`: by source, rows/s read of each partition of its topic.

    Partitions above the last one that was read are missing.
    """

    sources: Mapping[str, tuple[float, ...]]
    output: float  # rows/s that all sinks got together
    late: float  # rows/s below the watermark, whether dropped or not
    busiest: float  # cores: the share of time in which the busiest operator partition processed


def measured(tokens: Mapping[int, Token], progress: Iterable[EpochDone | EventTimes]) -> Measured:
    """Measures a window of one job: its valid tokens, by offset, and its progress records.

    Excluded, with its time, is an epoch without a report (its owner died after the commit), and one
    whose token or previous token is missing; a repeated epoch counts once. Raises BadInputError if
    no time is left, or if an epoch read what its token does not name. O(records + ranges).

    >>> from perseid.topics.records import InputCheck, SourceRange
    >>> def token(epoch, start, end):
    ...     rows = SourceRange("lines", "lines", "t", 0, start, end)
    ...     return Token(1, "u", epoch, epoch - 1, "r", 1, ((rows,),), time_ms=epoch * 1000)
    >>> def done(epoch, rows):
    ...     checks = (InputCheck(epoch, 0, "lines", rows, 0),)
    ...     return EpochDone("u", 1, "w", epoch, epoch, rows, 5, 90, {"process": 20}, checks=checks)
    >>> tokens = {1: token(1, 0, 90), 2: token(2, 90, 120), 3: token(3, 120, 140)}
    >>> measured(tokens, [done(1, 90), done(2, 30), done(3, 20)])
    Measured(sources={'lines': (25.0,)}, output=5.0, late=0.0, busiest=0.02)
    """
    done: dict[int, EpochDone] = {}
    late: dict[int, int] = {}
    for record in progress:
        token = tokens.get(record.token_offset)
        if token is None or (token.job_uuid, token.epoch) != (record.job_uuid, record.epoch):
            continue
        if isinstance(record, EpochDone):
            done[record.token_offset] = record
        else:
            late[record.token_offset] = record.late
    counted = [offset for offset in sorted(done) if tokens[offset].previous_offset in tokens]
    times_ms = [(tokens[tokens[o].previous_offset].time_ms, tokens[o].time_ms) for o in counted]
    elapsed_s = sum(end - start for start, end in times_ms) / 1000
    if elapsed_s <= 0:
        raise BadInputError(
            f"{len(counted)} epochs that are done, with their tokens and those before, take "
            f"{elapsed_s} s: rates need some time; give a longer window"
        )
    rows: dict[str, defaultdict[int, float]] = {}
    for offset in counted:
        _add(rows, tokens[offset], done[offset])
    records = [done[offset] for offset in counted]
    return Measured(
        {
            name: tuple(found[p] / elapsed_s for p in range(max(found) + 1))
            for name, found in sorted(rows.items())
        },
        sum(max(record.rows_out - record.dead_letters, 0) for record in records) / elapsed_s,
        sum(late.get(offset, 0) for offset in counted) / elapsed_s,
        sum(record.stage_ms.get("process", 0) for record in records) / 1000 / elapsed_s,
    )


def job_rates(spec: JobSpec, found: Measured) -> dict[str, list[float]]:
    """The `rates` of `job_topology`: measured for sources, assumed for operators (see above).

    They are 0 for a source that was not read. O(nodes).

    >>> from perseid.jobs.model.spec import OperatorSpec, SinkSpec, SourceSpec
    >>> words = OperatorSpec(inputs={"input": "lines"}, use="m:W", key=("word",), parallelism=2)
    >>> sums = OperatorSpec(inputs={"input": "words"}, use="m:S", key=("word",), parallelism=1)
    >>> job = JobSpec(
    ...     name="j", parallelism=2, sources={"lines": SourceSpec(topic="lines", format="text")},
    ...     operators={"words": words, "sums": sums},
    ...     sinks={"sums": SinkSpec(input="sums", topic="sums", format="json")},
    ... )
    >>> job_rates(job, Measured({"lines": (50.0, 30.0)}, output=20.0, late=0.0, busiest=0.1))
    {'lines': [50.0, 30.0], 'words': [20.0, 20.0], 'sums': [20.0]}
    """
    rates = {name: [0.0] * spec.parallelism for name in spec.sources}
    rates |= {name: list(each) for name, each in found.sources.items()}
    timed = sum(sum(rates[name]) for name in spec.event_times)
    kept = max(0.0, 1 - found.late / timed) if timed else 1.0
    for name, event_time in spec.event_times.items():
        if event_time.late != "update":
            rates[name] = [rate * kept for rate in rates[name]]
    topology = job_topology(spec, rates)
    totals = _totals(topology, _selectivity(topology, feeding(spec), found.output))
    for node in topology.nodes:
        rates.setdefault(node.name, [totals[node.name] / node.parallelism] * node.parallelism)
    return rates


def loads(topology: Topology, busiest: float = 1.0) -> dict[str, list[float]]:
    """By operator, the cores of each partition if the busiest non-source one uses `busiest`.

    A source's partitions cost what they send, all others what they get; if nothing flows, all cost
    the same. O(substreams).

    >>> from perseid.coordinator.planners.graph import Node, Stream
    >>> topology = Topology(
    ...     [Node("src", 2), Node("sink", 1, output_rates=(1.0,))],
    ...     [Stream("src", "sink", ((0, 0, 20.0), (1, 0, 10.0)))],
    ... )
    >>> loads(topology, busiest=0.75)
    {'src': [0.5, 0.25], 'sink': [0.75]}
    """
    if not (math.isfinite(busiest) and busiest >= 0):
        raise BadInputError(f"the busiest partition takes {busiest}: 0 or more cores")
    rows = {node.name: _rows(topology, node.name) for node in topology.nodes}
    downstream = [max(rows[n.name]) for n in topology.nodes if topology.inputs(n.name)]
    most = max(downstream or [max(each) for each in rows.values()])
    if most == 0:
        return {name: [busiest] * len(each) for name, each in rows.items()}
    return {name: [busiest * (some / most) for some in each] for name, each in rows.items()}


def _add(rows: dict[str, defaultdict[int, float]], token: Token, done: EpochDone) -> None:
    """Assigns the rows of each split and source to the partitions, in proportion to their offsets.

    Offsets exceed rows if transactions leave markers and aborted records.
    """
    for check in done.checks:
        split = token.splits[check.split] if check.split < len(token.splits) else ()
        ranges = [r for r in split if r.source == check.source]
        offsets = sum(r.end - r.start for r in ranges)
        if check.count and not offsets:
            raise BadInputError(
                f"epoch {done.epoch}: split {check.split} read {check.count} rows of "
                f"{check.source}, and its token has no offsets of it there: give the tokens and "
                "the progress of one job"
            )
        found = rows.setdefault(check.source, defaultdict(float))
        for one in ranges:
            found[one.partition] += check.count * (one.end - one.start) / max(offsets, 1)


def _totals(topology: Topology, selectivity: float) -> dict[str, float]:
    """By operator, its output rows/s if each one except the sources has this selectivity."""
    totals: dict[str, float] = {}
    for node in topology.nodes:
        inputs = topology.inputs(node.name)
        got = sum(totals[stream.source] for stream in inputs)
        totals[node.name] = selectivity * got if inputs else sum(node.output_rates or ())
    return totals


def _selectivity(topology: Topology, ends: Sequence[str], output: float) -> float:
    """The selectivity at which `ends` together send `output`; 1 if no input sends rows."""

    def sent(selectivity: float) -> float:
        totals = _totals(topology, selectivity)
        return sum(totals[name] for name in ends)

    if sent(1.0) == 0:
        return 1.0
    low, high = 0.0, 1.0
    while sent(high) < output:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if sent(middle) < output else (low, middle)
    return high


def _rows(topology: Topology, name: str) -> list[float]:
    """By partition, the rows/s that it gets, or for a source those that it sends."""
    node, inputs = topology.node(name), topology.inputs(name)
    if not inputs and node.output_rates is not None:
        return list(node.output_rates)
    found = [0.0] * node.parallelism
    if inputs:
        for stream in inputs:
            for _, j, rate in stream.substreams:
                found[j] += rate
        return found
    for stream in topology.streams:
        if stream.source == name:  # each of its readers gets all
            sent = [0.0] * node.parallelism
            for i, _, rate in stream.substreams:
                sent[i] += rate
            found = [max(pair) for pair in zip(found, sent, strict=True)]
    return found
