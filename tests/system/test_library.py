"""Library operators in one job on a whole cluster, each against a plain computation."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until

JOB = """\
name: library
parallelism: 2
sources:
  rows:
    topic: library-in
    format: json
    columns: {g: string, w: string, n: int64, x: float64, ms: int64}
    eventTime: {column: ms, watermark: "1s", late: update}
operators:
  kept: {input: rows, use: "library:Grep", with: {column: w, pattern: "^w[0-9]$"}}
  top: {input: kept, key: g, use: "library:TopK", with: {of: w, k: 3}}
  users: {input: rows, key: g, use: "library:Distinct", with: {column: w}}
  heavy: {input: rows, key: w, use: "library:HeavyHitters", with: {threshold: 100}}
  modes: {input: rows, key: g, use: "library:KMeans",
          with: {columns: x, k: 1, window: "1m", time: ms}}
  model: {input: rows, key: g, use: "library:LogisticRegression",
          with: {features: x, label: n, every: 100}}
  size: {inputs: {left: rows, right: kept-again}, key: g, use: "library:RippleJoin",
         with: {sample: 1}}
  kept-again: {input: rows, sql: "SELECT g FROM input WHERE n = 1"}
sinks:
  top: {input: top, topic: library-top, format: json, key: g}
  users: {input: users, topic: library-users, format: json, key: g}
  heavy: {input: heavy, topic: library-heavy, format: json, key: w}
  modes: {input: modes, topic: library-modes, format: json, key: g}
  model: {input: model, topic: library-model, format: json, order: free}
  size: {input: size, topic: library-size, format: json, order: free}
"""
MINUTE = 60_000


def told(running: RunningCluster, name: str) -> list[dict[str, Any]]:
    return [json.loads(r.value or b"") for r in read_topic(running.kafka, f"library-{name}")]


def test_library_operators_compute_what_plain_python_does(
    running: RunningCluster, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    running.topic("library-in", 1)
    running.do("jobs", "apply", str(tmp_path))
    chance = random.Random(4)
    rows: list[dict[str, Any]] = [
        {
            "g": chance.choice("abc"), "w": f"w{int(chance.paretovariate(0.7)) % 99}",
            "n": chance.randrange(2), "x": chance.random(), "ms": i * 60,
        }
        for i in range(2000)  # two minutes
    ]  # fmt: skip
    for at in range(0, 2000, 500):  # several epochs
        running.produce("library-in", [json.dumps(r).encode() for r in rows[at : at + 500]])
        running.wait_caught_up("library")
    running.do("jobs", "show", "library")

    words = Counter(row["w"] for row in rows)
    seen: dict[Any, set[Any]] = defaultdict(set)
    weights: dict[Any, Counter[Any]] = defaultdict(Counter)
    for row in rows:
        seen[row["g"]].add(row["w"])
        if len(row["w"]) == 2:
            weights[row["g"]][row["w"]] += 1
    last = {r["g"]: r["distinct"] for r in told(running, "users")}
    assert last == {g: len(values) for g, values in seen.items()}
    ranked = {(r["g"], r["rank"]): (r["w"], r["n"]) for r in told(running, "top")}
    assert ranked == {
        (g, place): pair
        for g, counts in weights.items()
        for place, pair in enumerate(sorted(counts.items(), key=lambda p: (-p[1], p[0]))[:3], 1)
    }
    heavy = {r["w"]: r["n"] for r in told(running, "heavy")}
    assert heavy == {word: n for word, n in words.items() if n >= 100}

    def ended() -> list[dict[str, Any]] | None:
        """The first minute's window: its end comes with a token behind its rows'."""
        found = told(running, "modes")
        return found if len(found) == 3 else None

    for mode in until(ended, 60, "the first window of three keys"):
        xs = [r["x"] for r in rows if r["g"] == mode["g"] and r["ms"] < MINUTE]
        assert (mode["start"], mode["points"]) == (0, len(xs))
        assert mode["x"] == pytest.approx(sum(xs) / len(xs))
    models = told(running, "model")
    records = Counter(m["partition"] for m in models)
    assert 18 <= len(models) <= 20
    assert all(m["records"] % 100 == 0 and 0 < m["loss"] < 1 for m in models)
    assert all(
        max(m["records"] for m in models if m["partition"] == p) == 100 * n
        for p, n in records.items()
    )
    left = Counter(row["g"] for row in rows)
    right = Counter(row["g"] for row in rows if row["n"] == 1)
    newest = {r["partition"]: r["estimate"] or 0 for r in told(running, "size")}
    assert sum(newest.values()) == pytest.approx(sum(left[g] * right[g] for g in left))
    running.do("jobs", "remove", "library", "--purge")
