"""A server comes back under another address of its name: its clients continue by themselves.

What is left at the old address ends all connections, as where a container was; or it never answers
any more, as where a machine was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from perseid.errors import RetryableError
from perseid.registry.port import Create, SessionState
from perseid.registry.zookeeper import KazooCoordination
from perseid.state.durability.counters import CounterKey, Divergence
from perseid.state.durability.counters_redis import RedisCounters
from perseid.testing.wait import until
from perseid.topics import clients
from perseid.topics.admin import TopicAdmin
from perseid.topics.ranges import ColumnReader
from support.addresses import (
    FIRST,
    SECOND,
    Gone,
    Left,
    Movable,
    NamedKafka,
    Names,
)
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.zookeeper import ZooKeeperServer

SESSION_S = 10.0
PATIENCE_S = 60.0
ATTEMPTED_S = 4.0  # after the loss of its connection a client is connecting again
LEFT: tuple[Left, ...] = ("refused", "silent")
TOPIC = "lines"


@pytest.fixture
def names() -> Iterator[Names]:
    found = Names()
    with found.looked_up():
        yield found


@pytest.mark.drawn
@pytest.mark.parametrize("left", LEFT)
def test_a_session_of_zookeeper_continues(names: Names, left: Left, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, Movable(names, "keeper.test", server.port) as moved:
        session = KazooCoordination(moved.at, "/moved", SESSION_S)
        with closing(session):
            session.start(PATIENCE_S)
            states: list[SessionState] = []
            session.on_session(states.append)
            session.write(Create("/mine", b"1", ephemeral=True))
            moved.move(left)
            until(lambda: SessionState.CONNECTED in states, PATIENCE_S, "to be connected again")
            assert SessionState.LOST not in states
            node = session.get("/mine")
            assert node is not None
            assert node.mine


def only_used(servers: list[Movable]) -> Movable | None:
    busy = [each for each in servers if each.old.busy]
    return busy[0] if len(busy) == 1 else None


@pytest.mark.drawn(group="addresses")
def test_servers_that_moved_while_another_one_was_used_are_found_at_once(
    names: Names, tmp_path: Path
) -> None:
    """A restart of one server after the other, of which the last one has our connection."""
    with ExitStack() as opened:
        server = opened.enter_context(ZooKeeperServer(tmp_path))
        three = [
            opened.enter_context(Movable(names, f"keeper-{n}.test", server.port)) for n in (1, 2, 3)
        ]
        session = KazooCoordination(",".join(each.at for each in three), "/moved", SESSION_S)
        opened.enter_context(closing(session))
        session.start(PATIENCE_S)
        states: list[SessionState] = []
        session.on_session(states.append)
        used = until(lambda: only_used(three), PATIENCE_S, "attempts before to be over")
        others = [each for each in three if each is not used]
        before = [each.old.taken for each in others]
        for each in others:
            each.move("silent")
        used.old.cut()
        until(lambda: SessionState.CONNECTED in states, PATIENCE_S, "to be connected again")
        assert SessionState.LOST not in states
        assert [each.old.taken for each in others] == before, "old addresses were tried"


@pytest.mark.drawn
@pytest.mark.parametrize("left", LEFT)
def test_counters_in_redis_continue(names: Names, left: Left, tmp_path: Path) -> None:
    key = CounterKey("job", "operator", 0)
    first, second = Divergence(1, 1, 1.0), Divergence(1, 2, 2.0)
    with RedisServer(tmp_path) as server, Movable(names, "redis.test", server.port) as moved:
        with closing(RedisCounters(f"redis://{moved.at}/0")) as counters:
            assert counters.publish(key, first)
            moved.move(left)
            until(lambda: published(counters, key, second), PATIENCE_S, "to be published")
            assert counters.read(key) == second


def published(counters: RedisCounters, key: CounterKey, divergence: Divergence) -> bool:
    try:
        return counters.publish(key, divergence)
    except RetryableError:  # as a worker gets it, which continues
        return False


@pytest.fixture
def broker(names: Names, tmp_path: Path) -> Iterator[tuple[NamedKafka, Movable]]:
    server = NamedKafka(tmp_path)
    with Movable(names, "broker.test", server.named) as moved:
        server.advertised = moved.at
        with server:
            yield server, moved


def write(broker: NamedKafka, start: int, count: int) -> None:
    """By the listener that does not move."""
    producer = clients.writer(broker.bootstrap)
    for n in range(start, start + count):
        producer.produce(TOPIC, b"%d" % n, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def read(reader: ColumnReader, start: int, end: int) -> list[int]:
    found = [batch.values.to_pylist() for batch in reader.read(TOPIC, 0, start, end)]
    return [int(value) for values in found for value in values]


def read_first(reader: ColumnReader) -> list[int]:
    """As soon as it can be: of a broker that is slow at first a client asks that has no names."""

    def found() -> list[int] | None:
        try:
            return read(reader, 0, 100)
        except RetryableError:
            return None

    return until(found, PATIENCE_S, "the first records")


@pytest.mark.drawn
@pytest.mark.parametrize("left", LEFT)
def test_a_source_of_kafka_is_read_on(broker: tuple[NamedKafka, Movable], left: Left) -> None:
    server, moved = broker
    TopicAdmin(server.bootstrap).create(TOPIC, 1)
    write(server, 0, 100)
    with closing(ColumnReader(moved.at, timeout_s=PATIENCE_S)) as reader:
        assert read_first(reader) == list(range(100))
        moved.move(left)
        write(server, 100, 100)
        assert read(reader, 100, 200) == list(range(100, 200))


@pytest.mark.drawn(group="addresses")
def test_a_broker_that_advertises_a_new_address_is_found_by_its_name(
    broker: tuple[NamedKafka, Movable],
) -> None:
    """It advertises an address and no name, and its previous address is gone."""
    server, moved = broker
    server.restart_at(f"{FIRST}:{moved.port}")
    TopicAdmin(server.bootstrap).create(TOPIC, 1)
    write(server, 0, 100)
    with closing(ColumnReader(moved.at, timeout_s=PATIENCE_S)) as reader:
        assert read_first(reader) == list(range(100))
        moved.move("refused")
        server.restart_at(f"{SECOND}:{moved.port}")
        write(server, 100, 100)
        assert read(reader, 100, 200) == list(range(100, 200))


@pytest.mark.drawn(group="addresses")
def test_an_address_where_nothing_is_any_more_is_dropped_in_time(
    names: Names, tmp_path: Path
) -> None:
    """The client's own limit is 30 s, in which it does not look the name up again."""
    server = NamedKafka(tmp_path)
    with Gone() as gone, Proxy(server.named, (SECOND, gone.port)) as there:
        names["broker.test"] = SECOND
        server.advertised = f"broker.test:{gone.port}"
        with server, closing(ColumnReader(server.advertised, timeout_s=PATIENCE_S)) as reader:
            TopicAdmin(server.bootstrap).create(TOPIC, 1)
            write(server, 0, 100)
            assert read_first(reader) == list(range(100))
            names["broker.test"] = FIRST
            there.cut()
            write(server, 100, 100)
            right = threading.Timer(ATTEMPTED_S, names.update, [{"broker.test": SECOND}])
            right.start()
            there.mend()
            began_s = time.monotonic()
            assert read(reader, 100, 200) == list(range(100, 200))
            took_s = time.monotonic() - began_s
            right.join()
    assert ATTEMPTED_S < took_s < 25.0
