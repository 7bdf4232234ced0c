"""A producer knows its own client, also while other threads make some."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaException

from perseid.errors import PermanentError
from perseid.topics import batch_producer, librdkafka
from perseid.topics.batch_producer import BatchProducer

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}  # nothing connects


def name_of(producer: BatchProducer) -> str:
    library = librdkafka._library()
    library.rd_kafka_name.restype = ctypes.c_char_p
    library.rd_kafka_name.argtypes = (ctypes.c_void_p,)
    name: bytes = library.rd_kafka_name(producer.client)
    return name.decode().partition("#")[0]


def made(name: str) -> BatchProducer:
    return BatchProducer({**NOWHERE, "client.id": name})


def test_clients_that_threads_make_at_once_are_not_mixed_up() -> None:
    names = [f"client-{i}" for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        producers = list(pool.map(made, names))
    assert [name_of(producer) for producer in producers] == names


def test_a_client_that_is_refused_leaves_nothing_to_the_next() -> None:
    with pytest.raises(KafkaException, match="nonsense"):
        BatchProducer({**NOWHERE, "nonsense": "1"})
    assert name_of(made("next")) == "next"


def test_a_client_that_does_not_report_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def perseid_kafka_watch(self, _function: int) -> None: ...
        def perseid_kafka_newest(self) -> None: ...

    silent: Any = Silent()
    monkeypatch.setattr(batch_producer, "kernels", lambda: silent)
    with pytest.raises(PermanentError, match=r"did not report itself.*check that the installed"):
        made("silent")
