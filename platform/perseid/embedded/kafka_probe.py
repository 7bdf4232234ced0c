"""Asks a broker for the brokers it knows."""

from __future__ import annotations

import logging

from perseid.errors import RetryableError

_SILENT = logging.getLogger("perseid.embedded.kafka_probe")
_SILENT.setLevel(logging.CRITICAL)  # refused connections are what a probe expects


def brokers(bootstrap: str, timeout_s: float) -> int:
    """How many brokers answer for `bootstrap`; RetryableError when none does in time."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap}, logger=_SILENT)
    try:
        return len(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException as error:
        raise RetryableError(f"no Kafka at {bootstrap}: {error.args[0].str()}") from None
