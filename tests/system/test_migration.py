"""State of other primitives on a whole cluster: refused, migrated, redistributed, under kills."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from perseid.records import crashpoints
from perseid.testing.running import RunningCluster
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until

JOB = "wider"
SPEC = """name: wider
parallelism: PARTITIONS
sources: {lines: {topic: wider-words, format: text}}
operators:
  words: {input: lines, sql: "SELECT value AS word FROM input"}
  counts: {input: words, key: word, use: "counting:Counts"}
sinks: {counts: {input: counts, topic: wider-counts, format: json, key: word, partitions: 2}}
faultTolerance: {checkpoint: {period: "5s"}}
"""
INTEGERS = """from perseid.jobs import Operator, Table, pa

class Counts(Operator):
    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        out.emit(self.total.add(batch["word"], n=1).rename_columns(["word", "n"]))
"""
# What was counted becomes a float, and a second column has how often a word came since then.
FLOATS = """from perseid.jobs import Operator, Table, pa

class Counts(Operator):
    output = pa.schema([("word", pa.string()), ("n", pa.int64()), ("since", pa.int64())])
    total = Table(key=pa.string(), n=pa.float64(), since=pa.int64())

    def process(self, batch, out):
        rows = self.total.add(batch["word"], n=1.0, since=1)
        out.emit(pa.table({"word": rows["key"], "n": rows["n"].cast(pa.int64()),
                           "since": rows["since"]}))
"""
MIGRATE = """
    def migrate(self, old):
        rows = old["total"]
        since = pa.array([0] * len(rows), pa.int64())
        return {"total": pa.table({"key": rows["key"], "n": rows["n"].cast(pa.float64()),
                                   "since": since})}
"""
RAISES = """
    def migrate(self, old):
        raise ValueError(str(old["total"]["key"].to_pylist()))
"""


def revision(folder: Path, code: str, partitions: int = 2) -> str:
    folder.mkdir()
    (folder / "job.yaml").write_text(SPEC.replace("PARTITIONS", str(partitions)))
    (folder / "counting.py").write_text(code)
    return str(folder)


def words(chance: random.Random, count: int) -> list[bytes]:
    return [b"key-%d" % int(chance.paretovariate(0.7) % 300) for _ in range(count)]


def test_state_is_migrated_once_through_deaths_and_redistributed(
    running: RunningCluster, crash_points: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    running.topic("wider-words", 2)
    running.do("jobs", "apply", revision(tmp_path / "integers", INTEGERS))
    before = words(chance, 3000)
    running.produce("wider-words", before)
    running.wait_caught_up(JOB)

    refused = running.run("jobs", "apply", revision(tmp_path / "refused", FLOATS))
    assert refused.code == 3, refused
    reported = json.dumps(refused.document) + refused.stderr
    assert "int64 -> double" in reported
    assert "migrate" in reported

    refused = running.run("jobs", "apply", revision(tmp_path / "raises", FLOATS + RAISES))
    assert refused.code == 1, refused  # it waits for the new revision, which fails
    assert "ValueError" in json.dumps(refused.document)
    failed = running.wait_job(JOB, lambda j: j["state"] == "failed", "failed")
    assert "migrate" in failed["error"]["text"]
    assert "ValueError" in failed["error"]["text"]
    assert "key-" not in json.dumps(failed) + "".join(running.logs().values())
    after = words(chance, 3000)
    running.produce("wider-words", after)  # they wait

    running.wait_workers(2)
    # A process before its partition's migration, and the job's driver in the first epoch after it.
    points = ("restore.during@counts", "log.before-rename@counts")
    crashpoints.arm(crash_points, points[0])
    crashpoints.arm(crash_points, points[1], "driver")
    running.do("jobs", "apply", revision(tmp_path / "floats", FLOATS + MIGRATE, 3))
    until(
        lambda: not any(crashpoints.armed(crash_points, point) for point in points), 300.0,
        "deaths before and after a migration",
    )  # fmt: skip
    running.wait_caught_up(JOB, above_epoch=failed["error"]["epoch"])
    running.do("jobs", "stop", JOB)  # what the log has now is migrated already
    last = words(chance, 2000)
    running.produce("wider-words", last)
    running.do("jobs", "start", JOB)
    running.wait_caught_up(JOB)

    counted, since = Counter(before + after + last), Counter(after + last)
    wanted = {word.decode(): (n, since[word]) for word, n in counted.items()}
    state = running.do("state", JOB, "counts", "--limit", "1000")["state"]["total"]["rows"]
    assert {row["key"]: (row["n"], row["since"]) for row in state} == wanted
    assert {row["partition"] for row in state} == {0, 1, 2}
    verdict = verify_wordcount(running.kafka, "wider-words", "wider-counts")
    assert verdict.ok, verdict
    running.do("jobs", "remove", JOB, "--purge")
