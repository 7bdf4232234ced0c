"""A real broker that takes records too slowly for a transaction: by a quota of the clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.errors import PermanentError
from perseid.topics.kafka_transactions import KafkaTransactions
from perseid.topics.transactions import SinkBatch
from perseid.worker.sink import sink_time
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support import kafka_handle
from support.broker import KafkaServer
from support.kafka_handle import Kafka
from support.kafka_wire import limit_producers

FIRST_S = 10.0  # instead of 30; the client waits for so long for one answer
LONGEST_S = 25
BYTES_S = 100_000.0
BATCH_BYTES = 20_000  # the client sends no larger ones


class Strict(KafkaServer):
    """Its transactions last no longer than LONGEST_S; quotas look back for two seconds."""

    def settings(self) -> str:
        return f"transaction.max.timeout.ms={LONGEST_S * 1000}\nquota.window.num=2\n"


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    monkeypatch.setattr(sink_time, "FIRST_S", FIRST_S)
    with Strict(tmp_path) as server:
        kafka = kafka_handle.real(server.bootstrap)
        assert limit_producers(server.port, "perseid", BYTES_S) == 0
        yield kafka


def outputs(topic: str, seconds: float) -> list[SinkBatch]:
    count = int(seconds * BYTES_S / 1000)
    return [SinkBatch(topic, [None] * count, [b"%d" % i + b"." * 990 for i in range(count)])]


@pytest.mark.drawn(group="brokers")
def test_output_is_given_longer_or_ends_in_a_sentence(slow: Kafka) -> None:
    job = slow.job()
    topic = slow.topic(1, max_message_bytes=str(BATCH_BYTES))
    who = SinkIdentity(job, "u", 1, "op", 0, ledger=0, after_epoch=0)
    transactions = KafkaTransactions(slow.bootstrap, timeout_ms=int(FIRST_S * 1000))
    assert transactions.longest_s() == LONGEST_S
    sink = SinkSession(who, transactions, slow.ledger(), slow.topics)
    first = outputs(topic, 15)
    assert sink.commit(1, 1, 1, first).attempts >= 2
    assert slow.values(topic) == first[0].values.to_pylist()
    with pytest.raises(PermanentError, match=r"epoch 2 of .*of 25 s.*epoch\.maxRecords"):
        sink.commit(2, 2, 1, outputs(topic, 60))
    assert slow.values(topic) == first[0].values.to_pylist()
