"""Scripts: divergence counters that never go back, on a server that may."""

from __future__ import annotations

from collections.abc import Iterator

from perseid.state.durability.counters import STAMP_MAX, CounterKey, Divergence, judge
from support.conformance import Scripts, outcome
from support.conformance.redis_side import RedisSide

SCRIPTS: Scripts[RedisSide] = Scripts()


def judged(known: Divergence, read: Divergence | None) -> tuple[str, float, bool]:
    hint = judge(known, read)
    return hint.standing.value, hint.divergence, hint.back_up_first


@SCRIPTS.add(None, True, Divergence(1, 1, 2.5), True, Divergence(1, 2, 0.0))
def what_is_published_is_read(side: RedisSide) -> Iterator[object]:
    owner, reader = side.session(), side.session()
    yield reader.read(side.key)
    yield owner.publish(side.key, Divergence(1, 1, 2.5))
    yield reader.read(side.key)
    yield owner.publish(side.key, Divergence(1, 2, 0.0))
    yield reader.read(side.key)


@SCRIPTS.add(False, False, Divergence(1, 5, 3.0), True)
def an_older_sequence_never_replaces(side: RedisSide) -> Iterator[object]:
    owner = side.session()
    owner.publish(side.key, Divergence(1, 5, 3.0))
    yield owner.publish(side.key, Divergence(1, 4, 9.0))
    yield owner.publish(side.key, Divergence(1, 5, 9.0))
    yield owner.read(side.key)
    yield owner.publish(side.key, Divergence(1, 6, 9.0))


@SCRIPTS.add(True, False, Divergence(2, 0, 1.0))
def a_zombie_of_a_lower_generation_never_replaces(side: RedisSide) -> Iterator[object]:
    old, new = side.session(), side.session()
    old.publish(side.key, Divergence(1, 900, 3.0))
    yield new.publish(side.key, Divergence(2, 0, 1.0))
    yield old.publish(side.key, Divergence(1, 901, 4.0))
    yield new.read(side.key)


@SCRIPTS.add(None, None, Divergence(1, 1, 1.0))
def keys_are_apart(side: RedisSide) -> Iterator[object]:
    session, key = side.session(), side.key
    session.publish(key, Divergence(1, 1, 1.0))
    yield session.read(CounterKey(key.job, key.operator, 1))
    yield session.read(CounterKey(key.job, "other", 0))
    yield session.read(key)


@SCRIPTS.add(*[True, True] * 4)
def numbers_come_back_as_they_were(side: RedisSide) -> Iterator[object]:
    session = side.session()
    for i, value in enumerate((0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1e22)):
        published = Divergence(STAMP_MAX, i, value)
        yield session.publish(side.key, published)
        yield session.read(side.key) == published


@SCRIPTS.add(*["DamagedFile"] * 9)
def what_is_no_counter_is_an_error_and_no_zero(side: RedisSide) -> Iterator[object]:
    session = side.session()
    for text in ("", "1 1", "1 1 nan", "1 1 -2.0", "1 1 inf", "x 1 2.0", "1 1 1e999",
                 f"{2**64} 1 1.0", "1 1 1." + "0" * 500):  # fmt: skip
        side.put(text)
        yield outcome(session.read, side.key)


@SCRIPTS.add(True, Divergence(1, 1, 1.0))
def what_is_no_counter_is_replaced(side: RedisSide) -> Iterator[object]:
    session = side.session()
    side.put("soup")
    yield session.publish(side.key, Divergence(1, 1, 1.0))
    yield session.read(side.key)


@SCRIPTS.add(None, "absent", 4.0, True, True, Divergence(1, 8, 0.5))
def an_emptied_server_is_absent_and_lowers_trust(side: RedisSide) -> Iterator[object]:
    session, known = side.session(), Divergence(1, 7, 4.0)
    session.publish(side.key, known)
    side.empty()
    found = session.read(side.key)
    yield found
    yield from judged(known, found)
    yield session.publish(side.key, Divergence(1, 8, 0.5))
    yield session.read(side.key)


@SCRIPTS.add(True, Divergence(1, 3, 1.0), "stale", 6.0, True)
def a_failover_takes_acknowledged_counters_back(side: RedisSide) -> Iterator[object]:
    session, known = side.session(), Divergence(1, 9, 6.0)
    session.publish(side.key, Divergence(1, 3, 1.0))
    side.save()
    yield session.publish(side.key, known)
    side.fall_back()
    found = session.read(side.key)
    yield found
    yield from judged(known, found)


@SCRIPTS.add(True, Divergence(1, 4, 2.0))
def a_failover_lets_an_older_writer_in_again(side: RedisSide) -> Iterator[object]:
    old, new = side.session(), side.session()
    old.publish(side.key, Divergence(1, 3, 1.0))
    side.save()
    new.publish(side.key, Divergence(2, 0, 5.0))
    side.fall_back()
    yield old.publish(side.key, Divergence(1, 4, 2.0))  # the newer one's stamp is lost
    yield new.read(side.key)


@SCRIPTS.add("RetryableError", "RetryableError", Divergence(1, 1, 1.0), True)
def no_answer_is_an_error_and_no_zero(side: RedisSide) -> Iterator[object]:
    session = side.session()
    session.publish(side.key, Divergence(1, 1, 1.0))
    side.silence(on=True)
    yield outcome(session.read, side.key)
    yield outcome(session.publish, side.key, Divergence(1, 0, 1.0))
    side.silence(on=False)
    yield session.read(side.key)
    yield session.publish(side.key, Divergence(1, 2, 1.0))


@SCRIPTS.add("current", 7.0, True, "current", 5.0, False)
def a_current_counter_is_believed_when_it_is_higher(side: RedisSide) -> Iterator[object]:
    session = side.session()
    session.publish(side.key, Divergence(1, 4, 7.0))
    for known in (Divergence(1, 2, 5.0), Divergence(1, 4, 5.0)):
        yield from judged(known, session.read(side.key))
        session.publish(side.key, Divergence(1, 5, 0.5))


@SCRIPTS.add(True)
def a_closed_session_may_be_closed_again(side: RedisSide) -> Iterator[object]:
    session = side.session()
    yield session.publish(side.key, Divergence(1, 1, 1.0))
    session.close()
    session.close()
