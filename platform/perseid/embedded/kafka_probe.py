"""Asks a broker for the brokers it knows."""

from __future__ import annotations

from perseid.records.access import Bootstrap
from perseid.topics.clients import admin, as_error


def brokers(bootstrap: Bootstrap, timeout_s: float) -> int:
    """How many brokers answer for `bootstrap`; RetryableError when none does in time."""
    from confluent_kafka import KafkaException

    client = admin(bootstrap)
    try:
        return len(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException as error:
        what = f"asking for the brokers at {bootstrap}"
        raise as_error(error.args[0], what, client) from None
