"""Scripts: transactions that end without their owner, by a timeout or by a late request.

The requests are those of the old transaction protocol, the only one that librdkafka has.
"""

from __future__ import annotations

from collections.abc import Iterator

from support.conformance import Scripts
from support.conformance.kafka_side import KafkaSide

SCRIPTS: Scripts[KafkaSide] = Scripts()


@SCRIPTS.add((0, 2, 2), "RetryableError", "RetryableError", "RetryableError", "committed", [b"b"])
def the_broker_aborts_and_fences_what_is_open_for_too_long(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"t-{name}"
    slow = side.short_lived(owner)
    slow.begin()
    side.send(slow, name, b"a")
    side.time_out(owner)
    yield side.offsets(name)
    yield side.send(slow, name, b"more")
    yield side.commit(slow)
    slow.close()
    late = side.short_lived(owner)
    late.begin()
    side.send(late, name, b"x")
    side.time_out(owner)
    yield side.commit(late)
    late.close()
    after = side.opened(owner, name, b"b")
    yield side.commit(after)
    side.settle(owner)
    yield side.read(name, 0)


@SCRIPTS.add("taken", [b"1", b"2"], "committed", (4, 4), "committed", [b"1", b"2", b"3"])
def a_late_commit_commits_the_next_transaction(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"late-{name}"
    transaction = side.opened(owner, name, b"1")
    side.commit(transaction)
    side.settle(owner)
    transaction.begin()
    side.send(transaction, name, b"2")
    yield side.late_end(owner, side.producer(owner), commit=True)
    yield side.read(name, 0)  # no request has asked for that
    yield side.commit(transaction)  # taken for a repetition of the late one
    transaction.begin()
    yield side.send(transaction, name, b"3")
    yield side.commit(transaction)
    side.settle(owner)
    yield side.read(name, 0)


@SCRIPTS.add("taken", "RetryableError", [b"half"])
def a_late_commit_tears_what_is_half_sent(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"torn-{name}"
    transaction = side.opened(owner, name, b"half")
    yield side.late_end(owner, side.producer(owner), commit=True)
    yield side.send(transaction, name, b"other half")
    transaction.close()
    yield side.read(name, 0)


@SCRIPTS.add("taken", "RetryableError", (0, 2, 2), [])
def a_late_abort_aborts_the_next_transaction(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"abort-{name}"
    transaction = side.opened(owner, name, b"1")
    yield side.late_end(owner, side.producer(owner), commit=False)
    yield side.commit(transaction)
    transaction.close()
    yield side.offsets(name)
    yield side.read(name, 0, wait_s=0.2)


@SCRIPTS.add("taken", "refused", "taken", (2, 2), "committed", [b"1", b"2"])
def a_late_request_without_a_transaction(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"idle-{name}"
    transaction = side.opened(owner, name, b"1")
    side.commit(transaction)
    side.settle(owner)
    yield side.late_end(owner, side.producer(owner), commit=True)
    yield side.late_end(owner, side.producer(owner), commit=False)
    transaction.begin()  # the broker does not know of it yet
    yield side.late_end(owner, side.producer(owner), commit=True)
    yield side.send(transaction, name, b"2")
    yield side.commit(transaction)
    side.settle(owner)
    yield side.read(name, 0)


@SCRIPTS.add("refused", "committed", [b"new"])
def a_late_request_of_a_fenced_producer(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"old-{name}"
    side.opened(owner, name, b"old")
    old = side.producer(owner)
    new = side.opened(owner, name, b"new")
    yield side.late_end(owner, old, commit=True)
    yield side.commit(new)
    side.settle(owner)
    yield side.read(name, 0)
