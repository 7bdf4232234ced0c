"""The two jobs in Bytewax, run by `python -m bytewax.run "bytewax_flow.py:flow(...)"`."""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
import orjson
from answers import balance, enrich  # type: ignore[import-not-found]  # next to this script
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow


def flow(kafka: str, source: str, sink: str, job: str) -> Dataflow:
    made = Dataflow(job)
    messages = op.input("payments", made, KafkaSource([kafka], [source]))
    if job == "balances":
        keyed = op.map("keyed", messages, lambda m: (m.key.decode(), orjson.loads(m.value)))
        answers = op.map("packed", op.stateful_map("balance", keyed, balance), packed)
    else:
        answers = op.filter_map("enriched", messages, enriched)
    op.output("answers", answers, KafkaSink([kafka], sink))
    return made


def packed(found: tuple[str, Any]) -> KafkaSinkMessage:
    key, answer = found
    return KafkaSinkMessage(key.encode(), orjson.dumps(answer))


def enriched(message: Any) -> KafkaSinkMessage | None:
    found = enrich(orjson.loads(message.value))
    return None if found is None else KafkaSinkMessage(message.key, orjson.dumps(found))
