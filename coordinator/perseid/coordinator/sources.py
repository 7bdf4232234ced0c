"""Checks that the source topics still match the tokens, and where new partitions begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from perseid.coordinator.events import SourceTopic
from perseid.coordinator.job.inputs import Inputs
from perseid.coordinator.job.positions import Position, Positions, first_positions, ranges_of
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.errors import (
    LogTruncated,
    PermanentError,
    PerseidError,
    ReplayDataLost,
    TopicIdentityChanged,
    TransientAnswer,
)
from perseid.jobs.model.spec import JobSpec
from perseid.topics.records import Token

Topics = Mapping[str, SourceTopic | None]


def fault(spec: JobSpec, positions: Positions, topics: Topics) -> PerseidError | None:
    """The first reason why the job must not continue; ignores topics that were not asked for.

    A TransientAnswer only counts if it is repeated for a while.
    """
    for name, source in spec.sources.items():
        if source.topic not in topics:
            continue
        known = {p: at for (s, p), at in positions.items() if s == name}
        error = _fault_of(source.topic, known, topics[source.topic])
        if error is not None:
            return error
    return None


def truncated(
    inputs: Inputs, ends: Mapping[tuple[str, int], int], asked_s: float
) -> LogTruncated | None:
    """The first partition that ends below the job's position in it.

    Later records there would be skipped as already read. Only a look that began after the positions
    last moved is valid: an older one saw an earlier end.
    """
    if asked_s <= inputs.reached_s:
        return None
    lost = [
        (at.topic, partition, at.offset, end)
        for (_, partition), at in inputs.positions.items()
        if (end := ends.get((at.topic, partition))) is not None and end < at.offset
    ]
    return LogTruncated(*min(lost)) if lost else None


def named(tokens: Iterable[Token]) -> frozenset[tuple[str, str]]:
    """The (source, topic) pairs that the tokens name. All other sources begin by their `start`.

    Those are all sources of a new job, and the ones that a switch has added. If a leader dies right
    after the switch, the next one does not know where they begin; the first token of a revision and
    checkpoint tokens name all positions.
    """
    return frozenset((r.source, r.topic) for token in tokens for r in ranges_of(token))


def begun(spec: JobSpec, tokens: Iterable[Token], ever: Iterable[Token]) -> Positions:
    """Where those sources of `spec` began that only rolled-back tokens of `ever` name.

    The input of such a token must be read again, and `start` may resolve to another offset by now.
    """
    known = named(tokens)
    first = first_positions(spec, ever)
    return {place: at for place, at in first.items() if (place[0], at.topic) not in known}


def with_new_partitions(job: JobState, topics: Topics, now: Now) -> JobState:
    """Adds partitions that appeared since, from their first offset."""
    if job.program is None or not job.chain.begun:
        return job
    found = dict(job.inputs.positions)
    for name, source in job.program.spec.sources.items():
        topic = topics.get(source.topic)
        if topic is None or not any(s == name for s, _ in job.inputs.positions):
            continue  # a source without any position is resolved by its `start` when it is loaded
        for partition, start in topic.starts.items():
            found.setdefault((name, partition), Position(source.topic, topic.topic_id, start))
    if len(found) == len(job.inputs.positions):
        return job
    return replace(job, inputs=job.inputs.moved(found, now.monotonic_s))


def _fault_of(
    name: str, known: Mapping[int, Position], topic: SourceTopic | None
) -> PerseidError | None:
    recorded = next(iter(known.values()), None)
    if topic is None and recorded is not None:
        return TransientAnswer(
            f"source topic {name} does not exist any more (it had the id {recorded.topic_id}): one "
            "of that name is another topic, so remove the job and apply it again"
        )
    if topic is None:
        return TransientAnswer(
            f"source topic {name} does not exist; create it with `perseid topics create {name}`"
        )
    if recorded is not None and recorded.topic_id != topic.topic_id:
        return TopicIdentityChanged(name, recorded.topic_id, topic.topic_id)
    if topic.compacted:
        return PermanentError(
            f"source topic {name} is compacted (cleanup.policy): records of a range that was read "
            "may vanish, so it could not be read again; copy it to a topic with policy delete"
        )
    for partition, position in known.items():
        earliest = topic.starts.get(partition, 0)
        if earliest > position.offset:
            return ReplayDataLost(name, partition, position.offset, earliest)
    return None
