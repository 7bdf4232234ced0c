"""The token log as a source of Spark: what a query is given, and which errors reach the driver."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark import cloudpickle

from perseid.errors import LogTruncated, RetryableError
from perseid.records.access import Access, Brokers
from perseid.topics import names
from perseid.worker.dataflow.failures import classify
from perseid.worker.spark import token_source
from perseid.worker.spark.token_source import TokenReader
from support import kafka_handle

TOKEN = "of this life"


class Site:
    """A token log of five records, of which a fragment has run the first two."""

    def __init__(self) -> None:
        kafka = kafka_handle.fake()
        topic = names.tokens(kafka.job())
        kafka.topics.create(topic, 1)
        self.kafka, self.topic = kafka, topic
        for n in range(5):
            self.add(b"%d" % n)
        self.reader = TokenReader(kafka.reader(), topic, 2, TOKEN)

    def add(self, value: bytes) -> None:
        self.kafka.writer.append(self.topic, 0, value)


def test_a_query_gets_what_follows_its_offset_and_then_what_comes() -> None:
    site = Site()
    start = site.reader.initialOffset()
    assert start == {"offset": 2}
    rows, end = site.reader.read(start)
    assert list(rows) == [(2, b"2"), (3, b"3"), (4, b"4")]
    assert end == {"offset": 5}
    rows, same = site.reader.read(end)
    assert (list(rows), same) == ([], end)
    site.add(b"5")
    rows, end = site.reader.read(same)
    assert (list(rows), end) == ([(5, b"5")], {"offset": 6})
    assert list(site.reader.readBetweenOffsets({"offset": 1}, {"offset": 3})) == [
        (1, b"1"), (2, b"2"),
    ]  # fmt: skip


def test_of_a_long_log_it_gets_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_source, "RECORDS_MAX", 2)
    site, end, got = Site(), {"offset": 0}, []
    for _ in range(3):
        rows, end = site.reader.read(end)
        got.append([offset for offset, _ in rows])
    assert got == [[0, 1], [2, 3], [4]]


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def read_from(self, *_: Any, **__: Any) -> Any:
        raise self.error

    read_range = read_from


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RetryableError("no answer"), "RetryableError"),
     (LogTruncated("tokens", 0, needed=7, end=5), "PermanentError")],
)  # fmt: skip
def test_an_error_keeps_its_type_through_the_text_of_spark(error: Exception, kind: str) -> None:
    reader = TokenReader(cast(Any, Failing(error)), "tokens", 0, TOKEN)
    for ask in (lambda: reader.read({"offset": 0}),
                lambda: reader.readBetweenOffsets({"offset": 0}, {"offset": 1})):  # fmt: skip
        with pytest.raises(RuntimeError) as raised:
            ask()
        text = f"[STREAM_FAILED] Query terminated with exception: {raised.value}\n  File ..."
        found = classify(Exception(text), TOKEN)
        assert type(found).__name__ == kind
        assert str(error) in str(found)


def test_what_reaches_the_broker_is_in_no_option_of_the_source() -> None:
    access = Access(part="KAFKA", ca="ca.pem", user="u", password_file="hidden")
    made = token_source.source_class(Brokers("kafka:9092", access), "tokens", 3, TOKEN)
    source = cloudpickle.loads(cloudpickle.dumps(made))({})  # type: ignore[no-untyped-call]
    assert source.options == {}
    assert source.schema() == token_source.SCHEMA
    reader = source.simpleStreamReader(None)
    assert reader.initialOffset() == {"offset": 3}
