"""Nexmark queries with state on a whole cluster; their worker is killed on the way.

A normal run draws one of them; `perseid bench nexmark` runs and judges all queries.
"""

from __future__ import annotations

import pytest

from benches.nexmark import TOPICS, Event, Events, answers
from benches.nexmark_run import PARTITIONS, difference, feed, run_query
from perseid.testing.running import RunningCluster

EVENTS = Events(20_000, seed=5)
STATEFUL = ("q3", "q5", "q7", "q8")  # joins and windows: a kill could lose or double what they hold


@pytest.fixture(scope="module")
def sent(running: RunningCluster) -> list[Event]:
    for topic in TOPICS:
        running.topic(topic, PARTITIONS)
    return feed(running.kafka, EVENTS)


@pytest.mark.drawn
@pytest.mark.parametrize("query", STATEFUL)
def test_each_query_answers_as_the_plain_computation(
    running: RunningCluster, sent: list[Event], query: str
) -> None:
    found, _ = run_query(running, query, EVENTS, running.kill_owner)
    assert not difference(found, answers(query, sent))
    running.do("jobs", "remove", f"nexmark-{query}", "--purge")
