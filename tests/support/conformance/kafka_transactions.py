"""Scripts: what transactions make visible and when, and which producers are fenced."""

from __future__ import annotations

from collections.abc import Iterator

from support.conformance import Scripts, outcome
from support.conformance.kafka_side import BATCH_BYTES, PATIENCE_S, KafkaSide, batch

SCRIPTS: Scripts[KafkaSide] = Scripts()


@SCRIPTS.add((0, 0, 3), (0, 0, 1), "committed", (0, 4, 4), [b"1", b"2", b"3"], [b"v"])
def a_commit_makes_all_visible_at_once(side: KafkaSide) -> Iterator[object]:
    one, two = side.kafka.topic(), side.kafka.topic()
    transaction = side.opened(f"c-{one}", one, b"1", b"2", b"3")
    side.send(transaction, two, b"v")
    yield side.offsets(one)
    yield side.offsets(two)
    yield side.commit(transaction)
    side.settle(f"c-{one}")
    yield side.offsets(one)
    yield side.read(one, 0)
    yield side.read(two, 0)


@SCRIPTS.add((1, 25_000), (0, 0), "committed", 25_001)
def a_flush_returns_first_and_last_offset(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic(2)
    side.kafka.writer.append(name, 0, b"before")
    transaction = side.acquire(f"o-{name}")
    transaction.begin()
    yield side.send(transaction, name, *[b"%d" % i for i in range(25_000)])
    yield side.send(transaction, name, b"x", partition=1)
    yield side.commit(transaction)
    yield len(side.kafka.values(name))


@SCRIPTS.add("committed", "committed", "committed", [0, 2, 4], (0, 6, 6))
def one_producer_for_several_transactions(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    transaction = side.acquire(f"s-{name}")
    for i in range(3):
        transaction.begin()
        side.send(transaction, name, b"%d" % i)
        yield side.commit(transaction)
        side.settle(f"s-{name}")
    yield side.between(name, 0, 6)
    yield side.offsets(name)


@SCRIPTS.add([0, 1, 9], [0, 1], [], [9], [], [9], [], (0, 11, 11))
def markers_and_aborted_records_are_gaps(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    owner = f"g-{name}"
    side.write(owner, name, b"a", b"b")  # 0 1, marker 2
    side.opened(owner, name, *[b"x"] * 5).close()
    side.write(owner, name, b"c")  # aborted 3-7, marker 8; 9, marker 10
    for start, end in ((0, 11), (0, 3), (3, 9), (9, 11), (4, 8), (8, 10), (10, 11)):
        yield side.ranged(name, start, end)
    yield side.offsets(name)


@SCRIPTS.add(
    [b"before"], (0, 1, 3), [], "UndecidedTransaction", "RetryableError", [b"open", b"after"]
)
def an_open_transaction_holds_back_what_follows_it(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    side.kafka.writer.append(name, 0, b"before")
    transaction = side.opened(f"l-{name}", name, b"open")
    side.kafka.writer.append(name, 0, b"after")
    yield side.read(name, 0)
    yield side.offsets(name)
    yield side.read(name, 1, wait_s=0.3)
    yield side.between(name, 0, 3, wait_s=4.0)
    yield side.ranged(name, 0, 3)
    side.commit(transaction)
    side.settle(f"l-{name}")
    yield side.read(name, 1)


@SCRIPTS.add((0, 0, 3), (0, 0, 4), (0, 5, 5), [0, 2])
def transactions_that_overlap_in_one_partition(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    first = side.opened(f"first-{name}", name, b"a")
    second = side.opened(f"second-{name}", name, b"b")
    side.send(first, name, b"c")
    yield side.offsets(name)
    side.commit(second)
    side.settle(f"second-{name}")
    yield side.offsets(name)  # decided, but after an open one
    side.acquire(f"second-{name}").close()  # fences only its own id, with nothing open
    side.commit(first)
    side.settle(f"first-{name}")
    yield side.offsets(name)
    yield [o for o in side.between(name, 0, 5) if o != 1]  # type: ignore[attr-defined]


@SCRIPTS.add("RetryableError", "committed", [b"new"], (0, 4, 4))
def acquire_aborts_what_the_one_before_left_open(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    old = side.opened(f"f-{name}", name, b"old")
    new = side.acquire(f"f-{name}")
    yield side.commit(old)
    old.close()
    new.begin()
    side.send(new, name, b"new")
    yield side.commit(new)
    side.settle(f"f-{name}")
    yield side.read(name, 0)
    yield side.offsets(name)


@SCRIPTS.add(None, "RetryableError", (0, 0, 0))
def a_fenced_one_may_begin_and_cannot_send(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    old = side.acquire(f"s-{name}")
    side.acquire(f"s-{name}").close()
    yield outcome(old.begin)
    yield side.send(old, name, b"late")
    old.close()
    yield side.offsets(name)


@SCRIPTS.add(None, {}, "committed")
def a_fenced_one_that_sends_nothing_hears_nothing(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    old = side.acquire(f"n-{name}")
    side.acquire(f"n-{name}").close()
    yield outcome(old.begin)
    yield outcome(old.flush, PATIENCE_S)
    yield side.commit(old)


@SCRIPTS.add("committed", "committed", [b"mine", b"again"])
def another_id_and_a_prepared_one_fence_no_producer(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    mine = side.opened(f"i-{name}", name, b"mine")
    side.acquire(f"j-{name}").close()
    yield side.commit(mine)
    mine.begin()
    side.send(mine, name, b"again")
    side.kafka.transactions.prepare(f"i-{name}", BATCH_BYTES)
    yield side.commit(mine)
    side.settle(f"i-{name}")
    yield side.read(name, 0)[:2]  # type: ignore[index]


@SCRIPTS.add(900.0, None, None)
def how_long_a_transaction_may_last_and_what_the_broker_took(side: KafkaSide) -> Iterator[object]:
    """Records count as accepted only after a flush."""
    name = side.kafka.topic()
    yield side.kafka.transactions.longest_s()
    transaction = side.kafka.transactions.acquire(f"l-{name}", BATCH_BYTES, PATIENCE_S, 60.0)
    yield transaction.idle_s()
    transaction.begin()
    yield transaction.idle_s()
    transaction.close()


@SCRIPTS.add("RetryableError", "RetryableError", None, "RetryableError", (0, 0), "committed")
def calls_in_a_wrong_order(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    transaction = side.acquire(f"w-{name}")
    yield outcome(transaction.commit, PATIENCE_S)
    yield outcome(transaction.send, batch(name, b"v"))
    transaction = side.acquire(f"w-{name}")
    yield outcome(transaction.begin)
    yield outcome(transaction.begin)
    yield side.send(transaction, name, b"v")
    yield side.commit(transaction)


@SCRIPTS.add("PermanentError", "TransientAnswer", "TransientAnswer", (1, 1))
def a_record_that_can_never_be_sent(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic(max_message_bytes="2000")
    for topic, partition, size in ((name, 0, 3000), ("nowhere", 0, 1), (name, 5, 1)):
        transaction = side.acquire(f"p-{name}")
        transaction.begin()
        yield side.send(transaction, topic, b"x" * size, partition=partition)
        transaction.close()
    transaction = side.acquire(f"p-{name}")
    transaction.begin()
    yield side.send(transaction, name, b"small")  # after the marker of the refused transaction


@SCRIPTS.add((1, 3), (2, 3), [b"c"])
def trimming_in_the_middle_of_an_open_transaction(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    transaction = side.opened(f"trim-{name}", name, b"a", b"b", b"c")
    for offset in (1, 2):
        side.kafka.topics.delete_records({(name, 0): offset})
        start, _, end = side.offsets(name)  # the broker's last stable offset stays below the start
        yield start, end
    side.commit(transaction)
    side.settle(f"trim-{name}")
    yield side.read(name, 2)


@SCRIPTS.add("committed", (0, 4, 4), [b"new"])
def a_topic_deleted_under_an_open_transaction(side: KafkaSide) -> Iterator[object]:
    gone, kept = side.kafka.topic(), side.kafka.topic()
    owner = f"gone-{gone}"
    old = side.opened(owner, gone, b"old")
    side.send(old, kept, b"old")
    side.kafka.topics.delete([gone])
    side.acquire(owner).close()
    new = side.opened(owner, kept, b"new")
    yield side.commit(new)
    side.settle(owner)
    yield side.offsets(kept)
    yield side.read(kept, 0)
