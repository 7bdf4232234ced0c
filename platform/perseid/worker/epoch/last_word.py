"""A fragment's words on the progress topic, and whether the last of them is still there.

The coordinator hears nothing else of a fragment. Where the topic loses its newest records, or is
made again, a fragment that has ended or waits for a token would be waited for without an end: so
it looks now and then whether its last word still stands where it was told, and else says how it is
once more. Others tell their words there too, so a topic that was cut may have grown again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from perseid.errors import PerseidError
from perseid.topics import codec, names
from perseid.topics.admin import TopicReader
from perseid.topics.log import LogReader
from perseid.topics.records import FragmentState, ProgressRecord

_log = logging.getLogger("perseid.worker")
LOOK_S = 5.0  # between looks
REPEATED = "repeated"  # the state of a fragment that goes on, told again


class Appender(Protocol):
    """As `perseid.topics.log.ProgressLog`."""

    def append(self, record: ProgressRecord) -> int: ...


class LastWord:
    """What one fragment tells. Not for two threads at once."""

    def __init__(
        self, job: str, progress: Appender, topics: TopicReader,
        new_reader: Callable[[], LogReader],
    ) -> None:  # fmt: skip
        self._progress, self._topics, self._new_reader = progress, topics, new_reader
        self._place = (names.progress(job), 0)
        self._told: tuple[int, str] | None = None  # offset and topic id
        self._word = b""  # what stands at that offset
        self._end = -1  # of the topic, when the word was last seen there
        self._reached = -1  # the highest offset of an earlier word

    def append(self, record: ProgressRecord) -> int:
        """As `ProgressLog.append`."""
        offset = self._progress.append(record)
        before, topic_id = self._told if self._told is not None else (-1, "")
        self._reached = max(self._reached, before)
        self._told, self._word, self._end = (offset, topic_id), codec.encode(record), -1
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
                self._told = self.append(again), ""
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
        if found and topic_id not in ("", found):
            self._told, self._reached = (-1, ""), -1  # of another log
            return f"{topic} was deleted and made again"
        if end <= offset:
            return f"{topic}[0] ends at {end}, and the last word was told at {offset}"
        if offset <= self._reached:  # who has read up to there does not see what stands here
            return f"{topic}[0] has an earlier word at {self._reached}, and the last at {offset}"
        if end != self._end and not self._stands_at(offset):
            return f"{topic}[0] has another record at {offset}, where the last word was told"
        self._end = end
        self._told = offset, found
        return ""

    def _stands_at(self, offset: int) -> bool:
        """Asked once for each end of the topic: a fragment that waits reads nothing again."""
        with closing(self._new_reader()) as reader:
            found = reader.read_range(*self._place, offset, offset + 1, timeout_s=LOOK_S)
        return [entry.value for entry in found] == [self._word]
