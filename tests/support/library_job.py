"""A job with every library operator, and its input."""

from __future__ import annotations

import json
import random

from perseid.testing.running import RunningCluster
from support.uninterrupted import Rows

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
  kept-again: {input: rows, sql: "SELECT g, w, ms FROM input WHERE n = 1"}
  sampled: {inputs: {left: rows, right: kept-again}, key: g, parallelism: 1,
            use: "library:RippleJoin", with: {sample: 0.5, sum: x}}
  about: {input: rows, key: g, parallelism: 1, use: "library:Distinct",
          with: {column: w, error: 0.09, keys: 9}}
  learner:
    inputs: {rows: rows, average: {from: average.replies, feedback: {delay: 1}}}
    key: w
    use: "library:LogisticRegression"
    with: {features: x, label: n, models: 3, every: 20}
  average: {input: learner.local, key: w, parallelism: 1, use: "library:ModelAverage",
            with: {features: x}}
  counts: {input: rows, key: w, parallelism: 1, use: "library:CountByKey"}
  sums: {input: rows, key: w, parallelism: 1, use: "library:Sum", with: {column: n}}
  running: {input: kept, key: w, parallelism: 1, use: "library:RunningSum", with: {column: n}}
  panes: {input: rows, key: g, parallelism: 1, use: "library:Window",
          with: {kind: hopping, size: "20s", step: "10s", time: ms,
                 aggregate: {rows: count, total: "sum(n)"}}}
  visits: {input: rows, key: g, parallelism: 1, use: "library:Window",
           with: {kind: session, gap: "500ms", time: ms, aggregate: {rows: count, newest: "max(n)"},
                  correct: "10s"}}
  recent: {input: rows, key: g, parallelism: 1, use: "library:Window",
           with: {kind: sliding, size: "2s", time: ms, aggregate: {rows: count, total: "sum(n)"}}}
  fading: {input: rows, key: g, parallelism: 1, use: "library:Decaying",
           with: {halfLife: "30s", time: ms}}
  pairs: {inputs: {left: rows, right: kept-again}, key: g, parallelism: 1, use: "library:Join",
          with: {within: "200ms", time: ms, left: {ms: int64, x: float64},
                 right: {ms: int64, w: string}}}
  met: {inputs: {left: rows, right: kept-again}, key: w, parallelism: 1, use: "library:Join",
        with: {window: "1s", time: ms, left: {ms: int64, x: float64},
               right: {ms: int64, g: string}}}
  newest: {inputs: {left: rows, right: kept-again}, key: g, parallelism: 1, use: "library:AsOf",
           with: {time: ms, left: {ms: int64, x: float64}, right: {ms: int64, w: string}}}
sinks:
  kept: {input: kept, topic: library-kept, format: json, key: w}
  top: {input: top, topic: library-top, format: json, key: g}
  users: {input: users, topic: library-users, format: json, key: g}
  heavy: {input: heavy, topic: library-heavy, format: json, key: w}
  modes: {input: modes, topic: library-modes, format: json, key: g}
  model: {input: model, topic: library-model, format: json, order: free}
  size: {input: size, topic: library-size, format: json, order: free}
  sampled: {input: sampled, topic: library-sampled, format: json, order: free}
  about: {input: about, topic: library-about, format: json, key: g}
  learner: {input: learner, topic: library-learner, format: json, order: free}
  average: {input: average, topic: library-average, format: json, order: free}
  counts: {input: counts, topic: library-counts, format: json, key: w}
  sums: {input: sums, topic: library-sums, format: json, key: w}
  running: {input: running, topic: library-running, format: json, key: w}
  panes: {input: panes, topic: library-panes, format: json, key: g}
  visits: {input: visits, topic: library-visits, format: json, key: g}
  recent: {input: recent, topic: library-recent, format: json, key: g}
  fading: {input: fading, topic: library-fading, format: json, key: g}
  pairs: {input: pairs, topic: library-pairs, format: json, key: g}
  met: {input: met, topic: library-met, format: json, key: w}
  newest: {input: newest, topic: library-newest, format: json, key: g}
faultTolerance: {checkpoint: {period: "5s"}}
"""


def job_text(name: str) -> str:
    """The job's job.yaml under a name of its own; its topics begin with that name."""
    return JOB.replace("library-", f"{name}-").replace("name: library", f"name: {name}")


class Input:
    """Rows every 60 ms of event time, without end."""

    def __init__(self, running: RunningCluster, topic: str) -> None:
        self.rows: Rows = []
        self._running, self._topic = running, topic
        self._chance = random.Random(4)

    def feed(self, count: int) -> None:
        chance = self._chance
        made = [
            {
                "g": chance.choice("abc"), "w": f"w{int(chance.paretovariate(0.7)) % 99}",
                "n": chance.randrange(2), "x": chance.random(), "ms": i * 60,
            }
            for i in range(len(self.rows), len(self.rows) + count)
        ]  # fmt: skip
        self.rows += made
        self._running.produce(self._topic, [json.dumps(row).encode() for row in made])
