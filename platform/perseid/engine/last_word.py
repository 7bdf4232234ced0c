"""A fragment's records on the progress topic, and whether the last of them is still there.

The coordinator learns about a fragment from these records alone. If the topic loses its newest
records or is created again, the coordinator would wait without end for a fragment that has ended or
waits for a token. So the fragment checks every LOOK_S whether its last record is still at its
offset, and reports its state again if not. Other fragments append there too, so a truncated topic
may have grown again.
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
LOOK_S = 5.0  # time between two checks
REPEATED = "repeated"  # state of a running fragment that reports again


class Appender(Protocol):
    """The part of `perseid.topics.log.ProgressLog` used here."""

    def append(self, record: ProgressRecord) -> int: ...


class LastWord:
    """The progress reports of one fragment. Not thread safe."""

    def __init__(
        self, job: str, progress: Appender, topics: TopicReader,
        new_reader: Callable[[], LogReader],
    ) -> None:  # fmt: skip
        self._progress, self._topics, self._new_reader = progress, topics, new_reader
        self._place = (names.progress(job), 0)
        self._reported: tuple[int, str] | None = None  # offset and topic id of the last record
        self._word = b""  # the last record, as encoded
        self._end = -1  # end of the topic when the record was last seen there
        self._reached = -1  # highest offset of an earlier record

    def append(self, record: ProgressRecord) -> int:
        """Like `ProgressLog.append`."""
        offset = self._progress.append(record)
        before, topic_id = self._reported if self._reported is not None else (-1, "")
        self._reached = max(self._reached, before)
        self._reported, self._word, self._end = (offset, topic_id), codec.encode(record), -1
        return offset

    def look(self, again: FragmentState) -> bool:
        """Appends `again` if the last record is gone; returns whether it was.

        A broker that does not answer, or answers with an error, proves nothing.
        """
        if self._reported is None:
            return False
        try:
            lost = self._lost()
            if lost:
                _log.warning("%s: reported again", lost)
                self._reported = self.append(again), ""
        except PerseidError as error:
            _log.warning("whether the last word is still there is not known now: %s", error)
            return False
        return bool(lost)

    def _lost(self) -> str:
        """Why the last record is gone; empty when it is there."""
        assert self._reported is not None
        offset, topic_id = self._reported
        topic = self._place[0]
        found = self._topics.identities([topic]).get(topic, "")
        end = self._topics.ends([self._place], committed=False)[self._place] if found else 0
        if found and topic_id not in ("", found):
            self._reported, self._reached = (-1, ""), -1  # the offsets belong to another log
            return f"{topic} was deleted and created again"
        if end <= offset:
            return f"{topic}[0] ends at {end}, and the last word was reported at {offset}"
        if offset <= self._reached:  # a reader that has read up to there never sees this record
            return f"{topic}[0] has an earlier word at {self._reached}, and the last at {offset}"
        if end != self._end and not self._stands_at(offset):
            return f"{topic}[0] has another record at {offset}, where the last word was reported"
        self._end = end
        self._reported = offset, found
        return ""

    def _stands_at(self, offset: int) -> bool:
        """Asked once for each end of the topic: an idle fragment does not read its record again."""
        with closing(self._new_reader()) as reader:
            found = reader.read_range(*self._place, offset, offset + 1, timeout_s=LOOK_S)
        return [entry.value for entry in found] == [self._word]
