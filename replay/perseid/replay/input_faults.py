"""Whether the input of past epochs is there, and is the one that they read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perseid.errors import InputChanged, LogTruncated, ReplayDataLost, TopicIdentityChanged

if TYPE_CHECKING:
    from perseid.errors import PerseidError
    from perseid.topics.admin import TopicReader
    from perseid.topics.records import Token

_GONE = (ReplayDataLost, LogTruncated, TopicIdentityChanged)


def has_changed(error: PerseidError) -> bool:
    """Whether a run ended because it read other records than the tokens' checks have."""
    return isinstance(error, InputChanged)


def is_gone(error: PerseidError) -> bool:
    """Whether a run ended because records of its past were removed.

    A task's error has lost its class on its way to the driver, and begins with its name.
    """
    named = str(error).partition("(")[0]
    return isinstance(error, _GONE) or named in {kind.__name__ for kind in _GONE}


def missing(tokens: Iterable[Token], topics: TopicReader) -> str:
    """What the sources lack of what the tokens read, before anything runs; "" if nothing."""
    needed: dict[tuple[str, int], int] = {}
    ids: dict[str, str] = {}
    for found in (r for token in tokens for split in token.splits for r in split):
        if found.end > found.start:
            place = found.topic, found.partition
            needed[place] = min(found.start, needed.get(place, found.start))
            ids.setdefault(found.topic, found.topic_id)
    there = topics.identities(sorted(ids))
    for topic, topic_id in sorted(ids.items()):
        if topic not in there:
            return f"source topic {topic} does not exist any more"
        if there[topic] != topic_id:
            return f"source topic {topic} was deleted and created again"
    for (topic, partition), start in sorted(topics.starts(needed).items()):
        wanted = needed[topic, partition]
        if start > wanted:
            return (
                f"{topic}[{partition}] begins at offset {start}, and the epochs read it from "
                f"{wanted} on"
            )
    return ""
