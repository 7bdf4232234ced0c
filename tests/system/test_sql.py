"""SQL as people write it, on a whole cluster: stars, every column type, metadata by name, dates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example
from perseid.testing.verify.read import read_topic

JOB = """
name: everyday
sources:
  o:
    topic: sql-orders
    format: json
    columns:
      {id: int64, user: string, amount: int64, price: float64, paid: bool, created: timestamp}
  lines: {topic: sql-lines, format: text}
operators:
  all: {input: o, sql: "SELECT * FROM input WHERE amount > 10"}
  twice: {input: o, sql: "SELECT user, amount * 2 AS x FROM input"}
  named: {input: o, sql: "SELECT user FROM input WHERE user RLIKE 'u.*'"}
  times: {input: o, sql: "SELECT id, created FROM input"}
  dates:
    input: o
    sql: >-
      SELECT id, date_format(created, 'yyyy-MM-dd HH:mm') AS d, hour(created) AS h,
      CAST(CAST(created AS DATE) AS STRING) AS day FROM input
  placed:
    input: o
    sql: >-
      SELECT CAST(key AS STRING) AS k, partition, offset, timestamp > '2020-01-01' AS recent
      FROM input -- not now()
  after: {input: all, sql: "SELECT * EXCEPT (created) FROM input"}
  matching: {input: lines, sql: "SELECT value FROM input WHERE value LIKE '%buy now%'"}
  every: {input: lines, sql: "SELECT * FROM input"}
sinks:
  all: {input: all, topic: sql-all, format: json}
  twice: {input: twice, topic: sql-twice, format: json}
  named: {input: named, topic: sql-named, format: json}
  times: {input: times, topic: sql-times, format: json}
  dates: {input: dates, topic: sql-dates, format: json}
  placed: {input: placed, topic: sql-placed, format: json}
  after: {input: after, topic: sql-after, format: json}
  matching: {input: matching, topic: sql-matching, format: text}
  every: {input: every, topic: sql-every, format: text}
  raw: {input: o, topic: sql-raw, format: json}
"""
ORDER = {
    "id": 1, "user": "u1", "amount": 20, "price": 2.5, "paid": True,
    "created": "2026-11-21T02:30:00+00:00",
}  # fmt: skip


@pytest.mark.drawn(group="changes")
def test_everyday_sql_gives_the_expected_rows(running: RunningCluster, tmp_path: Path) -> None:
    running.topic("sql-orders", 1)
    running.topic("sql-lines", 1)
    (tmp_path / "job.yaml").write_text(JOB)
    running.do("jobs", "apply", str(tmp_path))
    sent = json.dumps(ORDER).encode()
    running.produce("sql-orders", [sent, sent], keys=[b"u1", None])
    running.produce("sql-lines", [b"buy now or never", b"sell"])
    running.wait_caught_up("everyday")
    place = {"k": "u1", "partition": 0, "offset": 0, "recent": True}
    wanted = {
        "all": [ORDER, ORDER],
        "twice": [{"user": "u1", "x": 40}] * 2,
        "named": [{"user": "u1"}] * 2,
        "times": [{"id": 1, "created": ORDER["created"]}] * 2,
        "dates": [{"id": 1, "d": "2026-11-21 02:30", "h": 2, "day": "2026-11-21"}] * 2,
        "placed": [place, {**place, "k": None, "offset": 1}],
        "after": [{k: v for k, v in ORDER.items() if k != "created"}] * 2,
        "raw": [ORDER, ORDER],
    }
    assert {name: running.rows(f"sql-{name}") for name in wanted} == wanted
    texts = {
        name: [r.value for r in read_topic(running.kafka, f"sql-{name}")]
        for name in ("matching", "every")
    }
    assert texts == {"matching": [b"buy now or never"], "every": [b"buy now or never", b"sell"]}
    running.do("jobs", "remove", "everyday", "--purge")


def test_sql_that_cannot_run_is_refused_when_it_is_applied(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("sql-refused", 1)
    (tmp_path / "job.yaml").write_text(
        "name: refused\n"
        "sources: {o: {topic: sql-refused, format: json, columns: {user: string, amount: int64}}}\n"
        "operators:\n"
        '  sums: {input: o, sql: "SELECT user, sum(amount) AS s FROM input GROUP BY user"}\n'
        "sinks: {out: {input: sums, topic: sql-sums, format: json}}\n"
    )
    for verb in ("validate", "apply"):
        ran = running.run("jobs", verb, str(tmp_path))
        assert ran.code == 1
        assert "SQL of operator sums: it contains Aggregate" in ran.document["error"]["message"]


@pytest.mark.drawn(group="field")
def test_the_shipped_jobs_with_sql_run(running: RunningCluster, tmp_path: Path) -> None:
    """Those that no other test runs: wordcount, grep and incidents have their own."""
    running.topic("sql-words", 1)
    running.topic("site-views", 1)
    for name in ("top-words", "heavy-hitters"):
        folder = example(tmp_path / name, name, {"topic: lines,": "topic: sql-words,"})
        running.do("jobs", "apply", str(folder))
    running.do("jobs", "apply", str(example(tmp_path / "sessions", "sessions", {})))
    running.produce("sql-words", [b"now or never", b"now and then", b"now"] * 20)
    start_ms, hour_ms = 1_790_000_000_000, 3_600_000
    views = [{"user": "u", "page": "/p", "ms": start_ms + i * 1000} for i in range(600)]
    views += [{"user": "v", "page": "/p", "ms": start_ms + n * hour_ms} for n in (1, 5)]
    running.produce("site-views", [json.dumps(view).encode() for view in views])
    for name in ("top-words", "heavy-hitters", "sessions"):
        running.wait_caught_up(name)
    running.produce("site-views", [json.dumps({**views[-1], "user": "w"}).encode()])
    running.wait_caught_up("sessions")
    assert "now" in json.dumps(running.rows("words-top"))
    assert {row["word"] for row in running.rows("words-heavy")} >= {"now", "never"}
    busy = {(row["user"], row["views"]) for row in running.rows("site-visits-busy")}
    assert busy == {("u", 600)}
    for name in ("top-words", "heavy-hitters", "sessions"):
        running.do("jobs", "remove", name, "--purge")
