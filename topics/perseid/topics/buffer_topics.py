"""Whether a job's buffer topics are the ones it wrote, and trimming them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from perseid.errors import PermanentError, TransientAnswer
from perseid.topics.admin import Partition, TopicChanger, TopicInfo, TopicReader

AGAIN = (
    "`perseid jobs stop` and `perseid jobs start` the job: its fragments send again what follows "
    "the last checkpoint"
)


class Topics(TopicReader, TopicChanger, Protocol):
    """What trims."""


@dataclass(frozen=True, slots=True)
class BufferTopic:
    """A buffer topic as it was made. `topic_id`: Kafka's topic UUID."""

    name: str
    topic_id: str
    partitions: int


def check(topics: TopicReader, wanted: Iterable[BufferTopic]) -> None:
    """Refuses buffer topics that are not those that were made.

    Raises:
        PermanentError: one was deleted and created again, or has another number of partitions.
        TransientAnswer: one does not exist; repeated, the answer is final (`errors.settling`).
    """
    listed = list(wanted)
    _compare(topics.describe([one.name for one in listed]), listed)


def found(topics: TopicReader, wanted: Mapping[str, int]) -> dict[str, BufferTopic]:
    """The buffer topics with these names and numbers of partitions, as they are now.

    Raises as `check` does, which later refuses another topic of the same name.
    """
    infos = topics.describe(list(wanted))
    ids = {name: infos[name].topic_id if name in infos else "" for name in wanted}
    made = {name: BufferTopic(name, ids[name], count) for name, count in wanted.items()}
    _compare(infos, made.values())
    return made


def _compare(found: Mapping[str, TopicInfo], wanted: Iterable[BufferTopic]) -> None:
    for one in wanted:
        if one.name not in found:
            raise TransientAnswer(
                f"buffer topic {one.name} does not exist: it was deleted, and with it rows that "
                f"were not read yet. {AGAIN}"
            )
        info = found[one.name]
        if info.partitions != one.partitions:
            raise wrong_size(info, one.partitions)
        if info.topic_id != one.topic_id:
            raise PermanentError(
                f"buffer topic {one.name} has the topic UUID {info.topic_id}, expected "
                f"{one.topic_id}: it was deleted and created again. {AGAIN}"
            )


def wrong_size(info: TopicInfo, partitions: int) -> PermanentError:
    """The error for a buffer topic with another number of partitions than this one."""
    return PermanentError(
        f"buffer topic {info.name} has {info.partitions} partitions, expected {partitions}, one "
        "for each partition of its operator. Stop the job, delete the topic with "
        f"`kafka-topics --delete --topic {info.name}`, and start the job"
    )


def check_starts(
    topics: TopicReader, needed: Mapping[Partition, int | None]
) -> dict[Partition, int]:
    """Where to begin reading: an offset for each partition.

    `needed`: the first offset that a reader needs, as kept before the last trim; None where none
    is known: whatever is there. PermanentError when records at or after it are gone.
    """
    starts = topics.starts(needed)
    for place, offset in needed.items():
        if offset is not None and starts[place] > offset:
            raise PermanentError(
                f"buffer topic {place[0]}[{place[1]}] begins at offset {starts[place]}, and its "
                f"reader needs offset {offset}: its records were deleted by hand. {AGAIN}"
            )
    return {p: starts[p] if offset is None else offset for p, offset in needed.items()}


def trim(
    topics: Topics, wanted: BufferTopic, before: Mapping[int, int]
) -> dict[Partition, int]:  # fmt: skip
    """Deletes the records of each partition below the offset; the new first offsets.

    The caller keeps the offsets for `check_starts` before: a trim may have its effect without an
    answer, and would look like one by hand.

    Raises:
        PermanentError: it is not the topic that was made, or ends before the offset.
        RetryableError: no answer; the records may be deleted or not, and may be trimmed again.
    """
    check(topics, [wanted])
    places = {(wanted.name, partition): offset for partition, offset in before.items()}
    starts, ends = topics.starts(places), topics.ends(places, committed=False)
    for place, offset in places.items():
        if offset > ends[place]:
            raise PermanentError(
                f"buffer topic {place[0]}[{place[1]}] ends at offset {ends[place]}, and was read "
                f"up to {offset}: the broker has lost records that it had acknowledged. {AGAIN}"
            )
    cuts = {place: offset for place, offset in places.items() if offset > starts[place]}
    topics.delete_records(cuts)
    return cuts
