"""Whether the source topics are still what the tokens say, and where new partitions begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from perseid.coordinator.events import SourceTopic
from perseid.coordinator.model import (
    JobState,
    Now,
    Position,
    Positions,
    first_positions,
    ranges_of,
)
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
    """The first reason why the job must not go on; topics that were not asked for are left out.

    TransientAnswer: only if that is heard for longer.
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
    job: JobState, ends: Mapping[tuple[str, int], int], asked_s: float
) -> LogTruncated | None:
    """The first partition that ends below the job's position in it.

    Records that are written there later would be taken for read. Only a look that was begun behind
    the last move of the positions can tell: an older one saw the end of then.
    """
    if asked_s <= job.reached_s:
        return None
    lost = [
        (at.topic, partition, at.offset, end)
        for (_, partition), at in job.positions.items()
        if (end := ends.get((at.topic, partition))) is not None and end < at.offset
    ]
    return LogTruncated(*min(lost)) if lost else None


def named(tokens: Iterable[Token]) -> frozenset[tuple[str, str]]:
    """The (source, topic) that the tokens name. All others begin by their `start`.

    These are all of a new job, and what a switch has added. A leader that dies behind the switch
    has not told the next one where they begin; the first token of a revision and those of
    checkpoints name all positions.
    """
    return frozenset((r.source, r.topic) for token in tokens for r in ranges_of(token))


def begun(spec: JobSpec, tokens: Iterable[Token], ever: Iterable[Token]) -> Positions:
    """Where sources of `spec` began that none of `tokens` names, but one of `ever`, taken back.

    What such a token had of it is to be read again. Its `start` may be another place by now.
    """
    known = named(tokens)
    first = first_positions(spec, ever)
    return {place: at for place, at in first.items() if (place[0], at.topic) not in known}


def with_new_partitions(job: JobState, topics: Topics, now: Now) -> JobState:
    """Adds partitions that appeared since, from their first offset."""
    if job.program is None or not job.begun:
        return job
    found = dict(job.positions)
    for name, source in job.program.spec.sources.items():
        topic = topics.get(source.topic)
        if topic is None or not any(s == name for s, _ in job.positions):
            continue  # a source without any position is resolved by its `start` when it is loaded
        for partition, start in topic.starts.items():
            found.setdefault((name, partition), Position(source.topic, topic.topic_id, start))
    if len(found) == len(job.positions):
        return job
    return replace(job, positions=found, reached_s=now.monotonic_s)


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
