"""Checks that source topics keep their records for as long as a job may need them. Pure.

State is in checkpoints, so a running job never reads a record twice; but records after the newest
checkpoint are read again after a failure, and a start from scratch or an audit needs all rows of a
window. Consecutive operators add up: an hour's window of ten minutes' windows needs 70 minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perseid.jobs.model.spec import JobSpec, producer
from perseid.jobs.operator import Operator
from perseid.topics.admin import TopicInfo

Looks = tuple[int, tuple[str, ...]]  # how far back in ms, and the operators that look so far


def refusals(
    spec: JobSpec, classes: Mapping[str, type[Operator]], topics: Mapping[str, TopicInfo]
) -> Iterator[str]:
    """Why a source's topic keeps its records for too short a time."""
    replayed_ms = round(spec.fault_tolerance.checkpoint.period_s * 2000)
    for name, source in spec.sources.items():
        info = topics.get(source.topic)
        if info is None or info.retention_ms < 0:
            continue
        kept = f"source {name}: topic {source.topic} keeps its records for {_described(info)}"
        back_ms, operators = looks_back(name, spec, classes)
        if back_ms and source.event_time is not None:
            back_ms += source.event_time.delay_ms
        if info.retention_ms < back_ms:
            yield (
                f"{kept}, and {' with '.join(f'operator {o}' for o in operators)} looks "
                f"{duration(back_ms)} back: a start from scratch or an audit would not find all "
                f"rows of its window; {_raise(info, back_ms)}, or make the window shorter"
            )
        elif info.retention_ms < replayed_ms:
            yield (
                f"{kept}, and a replay may need the records of two checkpoint periods "
                f"({duration(replayed_ms)}); {_raise(info, replayed_ms)}, or write a shorter "
                "`faultTolerance: {checkpoint: {period: ...}}`"
            )


def looks_back(node: str, spec: JobSpec, classes: Mapping[str, type[Operator]]) -> Looks:
    """The farthest that operators after `node` look back, and which they are.

    Feedback edges carry rows of the previous epoch, and add nothing.
    """
    found: Looks = 0, ()
    for name, operator in spec.operators.items():
        if node in map(producer, operator.forward.values()):
            own_ms = classes[name].history_ms if name in classes else 0
            downstream_ms, others = looks_back(name, spec, classes)
            names = (name, *others) if own_ms else others
            found = max(found, (own_ms + downstream_ms, names))
    return found


def duration(milliseconds: int) -> str:
    """In a job file's notation: in the largest unit that divides it evenly."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def _raise(info: TopicInfo, milliseconds: int) -> str:
    return (
        "type `kafka-configs --alter --entity-type topics --entity-name "
        f"{info.name} --add-config retention.ms={milliseconds}`"
    )


def _described(info: TopicInfo) -> str:
    return f"{duration(info.retention_ms)} (retention.ms={info.retention_ms})"
