"""Asks a broker for the brokers it knows."""

from __future__ import annotations

from perseid.topics.clients import admin, as_error


def brokers(bootstrap: str, timeout_s: float) -> int:
    """How many brokers answer for `bootstrap`; RetryableError when none does in time."""
    from confluent_kafka import KafkaException

    try:
        return len(admin(bootstrap).list_topics(timeout=timeout_s).brokers)
    except KafkaException as error:
        raise as_error(error.args[0], f"asking for the brokers at {bootstrap}") from None
