"""Operating a running job: a checkpoint now, and a look into its state, while it runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, group_offsets, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin


def test_a_checkpoint_now_and_a_look_into_the_state(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("ops-lines")
    names = {
        "name: wordcount": "name: ops", "topic: lines": "topic: ops-lines",
        "topic: word-counts": "topic: ops-counts", 'period: "30s"': 'period: "1h"',
    }  # fmt: skip
    running.do("jobs", "apply", str(example(tmp_path / "ops", "wordcount", names)))
    running.produce("ops-lines", lines(2000, 1))
    epoch = running.wait_caught_up("ops")["epoch"]

    taken = running.do("checkpoint", "ops")
    assert taken["state"] == "complete"
    assert taken["checkpoint"]["epoch"] > taken["above_epoch"] >= epoch
    shown = running.do("jobs", "show", "ops")
    assert shown["checkpoints"][0]["epoch"] == taken["checkpoint"]["epoch"]
    assert shown["state"] == "running"

    sent = [r.value or b"" for r in read_topic(running.kafka, "ops-lines")]
    wanted = Counter(word for line in sent for word in line.decode().split(" "))
    seen = running.do("state", "ops", "counts", "--limit", "1000")
    assert seen["source"] == "log"
    assert {row["key"]: row["n"] for row in seen["state"]["total"]["rows"]} == wanted
    for word in ("w0", "w77"):
        one = running.do("state", "ops", "counts", "--key", json.dumps({"key": word}))
        assert [row["n"] for row in one["state"]["total"]["rows"]] == [wanted[word]]
        assert len(one["partitions"]) == 1

    running.produce("ops-lines", lines(2000, 2))
    while running.job("ops").get("backlog"):  # looks while epochs run, and disturbs none of them
        assert running.do("state", "ops", "counts", "--key", "w0")["source"] == "log"
    running.wait_caught_up("ops")
    assert verify_wordcount(running.kafka, "ops-lines", "ops-counts").ok

    # Lag tools see what the status shows. No epoch waits for it, so it comes up to a second later.
    ends = TopicAdmin(running.kafka).ends([("ops-lines", p) for p in range(4)])
    until(lambda: group_offsets(running.kafka, "perseid.ops") == ends, 10, "the group's offsets")
    assert running.job("ops")["lag"] == 0

    running.do("jobs", "stop", "ops", "--checkpoint")
    refused = running.run("checkpoint", "ops")
    assert refused.code == 3
    assert "perseid jobs start ops" in refused.document["error"]["message"]
    assert group_offsets(running.kafka, "perseid.ops") == ends
    running.do("jobs", "remove", "ops", "--purge")
    assert group_offsets(running.kafka, "perseid.ops") == {}
