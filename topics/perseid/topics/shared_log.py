"""LogReader of many partitions over few consumers, for a reader that follows all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from perseid.records.access import Bootstrap
from perseid.topics.admin import Partition
from perseid.topics.columns import Records
from perseid.topics.cursor import ColumnCursor
from perseid.topics.log import Entry, KafkaLogReader, as_soon_as_there
from perseid.topics.shared import SharedConsumers


class SharedLogReader:
    """`perseid.topics.log.LogReader`. Not thread-safe; each partition is read in order."""

    def __init__(self, bootstrap: Bootstrap, starts: Mapping[Partition, int]) -> None:
        """`starts`: where each partition is read first; all are opened at once."""
        self._bootstrap = bootstrap
        self._shared = SharedConsumers(bootstrap, "read_committed")
        self._cursors: dict[Partition, ColumnCursor] = {}
        self._open(starts)

    def read_from(
        self, topic: str, partition: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        cursor = self._at((topic, partition), offset)

        def fetch(most: int, seconds: float) -> list[Entry]:
            return list(_entries(cursor.fetch(most, seconds)))

        try:
            return as_soon_as_there(fetch, max_records, timeout_s)
        except BaseException:
            self._cursors.pop((topic, partition)).close()
            raise

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> list[Entry]:
        """Of what was read before, so with a consumer of its own."""
        with closing(KafkaLogReader(self._bootstrap)) as reader:
            return reader.read_range(topic, partition, start, end, timeout_s=timeout_s)

    def close(self) -> None:
        while self._cursors:
            self._cursors.popitem()[1].close()
        self._shared.close()

    def _at(self, place: Partition, offset: int) -> ColumnCursor:
        cursor = self._cursors.get(place)
        if cursor is None or cursor.position != offset:
            if cursor is not None:
                self._cursors.pop(place).close()
            self._open({place: offset})
        return self._cursors[place]

    def _open(self, starts: Mapping[Partition, int]) -> None:
        for place, part in self._shared.open(starts).items():
            self._cursors[place] = ColumnCursor(self._bootstrap, *place, starts[place], part)


def _entries(records: Records) -> Iterator[Entry]:
    for record in records:
        yield Entry(record.offset(), record.value() or b"", record.timestamp()[1])
