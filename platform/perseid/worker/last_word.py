"""A fragment's words on the progress topic, and whether the last of them is still there.

The coordinator hears nothing else of a fragment. Where the topic loses its newest records, or is
made again, a fragment that has ended or waits for a token would be waited for without an end: so
it looks now and then whether the topic still reaches beyond its last word, and else says how it is
once more.
"""

from __future__ import annotations

import logging
from typing import Protocol

from perseid.errors import PerseidError
from perseid.topics import names
from perseid.topics.admin import TopicReader
from perseid.topics.records import FragmentState, ProgressRecord

_log = logging.getLogger("perseid.worker")
LOOK_S = 5.0  # between looks
REPEATED = "repeated"  # the state of a fragment that goes on, told again


class Appender(Protocol):
    """As `perseid.topics.log.ProgressLog`."""

    def append(self, record: ProgressRecord) -> int: ...


class LastWord:
    """What one fragment tells. Not for two threads at once."""

    def __init__(self, job: str, progress: Appender, topics: TopicReader) -> None:
        self._progress, self._topics = progress, topics
        self._place = (names.progress(job), 0)
        self._told: tuple[int, str] | None = None  # offset and topic id

    def append(self, record: ProgressRecord) -> int:
        """As `ProgressLog.append`."""
        offset = self._progress.append(record)
        self._told = offset, self._told[1] if self._told is not None else ""
        return offset

    def look(self, again: FragmentState) -> bool:
        """Tells `again` when the last word is gone, and whether it did.

        A broker that does not answer, or refuses to, proves nothing.
        """
        if self._told is None:
            return False
        try:
            lost = self._lost()
            if lost:
                _log.warning("%s: told again", lost)
                self._told = self._progress.append(again), ""
        except PerseidError as error:
            _log.warning("whether the last word is still there is not known now: %s", error)
            return False
        return bool(lost)

    def _lost(self) -> str:
        """Why the last word is gone; empty when it is there."""
        assert self._told is not None
        offset, topic_id = self._told
        topic = self._place[0]
        found = self._topics.identities([topic]).get(topic, "")
        end = self._topics.ends([self._place], committed=False)[self._place] if found else 0
        if end <= offset:
            return f"{topic}[0] ends at {end}, and the last word was told at {offset}"
        if topic_id and topic_id != found:
            return f"{topic} was deleted and made again"
        self._told = offset, found
        return ""
