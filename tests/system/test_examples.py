"""The shipped jobs on a whole cluster, their output computed again here in plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.verify.read import read_topic


@pytest.mark.drawn(group="examples")
def test_wordcount_sends_one_record_for_each_changed_word(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("wc-lines")
    names = {"topic: lines": "topic: wc-lines", "topic: word-counts": "topic: wc-counts",
             "name: wordcount": "name: wc"}  # fmt: skip
    running.do("jobs", "apply", str(example(tmp_path / "wc", "wordcount", names)))
    running.produce("wc-lines", [*lines(3000, 1), b'quo"ted back\\slash', "ümläut".encode()])
    running.wait_caught_up("wc")
    verdict = verify_wordcount(running.kafka, "wc-lines", "wc-counts")
    assert verdict.ok, verdict
    records = list(read_topic(running.kafka, "wc-counts"))
    by_word = {json.loads(r.value or b"")["word"]: r for r in records}
    assert by_word["ümläut"].key == "ümläut".encode()
    assert by_word["ümläut"].value == '{"word": "ümläut", "n": 1}'.encode()
    running.do("jobs", "remove", "wc", "--purge")


@pytest.mark.drawn(group="examples")
def test_grep_keeps_matching_lines_in_the_order_of_their_partition(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("grep-lines")
    names = {"topic: lines,": "topic: grep-lines,", "topic: lines-matching": "topic: grep-out",
             "name: grep": "name: grep-test"}  # fmt: skip
    running.do("jobs", "apply", str(example(tmp_path / "grep", "grep", names)))
    sent = [f"{'error' if i % 3 else 'fine'} {i}".encode() for i in range(2000)]
    for part in range(4):  # several epochs
        running.produce("grep-lines", sent[part::4], keys=[b"%d" % (i % 7) for i in range(500)])
        running.wait_caught_up("grep-test")
    found = [r.value for r in read_topic(running.kafka, "grep-out")]
    assert Counter(found) == Counter(v for v in sent if b"error" in v)
    running.do("jobs", "remove", "grep-test", "--purge")


@pytest.mark.drawn(group="examples")
def test_pageviews_joins_two_sources_into_two_sinks(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("views", 2)
    running.topic("users", 2)
    running.do("jobs", "apply", str(example(tmp_path / "pageviews", "pageviews", {})))
    chance = random.Random(3)
    users = {f"u{i}": chance.choice(["at", "de", "ch"]) for i in range(50)}
    announced = [json.dumps({"user": u, "country": c}).encode() for u, c in users.items()]
    running.produce("users", announced)
    running.wait_caught_up("pageviews")
    views: list[dict[str, str | int]] = [
        {"user": f"u{chance.randrange(60)}", "page": f"/p{i}", "ms": chance.randrange(900)}
        for i in range(3000)
    ]
    running.produce("views", [json.dumps(v).encode() for v in views] + [b"{not json"])
    running.wait_caught_up("pageviews")
    country = {v["page"]: users.get(str(v["user"]), "unknown") for v in views}
    wanted = Counter(json.dumps({**v, "country": country[v["page"]]}) for v in views)
    assert Counter(map(json.dumps, running.rows("views-enriched"))) == wanted
    last = {r["country"]: (r["views"], r["ms"]) for r in running.rows("views-by-country")}
    counted: Counter[str] = Counter(country.values())
    spent: Counter[str] = Counter()
    for view in views:
        spent[country[view["page"]]] += int(view["ms"])
    assert last == {c: (counted[c], spent[c]) for c in counted}
    letters = list(read_topic(running.kafka, "pageviews-dlq"))
    assert [letter.value for letter in letters] == [b"{not json"]
    running.do("jobs", "remove", "pageviews", "--purge")


@pytest.mark.drawn(group="examples")
def test_incidents_are_reported_with_the_speeds_of_their_road(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("vehicle-speeds", 1)
    running.topic("traffic-incidents", 1)
    running.do("jobs", "apply", str(example(tmp_path / "incidents", "incidents", {})))
    chance = random.Random(11)
    end_ms = 900_000
    vehicles: list[dict[str, Any]] = [
        {"vehicle": f"v{i}", "segment": chance.choice("abc"), "speed": chance.randrange(5, 60),
         "ms": i * 300 + chance.randrange(4000)}
        for i in range(end_ms // 300)
    ]  # fmt: skip
    incidents: list[dict[str, Any]] = [
        {"incident": f"i{ms}", "segment": chance.choice("abc"), "ms": ms}
        for ms in range(0, end_ms, 100_000)
    ]
    last: dict[str, Any] = {
        "segment": "z",
        "ms": end_ms + 100_000,
    }  # moves the watermark past all windows
    running.produce(
        "traffic-incidents",
        [json.dumps(row).encode() for row in [*incidents, {**last, "incident": "last"}]],
    )
    for part in range(5):  # several epochs
        came = vehicles[part * 600 : part * 600 + 600]
        running.produce("vehicle-speeds", [json.dumps(row).encode() for row in came])
        running.wait_caught_up("incidents")
    running.produce("vehicle-speeds", [json.dumps({**last, "vehicle": "v", "speed": 1}).encode()])
    view = running.wait_job(
        "incidents",
        lambda j: (
            (j["watermark_ms"] or 0) >= last["ms"] - 5000 and j["committed_epoch"] == j["epoch"]
        ),
        "past all windows",
    )
    assert view["late_records"] == 0
    expected = []
    for incident in incidents:
        for end in range(0, end_ms + 40_000, 10_000):
            speeds = [
                row["speed"] for row in vehicles
                if row["segment"] == incident["segment"] and end - 30_000 <= row["ms"] < end
            ]  # fmt: skip
            near = incident["ms"] <= end <= incident["ms"] + 300_000
            if near and len(speeds) >= 3 and sum(speeds) < 30 * len(speeds):
                expected.append(
                    (incident["incident"], end, len(speeds), sum(speeds) / len(speeds), min(speeds))
                )
    found = [
        (row["incident"], row["end"], row["vehicles"], row["speed"], row["slowest"])
        for row in running.rows("traffic-jams")
    ]
    assert len(expected) > 50
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    running.do("jobs", "remove", "incidents", "--purge")
