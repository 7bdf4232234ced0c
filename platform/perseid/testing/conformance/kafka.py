"""All scripts for Kafka."""

from __future__ import annotations

from perseid.testing.conformance import (
    kafka_disk,
    kafka_reading,
    kafka_topics,
    kafka_transactions,
)

SCRIPTS = [
    *kafka_topics.SCRIPTS, *kafka_reading.SCRIPTS, *kafka_transactions.SCRIPTS, *kafka_disk.SCRIPTS,
]  # fmt: skip
