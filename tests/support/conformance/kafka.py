"""All scripts for Kafka."""

from __future__ import annotations

from support.conformance import (
    kafka_disk,
    kafka_late,
    kafka_reading,
    kafka_topics,
    kafka_transactions,
)

SCRIPTS = [
    *kafka_topics.SCRIPTS, *kafka_reading.SCRIPTS, *kafka_transactions.SCRIPTS, *kafka_late.SCRIPTS,
    *kafka_disk.SCRIPTS,  # last: each restarts the broker
]  # fmt: skip
