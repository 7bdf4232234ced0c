"""The token log as a streaming source of Spark: offsets are its offsets, rows are its records.

A PySpark data source (`pyspark.sql.datasource`, public since Spark 4.0). Spark runs the reader in a
Python process of the driver, once for each query, and asks it for what follows an offset. A record
is sent to the JVM with the answer, so reading it needs no task in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from perseid.errors.carried import describe
from perseid.topics.log import KafkaLogReader
from perseid.worker.dataflow.failures import typed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from perseid.records.access import Bootstrap
    from perseid.topics.log import Entry, LogReader

NAME = "perseid-tokens"
SCHEMA = "offset bigint, value binary"
RECORDS_MAX = 500  # of one micro-batch: a fragment that catches up runs many epochs in one
WAIT_S = 0.2  # for a record; a stop of the query waits as long
RANGE_S = 30.0  # for records that have been read before: longer than a broker needs to restart

Offset = dict[str, int]


class TokenReader(SimpleDataSourceStreamReader):
    """Reads partition 0 of `topic` from offset `start` on.

    `token`: marks errors, as in tasks, so that the driver finds their type in Spark's text.
    """

    def __init__(self, log: LogReader, topic: str, start: int, token: str) -> None:
        self._log, self._topic, self._start, self._token = log, topic, start, token

    def initialOffset(self) -> Offset:
        return {"offset": self._start}

    def read(self, start: Offset) -> tuple[Iterator[tuple[int, bytes]], Offset]:
        """The next records, none if there is none for WAIT_S, and the offset after them."""
        offset = start["offset"]
        try:
            found = self._log.read_from(
                self._topic, 0, offset, max_records=RECORDS_MAX, timeout_s=WAIT_S
            )
        except BaseException as error:
            raise self._marked(error) from None
        return _rows(found), {"offset": found[-1].offset + 1 if found else offset}

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[int, bytes]]:
        try:
            return _rows(self._log.read_range(
                self._topic, 0, start["offset"], end["offset"], timeout_s=RANGE_S
            ))  # fmt: skip
        except BaseException as error:
            raise self._marked(error) from None

    def commit(self, end: Offset) -> None:
        """Nothing: progress is what the fragment reports."""

    def _marked(self, error: BaseException) -> RuntimeError:
        return RuntimeError(describe(typed(error, f"reading {self._topic}"), self._token))


def source_class(bootstrap: Bootstrap, topic: str, start: int, token: str) -> type[DataSource]:
    """The data source of one fragment, to be registered."""
    return _source(NAME, lambda: TokenReader(KafkaLogReader(bootstrap), topic, start, token))


class _Ticking(SimpleDataSourceStreamReader):
    def initialOffset(self) -> Offset:
        return {"offset": 0}

    def read(self, start: Offset) -> tuple[Iterator[tuple[int, bytes]], Offset]:
        offset = start["offset"]
        return iter([(offset, b"")]), {"offset": offset + 1}


def ticking() -> type[DataSource]:
    """A source of the same shape that always has a next row: it warms up what a query needs."""
    return _source("perseid-ticks", _Ticking)


def _source(
    short_name: str, new_reader: Callable[[], SimpleDataSourceStreamReader]
) -> type[DataSource]:
    """Settings are in the closure of `new_reader`: options appear in Spark's plans."""

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return short_name

        def schema(self) -> str:
            return SCHEMA

        def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
            return new_reader()

    return Source


def _rows(found: list[Entry]) -> Iterator[tuple[int, bytes]]:
    return iter([(entry.offset, entry.value) for entry in found])
