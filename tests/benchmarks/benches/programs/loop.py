"""A bare confluent-kafka loop: input, output and offsets in one transaction a second.

The state is a dictionary, which a crash would lose: what a loop can do at most, not a product.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import orjson
from answers import balance, enrich  # type: ignore[import-not-found]  # next to this script
from confluent_kafka import Consumer, Producer

TRANSACTION_S = 1.0
BATCH = 10_000
QUEUE_MAX = 1_000_000


def answerer(job: str) -> Callable[[Any], Any]:
    if job == "enrich":
        return enrich  # type: ignore[no-any-return]
    totals: dict[str, int] = {}

    def answer(payment: Any) -> Any:
        account = payment["account"]
        totals[account], found = balance(totals.get(account), payment)
        return found

    return answer


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--kafka", "--source", "--sink", "--group", "--job"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": options.kafka,
            "group.id": options.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": options.kafka,
            "transactional.id": options.group,
            "queue.buffering.max.messages": QUEUE_MAX,
            "queue.buffering.max.kbytes": 1_000_000,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions()
    consumer.subscribe([options.source])
    answer = answerer(options.job)
    while True:
        transaction(consumer, producer, options.sink, answer)


def transaction(
    consumer: Consumer, producer: Producer, sink: str, answer: Callable[[Any], Any]
) -> None:
    """A second's input and what it leads to."""
    producer.begin_transaction()
    end_s = time.monotonic() + TRANSACTION_S
    while time.monotonic() < end_s:
        for message in consumer.consume(BATCH, 0.02):
            found = answer(orjson.loads(message.value() or b""))
            if found is not None:
                send(producer, sink, message.key(), orjson.dumps(found))
        producer.poll(0)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def send(producer: Producer, sink: str, key: Any, value: bytes) -> None:
    while True:
        try:
            producer.produce(sink, value, key)
            return
        except BufferError:
            producer.poll(0.1)


if __name__ == "__main__":
    main()
