"""Explanations of a shipped job's records on a whole cluster, computed again in plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example
from perseid.testing.verify.read import read_topic

ANSWER_S = 400.0  # two cores that are busy

Place = tuple[str, int, int]


def explain(running: RunningCluster, *arguments: str) -> dict[str, Any]:
    ran = running.run("explain", *arguments, "--show-values", timeout_s=ANSWER_S)
    assert ran.code == 0, f"{ran.code} {ran.document} {ran.stderr[-4000:]}"
    document: dict[str, Any] = ran.document
    return document


def inputs(found: dict[str, Any]) -> set[Place]:
    return {
        (one["topic"], one["partition"], offset)
        for one in found["inputs"] for first, last in one["ranges"]
        for offset in range(first, last + 1)
    }  # fmt: skip


def read(running: RunningCluster, topics: Iterable[str]) -> dict[Place, dict[str, Any]]:
    return {
        (topic, record.partition, record.offset): json.loads(record.value or b"")
        for topic in topics for record in read_topic(running.kafka, topic)
        if record.value != b"{not json"
    }  # fmt: skip


@pytest.mark.drawn(group="examples")
def test_a_record_is_explained_by_the_records_of_its_key(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("ex-views", 2)
    running.topic("ex-users", 2)
    names = {"topic: views,": "topic: ex-views,", "topic: users,": "topic: ex-users,",
             "name: pageviews": "name: explained", "topic: views-enriched": "topic: ex-enriched",
             "topic: views-by-country": "topic: ex-countries",
             "topic: pageviews-dlq": "topic: ex-dlq"}  # fmt: skip
    folder = example(tmp_path / "job", "pageviews", names)
    running.do("jobs", "apply", str(folder), "--timeout", "200")
    running.keep_tokens("explained")
    chance = random.Random(5)
    users = {f"u{i}": chance.choice(["at", "de", "ch"]) for i in range(40)}
    running.produce(
        "ex-users",
        [json.dumps({"user": u, "country": c}).encode() for u, c in users.items()],
    )
    running.wait_caught_up("explained")
    for _ in range(3):  # several epochs
        views = [
            json.dumps({"user": f"u{chance.randrange(50)}", "page": "p", "ms": n}).encode()
            for n in range(400)
        ]
        running.produce("ex-views", [*views, b"{not json"])
        running.wait_caught_up("explained")
    running.do("checkpoint", "explained", "--timeout", "100")

    sources = read(running, ["ex-views", "ex-users"])
    tokens = {token.epoch: token for token in running.tokens("explained")}
    epoch_of = {
        (r.topic, r.partition, offset): token.epoch
        for token in tokens.values() for split in token.splits for r in split
        for offset in range(r.start, r.end)
    }  # fmt: skip
    country = {
        place: users.get(row["user"], "unknown")
        for place, row in sources.items() if place[0] == "ex-views"
    }  # fmt: skip

    *_, record = [
        r for r in read_topic(running.kafka, "ex-countries") if r.key == b"de"
    ]  # fmt: skip
    found = explain(running, f"ex-countries:{record.partition}:{record.offset}", "--since")
    epoch = found["epoch"]
    of_key = {place for place, name in country.items() if name == "de"}
    columns = json.loads(record.value or b"")
    assert columns["views"] == sum(epoch_of[place] <= epoch for place in of_key)
    assert inputs(found) == {place for place in of_key if epoch_of[place] == epoch}
    assert (found["job"], found["operator"]) == ("explained", "countries")
    assert found["revision"] == tokens[epoch].revision
    assert found["key"] == [{"country": "de"}]
    assert found["after"]["seen"] == [{"key": "de", "views": columns["views"], "ms": columns["ms"]}]
    before = sum(epoch_of[place] < epoch for place in of_key)
    assert [row["views"] for row in found["before"]["seen"]] == ([before] if before else [])

    *_, record = read_topic(running.kafka, "ex-enriched")
    user = json.loads(record.value or b"")["user"]
    by_key = explain(running, "explained", "--key", user, "--epoch", str(epoch), "--operator",
                     "enriched")  # fmt: skip
    assert inputs(by_key) == {
        place for place, row in sources.items() if row["user"] == user and epoch_of[place] == epoch
    }

    refused = running.run("explain", "ex-countries:0:999999", timeout_s=ANSWER_S)
    assert refused.code == 3, refused.stderr
    running.produce("ex-countries", [b"of another program"])
    places = [
        r for r in read_topic(running.kafka, "ex-countries") if r.value == b"of another program"
    ]
    (other,) = places
    refused = running.run("explain", f"ex-countries:{other.partition}:{other.offset}",
                          timeout_s=ANSWER_S)  # fmt: skip
    assert refused.code == 3, refused.stderr
    assert "another program wrote it" in refused.stderr
    running.do("jobs", "remove", "explained", "--purge")
