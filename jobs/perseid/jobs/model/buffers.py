"""Which buffer topics a job has. Pure: the same for the same spec and layout."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perseid.jobs.model.spread import spread_of
from perseid.topics.control import TopicSpec, buffer_topic

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout
    from perseid.jobs.model.spec import JobSpec


def buffer_topics(spec: JobSpec, layout: Layout) -> dict[str, int]:
    """The buffer topics of a job with their partitions; none for a job of one fragment.

    One for each operator that gets rows from another task: keyed operators and writers, that of
    dead letters included. It has a partition for each of the operator's.
    """
    return {topic.name: topic.partitions for topic in buffer_specs(spec, layout)}


def buffer_specs(spec: JobSpec, layout: Layout) -> tuple[TopicSpec, ...]:
    """The same, with settings and purpose."""
    if spread_of(spec, layout) is None:
        return ()
    consumers = Counter(task.operator for task in layout.tasks)
    return tuple(
        buffer_topic(spec.name, operator, layout.number, partitions)
        for operator, partitions in sorted(consumers.items())
    )
