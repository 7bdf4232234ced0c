"""The topics that a job keeps for itself: made before a plan needs them.

Token log, progress and ledger are the same for every layout, but the ledger may grow. A spread job
has buffer topics for each layout:

1. They are made before a plan with the layout is written: when the job is loaded, and when the
   program that it switches to is.
2. One of a plan that was deleted is made again, empty: readers notice by its topic UUID, and after
   a stop and a start the fragments send again what follows the last checkpoint. So a backup needs
   no buffers.
3. Those that the plan does not have are deleted once a checkpoint is above the plan's base: then
   no fragment and no restore goes back to the layout before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from perseid.errors import RetryableError
from perseid.jobs.model.buffers import buffer_specs, buffer_topics
from perseid.jobs.model.layout import build
from perseid.topics import names
from perseid.topics.admin import TopicChanger, TopicInfo, TopicReader
from perseid.topics.buffer_topics import wrong_size
from perseid.topics.control import TopicSpec, control_topics, refuse_unlike

if TYPE_CHECKING:
    from perseid.coordinator.actions import TrimLogs
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import CheckpointPointers, Plan
    from perseid.registry import Registry


class Topics(TopicReader, TopicChanger, Protocol):
    """Both ports of `perseid.topics.admin` in one object."""


def make(topics: Topics, job: str, spec: JobSpec, number: int, *, in_force: bool) -> None:
    """Ensures that `job` has the topics of the layout with that number.

    `in_force`: a plan has the layout. Otherwise a buffer topic of its name is of a revision that
    was dropped, or of an earlier job, and nothing needs it.

    Raises:
        PermanentError: a topic would lose needed records, or a buffer topic in force has another
            number of partitions.
        RetryableError: another buffer topic had another number. It is deleted, and made again.
    """
    layout = build(spec, number)
    control = control_topics(job, layout.ledger_partitions)
    buffers = buffer_specs(spec, layout)
    there = topics.describe([topic.name for topic in (*control, *buffers)])
    for topic in (*control, *buffers):
        info = there.get(topic.name)
        if info is None:
            topics.create(topic.name, topic.partitions, topic.config)
            continue
        refuse_unlike(topic, info)
        if topic in buffers:
            _check_size(topics, topic, info, in_force=in_force)
        elif info.partitions < topic.partitions:
            topics.grow(topic.name, topic.partitions)


def _check_size(topics: Topics, wanted: TopicSpec, info: TopicInfo, *, in_force: bool) -> None:
    """A buffer topic has a partition for each of its operator, no more."""
    if info.partitions == wanted.partitions:
        return
    if in_force:
        raise wrong_size(info, wanted.partitions)
    topics.delete([wanted.name])
    raise RetryableError(
        f"buffer topic {wanted.name} had {info.partitions} partitions, expected "
        f"{wanted.partitions}; no plan has its layout, so it is deleted and made again"
    )


def is_settled(plan: Plan, pointers: CheckpointPointers | None) -> bool:
    """Whether a complete checkpoint is above the plan's base, so that nothing goes back to it."""
    ours = pointers is not None and pointers.job_uuid == plan.job_uuid
    kept = pointers.pointers if pointers is not None and ours else ()
    return bool(kept) and kept[0].epoch > plan.base_epoch


def unneeded(existing: Iterable[str], spec: JobSpec, plan: Plan) -> list[str]:
    """The buffer topics that a settled plan does not have; `spec` is that of the plan.

    Those of a higher layout may be of the revision that a switch is about to name in a plan.
    """
    wanted = buffer_topics(spec, build(spec, plan.layout))
    layouts = {name: names.of_buffer(plan.job, name) for name in existing if name not in wanted}
    return sorted(name for name, of in layouts.items() if of is not None and of[1] <= plan.layout)


def drop(
    registry: Registry,
    topics: Topics,
    action: TrimLogs,
    spec_of: Callable[[str], JobSpec],
    tidied: set[tuple[str, int, int]],
) -> list[str]:
    """Deletes the job's buffer topics that nothing needs any more; their names.

    `spec_of`: reads an archive. `tidied`: UUID, layout and base epoch of the plans whose buffers
    were looked up; gets this one, once it is settled.
    """
    plan = registry.plan(action.job)
    if plan is None or plan.job_uuid != action.job_uuid:
        return []
    looked = plan.job_uuid, plan.layout, plan.base_epoch
    if looked in tidied or not is_settled(plan, registry.pointers(action.job)):
        return []
    gone = unneeded(topics.list(), spec_of(plan.archive), plan)
    topics.delete(gone)
    tidied.add(looked)
    return gone
