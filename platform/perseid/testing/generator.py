"""Writes lines of words, or payments, to a topic: the input of demo, benchmarks and soak.

Ten words a line, uniform over 100,000, about 97 bytes. The seed decides the content. Lines are cut
from a pool of blocks that is made once and sent repeatedly, so that making lines never limits the
rate. Plain confluent-kafka, idempotent: a broker that dies neither loses nor doubles a line. Runs
as a process of its own (`python -m perseid.testing.generator`) and reports what it sent as JSON
lines on stdout. With `--controlled` it reads orders `{"rate": r, "limit": n}` as JSON lines from
stdin, and ends when stdin ends.
"""

from __future__ import annotations

import argparse
import json
import logging
import queue
import secrets
import sys
import threading
import time
from typing import Any

from confluent_kafka import Producer

from perseid.testing.lines import BLOCK_LINES, Blocks, Lines, UniqueLines
from perseid.testing.payments import Payments

_STRIPE_LINES = 20  # so many lines go to one partition before the next one's turn
_QUEUE_RECORDS_MAX = 200_000  # limit of librdkafka's queue; a longer one would only use memory
_BURST_S = 1.0  # a stall is caught up for this long, the rest of it is skipped
_TICK_S = 0.005
_REPORT_S = 0.2
_FLUSH_S = 120.0
PARTITION_UA = -1  # the client's partitioner decides


def stripe_of(blocks: Blocks, start: int, count: int) -> tuple[int, list[dict[str, bytes]]]:
    """Returns up to `count` lines from line `start` on that share a partition, and their stripe.

    The partition is the stripe number modulo the partitions, so it depends on nothing else.
    """
    stripe, within = divmod(start, _STRIPE_LINES)
    end = start + min(count, _STRIPE_LINES - within)
    first = start % BLOCK_LINES
    return stripe, blocks.block(start // BLOCK_LINES)[first : first + end - start]


class Allowance:
    """How many lines are due: `rate` a second (0: no bound), `limit` in all. Pure."""

    def __init__(self, rate: float, limit: int) -> None:
        self.rate, self.limit = rate, limit
        self._credit = 0.0
        self._then_s: float | None = None

    def due(self, now_s: float, sent: int) -> int:
        """Returns how many lines to send now; lines that the caller does not send are skipped."""
        passed_s = 0.0 if self._then_s is None else now_s - self._then_s
        self._then_s = now_s
        left = max(self.limit - sent, 0)
        if self.rate <= 0:
            return left
        self._credit = min(self._credit + passed_s * self.rate, self.rate * _BURST_S)
        due = min(int(self._credit), left)
        self._credit -= due
        return due


class Sender:
    """Sends lines in order; `sent` counts those acknowledged by Kafka or queued by librdkafka."""

    def __init__(self, bootstrap: str, topic: str, lines: Blocks, *, stamped: bool = False) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "batch.size": 262_144,
                "partitioner": "murmur2_random",  # of keyed messages: Kafka's own
                "queue.buffering.max.messages": 2 * _QUEUE_RECORDS_MAX,
                "error_cb": lambda _: None,  # a dead broker is expected here; librdkafka retries
                "logger": _quiet(),
            }
        )
        self._topic = topic
        self._lines = lines
        self._stamped = stamped
        described = self._producer.list_topics(topic, timeout=30).topics[topic]
        self._partitions = len(described.partitions)
        if described.error is not None or not self._partitions:
            raise SystemExit(f"topic {topic} cannot be written: {described.error}")
        self.sent = 0

    def send(self, count: int) -> None:
        """Sends up to `count` lines: fewer when librdkafka's queue is full."""
        goal = self.sent + count
        while self.sent < goal and len(self._producer) < _QUEUE_RECORDS_MAX:
            stripe, messages = stripe_of(self._lines, self.sent, goal - self.sent)
            if self._stamped:
                messages = self._lines.stamped(messages)
            partition = PARTITION_UA if self._lines.keyed else stripe % self._partitions
            self.sent += self._producer.produce_batch(self._topic, messages, partition)
        self._producer.poll(0)

    @property
    def acknowledged(self) -> int:
        return self.sent - len(self._producer)

    def finish(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        if left:
            raise SystemExit(f"{left} lines were not acknowledged within {_FLUSH_S:.0f} s")


def run(sender: Sender, allowance: Allowance, orders: queue.SimpleQueue[Any], until: int) -> None:
    """Sends until `until` lines are sent or an order is None."""
    reported_s = 0.0
    while sender.sent < until:
        while not orders.empty():
            order = orders.get()
            if order is None:
                return
            allowance.rate = float(order.get("rate", allowance.rate))
            allowance.limit = min(int(order.get("limit", allowance.limit)), until)
        now_s = time.monotonic()
        sender.send(allowance.due(now_s, sender.sent))
        if now_s - reported_s > _REPORT_S:
            reported_s = now_s
            _report(sent=sender.acknowledged)
        time.sleep(_TICK_S)


def _quiet() -> logging.Logger:
    logger = logging.getLogger("perseid.generator.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def _report(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def _read_orders(orders: queue.SimpleQueue[Any]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    orders.put(None)


def _blocks(options: argparse.Namespace, seed: int) -> Blocks:
    if options.payments:
        return Payments(seed)
    return UniqueLines(options.unique) if options.unique else Lines(seed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perseid.testing.generator")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=2**62)
    parser.add_argument("--rate", type=float, default=0.0, help="lines a second, 0: all it can")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--stamped", action="store_true", help="with the time of sending in ns")
    parser.add_argument("--unique", type=int, default=0, help="words occur once, of so many bytes")
    parser.add_argument("--payments", action="store_true", help="payments, not lines of words")
    parser.add_argument("--controlled", action="store_true", help="orders on stdin; starts at 0")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    _report(seed=seed)
    sender = Sender(options.kafka, options.topic, _blocks(options, seed), stamped=options.stamped)
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    limit = 0 if options.controlled else options.records
    if options.controlled:
        threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    run(sender, Allowance(options.rate, limit), orders, options.records)
    sender.finish()
    _report(sent=sender.sent, done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
