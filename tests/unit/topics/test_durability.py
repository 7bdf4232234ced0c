"""Settings with which acknowledged records get lost, or none can be written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.errors import PermanentError
from perseid.topics import durability, names
from perseid.topics.admin import TopicInfo
from perseid.topics.control import control_topics, optional_topics, refuse_unlike

GOOD = TopicInfo("t", "id", 4, replicas=3, min_insync_replicas=2)


@pytest.mark.parametrize(
    ("changes", "brokers", "found"),
    [
        ({}, 3, []),
        ({"replicas": 0}, 3, []),  # not known
        ({"replicas": 1, "min_insync_replicas": 1}, 1, []),  # nothing better can be had
        ({"replicas": 1, "min_insync_replicas": 1}, 3, ["one copy"]),
        ({"min_insync_replicas": 1}, 3, ["min.insync.replicas=1 of 3 copies"]),
        ({"replicas": 2, "min_insync_replicas": 1}, 3, ["min.insync.replicas=1 of 2 copies"]),
        ({"min_insync_replicas": 4}, 4, ["min.insync.replicas=4 of 3 copies"]),
        ({"replicas": 1}, 1, ["min.insync.replicas=2 of 1 copies"]),
        ({"unclean_elections": True}, 3, ["unclean.leader.election.enable=true"]),
        ({"unclean_elections": True, "replicas": 1, "min_insync_replicas": 1}, 1, []),
    ],
)
def test_what_may_lose_acknowledged_records(
    changes: dict[str, int], brokers: int, found: list[str]
) -> None:
    weak = list(durability.of_topic(replace(GOOD, **changes), brokers))  # type: ignore[arg-type]
    assert [one.found for one in weak] == found
    assert all("`kafka-configs --alter" in one.remedy for one in weak)
    stops = [one for one in weak if one.stops]
    assert bool(stops) == (changes.get("min_insync_replicas") == 4 or found[:1] == [
        "min.insync.replicas=2 of 1 copies"])  # fmt: skip


LARGE = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}


def test_a_small_broker_with_the_settings_of_a_large_cluster_begins_no_transaction() -> None:
    weak = list(durability.of_transactions({1: LARGE}, None))
    assert [one.found for one in weak] == [f"{name}={value}" for name, value in LARGE.items()]
    assert all(one.stops and "no transaction can begin" in one.expected for one in weak)
    assert "set transaction.state.log.replication.factor=1 in" in weak[0].remedy
    assert "set transaction.state.log.min.isr=1 in" in weak[1].remedy
    assert "restart broker 1" in str(weak[0])
    assert not list(durability.of_transactions({n: LARGE for n in (1, 2, 3)}, None))


def test_a_transaction_log_that_is_made_needs_only_its_copies() -> None:
    """Of three brokers one is away: nothing is wrong with the settings."""
    log = TopicInfo(durability.TRANSACTION_LOG, "id", 50, replicas=3, min_insync_replicas=2)
    two = {n: LARGE for n in (1, 2)}
    assert not list(durability.of_transactions(two, log))
    (weak,) = durability.of_transactions({1: LARGE}, log)
    assert (weak.found, weak.stops) == ("min.insync.replicas=2", True)


@pytest.mark.parametrize(
    ("topic", "changes", "text"),
    [
        (0, {"cleanup_policy": "compact"}, "has cleanup.policy=compact, expected delete"),
        (0, {"retention_ms": 1000}, "has retention.ms=1000, expected -1"),
        (2, {"retention_bytes": 9}, "has retention.bytes=9, expected -1"),
        (1, {"cleanup_policy": "compact"}, "has cleanup.policy=compact, expected delete"),
        (1, {"retention_ms": 1000}, ""),
    ],
)
def test_a_control_topic_that_would_lose_what_it_is_for_is_refused(
    topic: int, changes: dict[str, object], text: str
) -> None:
    wanted = control_topics("shop", 2)[topic]
    kept_ms = int(wanted.config["retention.ms"])
    info = TopicInfo(wanted.name, "id", wanted.partitions, retention_ms=kept_ms)
    refuse_unlike(wanted, info)
    wrong = replace(info, **changes)  # type: ignore[arg-type]
    if not text:
        refuse_unlike(wanted, wrong)
        return
    with pytest.raises(PermanentError, match=text) as caught:
        refuse_unlike(wanted, wrong)
    assert "`kafka-configs --alter" in str(caught.value)


def test_buffers_and_redriven_letters_are_topics_of_a_job_where_they_exist() -> None:
    existing = [
        names.buffer("shop", "totals", 1), names.buffer("shop", "totals", 12), "lines",
        names.buffer("shop-too", "totals", 1), names.tokens("shop"), names.redriven("shop"),
        "perseid.shop.buffer.1", "perseid.shop.buffer.totals.x",
    ]  # fmt: skip
    found = optional_topics("shop", existing)
    assert [topic.name for topic in found] == [
        "perseid.shop.redriven", "perseid.shop.buffer.totals.1", "perseid.shop.buffer.totals.12"
    ]  # fmt: skip
    assert {topic.config["retention.ms"] for topic in found} == {"-1"}
    assert optional_topics("shop", ["lines"]) == ()
