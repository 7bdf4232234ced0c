"""The topics that a job itself needs: how many partitions, which settings, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from perseid.errors import PermanentError
from perseid.topics import names
from perseid.topics.admin import TopicInfo
from perseid.topics.durability import alter

# A broker deletes whole segments only, and never the active one. It stamps each record by its own
# clock: that bounds token time (`coordinator.token_time`), and records of a process with a clock
# far ahead are not refused.
_SETTINGS = {"segment.bytes": str(16 << 20), "message.timestamp.type": "LogAppendTime"}
_FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"} | _SETTINGS
_PROGRESS_MS = 3_600_000  # only the current coordinator needs progress


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be created; `why` is for people."""

    name: str
    partitions: int
    config: Mapping[str, str]
    why: str


def buffer_topic(job: str, operator: str, layout: int, partitions: int) -> TopicSpec:
    """The topic of rows for `operator` from other fragments; a partition for each of its own."""
    name = names.buffer(job, operator, layout)
    return TopicSpec(name, partitions, _FOREVER, f"rows for {operator} from other fragments")


def redriven_topic(job: str) -> TopicSpec:
    """The topic that the first `dlq redrive` creates."""
    return TopicSpec(names.redriven(job), 1, _FOREVER, "which dead letters were redriven")


def optional_topics(job: str, existing: Iterable[str]) -> tuple[TopicSpec, ...]:
    """Those of `existing` that the job keeps and can be without: redriven letters and buffers.

    Each with one partition, since a name does not give their number.
    """
    found = sorted(existing)
    buffers = [which for name in found if (which := names.of_buffer(job, name))]
    trail = [redriven_topic(job)] if names.redriven(job) in found else []
    return (*trail, *(buffer_topic(job, *which, 1) for which in buffers))


def deviations(wanted: TopicSpec, info: TopicInfo) -> Iterator[tuple[str, str, str]]:
    """Settings with which the topic would lose needed records: name, found, expected."""
    policy = wanted.config["cleanup.policy"]
    if info.cleanup_policy != policy:
        yield "cleanup.policy", info.cleanup_policy, policy
    for name, found in (
        ("retention.ms", info.retention_ms), ("retention.bytes", info.retention_bytes)
    ):  # fmt: skip
        if wanted.config.get(name) == "-1" and found >= 0:
            yield name, str(found), "-1"


def refuse_unlike(wanted: TopicSpec, info: TopicInfo) -> None:
    """Raises PermanentError if an existing control topic would lose needed records."""
    for name, found, expected in deviations(wanted, info):
        raise PermanentError(
            f"topic {info.name} has {name}={found}, expected {expected}: it is "
            f"{wanted.why}, and what it loses cannot be restored; "
            f"{alter(info.name, name, expected)}, then `perseid jobs start` the job"
        )


def control_topics(job: str, ledger_partitions: int) -> tuple[TopicSpec, ...]:
    """Tokens, progress and ledger. None is compacted: an older record may be the valid one.

    The coordinator trims tokens and ledger before the oldest kept checkpoint.
    """
    progress = {"cleanup.policy": "delete", "retention.ms": str(_PROGRESS_MS)} | _SETTINGS
    return (
        TopicSpec(names.tokens(job), 1, _FOREVER, "names the input of every epoch"),
        TopicSpec(names.progress(job), 1, progress, "what workers report"),
        TopicSpec(
            names.ledger(job), max(1, ledger_partitions), _FOREVER, "which epochs are committed"
        ),
    )
