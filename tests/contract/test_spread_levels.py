"""Two fragments of one job on Spark, whose rows cross buffer topics of a real broker."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from perseid.records import crashpoints
from perseid.topics import codec, names
from support.kafka_handle import Kafka
from support.kill_points import SPREAD_POINTS

# Small epochs, two of them with a process that dies around its send, then a large one, whose levels
# have two tasks each. Then both fragments die, and their next owners run the last epoch again: its
# sets and outputs are there once.
SCRIPT = """
import json, os, sys
from collections import Counter
from pathlib import Path
from confluent_kafka import Producer
from perseid.records import crashpoints
from perseid.worker.spark.session import open_session
from support.spread_in_spark import Job, median, run_both

given = json.loads(sys.stdin.read())
spark = open_session("local[2,4]", 2, "levels", Path("spark"))
job = Job(spark, given["job"], given["kafka"], Path.cwd())
job.create()
producer = Producer({"bootstrap.servers": given["kafka"]})
ends, sent = [0, 0], Counter()

def produce(count):
    for n in range(count):
        word = "abcdef"[n * n % 6] + str(n % 97)
        producer.produce(job.name + "-lines", word, partition=n % 2)
        ends[n % 2] += 1
        sent[word[0]] += 1
    assert producer.flush(30) == 0

found = {"read": 0, "reported": []}
buffered = Counter()

def epochs(fragments, counts):
    times = []
    for count in counts:
        produce(count)
        orders.append(job.order(tuple(ends)))
        took_ms, report = run_both(fragments, orders[-1])
        times.append(took_ms)
        found["read"] += sum(read.count for read in report.reads.values())
        found["reported"].append(sorted(report.partitions))
        for (reader, _, _), size in report.buffered.items():
            buffered[reader] += size
    return times

orders = []
with job.fragments() as fragments:
    epochs(fragments, [40] * 5)
    found["small ms"] = median(epochs(fragments, [40] * 20))
    found["buffered"] = dict(buffered)
    for point in given["points"]:
        crashpoints.arm(Path(os.environ[crashpoints.FOLDER]), point)
        epochs(fragments, [40])
    found["large ms"] = median(epochs(fragments, [30_000]))
    found["rows left"] = [p.name for p in Path.cwd().glob("rows-*/*")]
    found["warned"] = [text for one in fragments for text in one.warned]
job.generation = 2
with job.fragments() as fragments:
    run_both(fragments, orders[-1])
    epochs(fragments, [40])
    found["warned"] += [text for one in fragments for text in one.warned]
print("\\n" + json.dumps({**found, "sent": sent}))
spark.stop()
"""


WITHOUT_DEATHS = 25  # epochs, the first ones


def buffered(kafka: Kafka, job: str, epochs: int) -> Counter[str]:
    """The bytes of the first epochs in the buffer topics, by the operator that reads them."""
    found: Counter[str] = Counter()
    for reader in ("words", "totals"):
        topic = names.buffer(job, reader, 1)
        for partition in range(4):
            for value in kafka.values(topic, partition):
                if codec.decode_buffer((topic, partition), 0, value).epoch <= epochs:
                    found[reader] += len(value)
    return found


@pytest.mark.drawn(group="spark")
def test_epochs_of_two_fragments(
    in_spark: Callable[..., Any], real_kafka: Kafka, tmp_path: Path
) -> None:
    name = f"levels-{uuid.uuid4().hex[:8]}"
    folder, points = tmp_path / "points", [point.name for point in SPREAD_POINTS]
    given = json.dumps({"job": name, "kafka": real_kafka.bootstrap, "points": points})
    found = in_spark(SCRIPT, given, timeout_s=300, **{crashpoints.FOLDER: str(folder)})
    assert not any(crashpoints.armed(folder, point) for point in points), "each was reached"
    assert found["warned"] == []
    assert found["rows left"] == []
    assert found["read"] == sum(found["sent"].values())
    assert found["reported"] == [list(range(8))] * 29
    assert found["buffered"] == buffered(real_kafka, name, WITHOUT_DEATHS)
    counted = [orjson.loads(value) for value in real_kafka.values(f"{name}-out")]
    totals = {row["letter"]: row["n"] for row in counted}
    assert totals == found["sent"], "the last total of each letter"
    assert len({(row["letter"], row["n"]) for row in counted}) == len(counted), "each once"
