"""A worker without Spark: answers every token of every job at once, as if each epoch took no time.

    python -m benches.stub_worker DEPLOYMENT_AS_JSON JOBS

Registers in ZooKeeper, waits until JOBS plans name it, and prints a line then. It reads the plans
no more: what ZooKeeper has to do afterwards is for the coordinator.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import closing
from dataclasses import replace

from confluent_kafka import Consumer, Producer, TopicPartition

from perseid.records import Deployment, Plan, WorkerInfo
from perseid.records.version import this_build
from perseid.registry import Registry
from perseid.topics import codec, names
from perseid.topics.records import EpochDone, FragmentState, Token

NAME = "stub"
READY = "ready"
_LOOK_S = 0.5
_POLL_S = 1.0
_MESSAGES = 500


def main() -> None:
    deployment, jobs = Deployment.model_validate_json(sys.argv[1]), int(sys.argv[2])
    incarnation = f"{NAME}-{time.time_ns():x}"
    with closing(Registry.connect(deployment)) as registry:
        registry.register_worker(_info(incarnation))
        plans = _plans(registry, incarnation, jobs)
        answer(deployment.kafka, incarnation, plans)


def _info(incarnation: str) -> WorkerInfo:
    build = this_build()
    return WorkerInfo(
        NAME, incarnation, socket.gethostname(), 0, 0, 2, "local[2]", time.time_ns() // 1_000_000,
        version=build.version, protocol=build.protocol,
    )  # fmt: skip


def _plans(registry: Registry, incarnation: str, jobs: int) -> dict[str, Plan]:
    while True:
        found = {n: p for n, p in registry.look().plans.items() if p.owner == incarnation}
        if len(found) >= jobs:
            return found
        time.sleep(_LOOK_S)


def answer(kafka: str, incarnation: str, plans: dict[str, Plan]) -> None:
    """Reports every fragment as running, then every token as done, without end."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 1})
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": incarnation})
    by_topic = {names.tokens(job): plan for job, plan in plans.items()}
    for plan in plans.values():
        state = FragmentState(
            plan.job_uuid, plan.generation, incarnation, "restoring", plan.base_epoch
        )
        for one in (state, replace(state, state="running")):
            producer.produce(names.progress(plan.job), codec.encode(one))
    producer.flush()
    consumer.assign([
        TopicPartition(topic, 0, plan.base_offset + 1) for topic, plan in by_topic.items()
    ])  # fmt: skip
    print(READY, flush=True)
    while True:
        for message in consumer.consume(_MESSAGES, _POLL_S):
            if message.error() is not None:
                raise SystemExit(f"stub worker: {message.error()}")
            topic, offset = message.topic() or "", message.offset() or 0
            token = codec.decode_token(topic, offset, message.value() or b"")
            if isinstance(token, Token):
                plan = by_topic[topic]
                producer.produce(
                    names.progress(plan.job), codec.encode(_done(plan, incarnation, token, offset))
                )
        producer.poll(0)


def _done(plan: Plan, incarnation: str, token: Token, offset: int) -> EpochDone:
    return EpochDone(
        plan.job_uuid, plan.generation, incarnation, token.epoch, offset, token.records,
        token.records, 1,
    )  # fmt: skip


if __name__ == "__main__":
    main()
