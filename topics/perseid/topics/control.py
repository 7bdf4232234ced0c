"""The topics that a job itself needs: how many partitions, which settings, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perseid.topics import names

# A broker deletes whole segments only, and never the one that it writes to. It stamps each record
# by its own clock: that bounds token time (`coordinator.token_time`), and the records of a process
# whose clock is far ahead are not refused.
_SETTINGS = {"segment.bytes": str(16 << 20), "message.timestamp.type": "LogAppendTime"}
_FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"} | _SETTINGS
_PROGRESS_MS = 3_600_000  # progress is for the coordinator of the day


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it is to be created; `why` is for people."""

    name: str
    partitions: int
    config: Mapping[str, str]
    why: str


def redriven_topic(job: str) -> TopicSpec:
    """Made by the first `dlq redrive`."""
    return TopicSpec(names.redriven(job), 1, _FOREVER, "which dead letters were redriven")


def control_topics(job: str, ledger_partitions: int) -> tuple[TopicSpec, ...]:
    """Tokens, progress and ledger. None is compacted: an older record may be the valid one.

    The coordinator trims tokens and ledger behind the oldest checkpoint that is kept.
    """
    progress = {"cleanup.policy": "delete", "retention.ms": str(_PROGRESS_MS)} | _SETTINGS
    return (
        TopicSpec(names.tokens(job), 1, _FOREVER, "names the input of every epoch"),
        TopicSpec(names.progress(job), 1, progress, "what workers report"),
        TopicSpec(
            names.ledger(job), max(1, ledger_partitions), _FOREVER, "which epochs are committed"
        ),
    )
