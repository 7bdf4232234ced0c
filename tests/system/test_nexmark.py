"""Nexmark queries with windows on a whole cluster; their worker is killed on the way.

`perseid bench nexmark` runs and judges all of them.
"""

from __future__ import annotations

import pytest

from perseid.testing.nexmark import TOPICS, Event, Events, answers
from perseid.testing.nexmark_run import PARTITIONS, difference, feed, run_query
from perseid.testing.running import RunningCluster

EVENTS = Events(20_000, seed=5)


@pytest.fixture(scope="module")
def sent(running: RunningCluster) -> list[Event]:
    for topic in TOPICS:
        running.topic(topic, PARTITIONS)
    return feed(running.kafka, EVENTS)


@pytest.mark.parametrize("query", ["q5", "q8"])
def test_a_query_answers_as_the_plain_computation(
    running: RunningCluster, sent: list[Event], query: str
) -> None:
    def kill_the_owner(job: str) -> None:
        owner = running.wait_job(job, lambda j: bool(j["owner"]), "placed")["owner"]
        running.cluster.kill(owner.rpartition("-")[0])

    found, _ = run_query(running, query, EVENTS, kill_the_owner)
    assert not difference(found, answers(query, sent))
    running.do("jobs", "remove", f"nexmark-{query}", "--purge")
