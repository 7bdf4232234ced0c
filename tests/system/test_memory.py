"""State beyond its limit: a clear stop between two epochs, and it goes on with a larger limit."""

from __future__ import annotations

from pathlib import Path

from perseid.testing.running import RunningCluster, example
from perseid.testing.verify import verify_wordcount


def job(folder: Path, memory: str) -> str:
    names = {
        "name: wordcount": "name: mem", "topic: lines": "topic: mem-lines",
        "topic: word-counts": "topic: mem-counts",
        'use: "wordcount:Counts"': f'use: "wordcount:Counts", memory: "{memory}"',
    }  # fmt: skip
    return str(example(folder, "wordcount", names))


def test_state_beyond_its_limit_stops_the_job_which_goes_on_with_more(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("mem-lines")
    running.do("jobs", "apply", job(tmp_path / "small", "64KiB"))
    fed = 0
    while running.job("mem").get("state") != "failed":
        values = [f"word{i} word{i}".encode() for i in range(fed, fed + 200)]
        running.produce("mem-lines", values)
        fed += 200
        assert fed < 40_000, "64 KiB hold fewer words"
    failed = running.job("mem")
    text = failed["error"]["text"]
    assert "operator counts, partition " in text
    assert "of the 16384 bytes that `memory:` gives it" in text
    assert "Raise `memory:` of operator counts" in text
    assert failed["committed_epoch"] == failed["error"]["epoch"]

    running.do("jobs", "apply", job(tmp_path / "large", "64MiB"))
    running.wait_caught_up("mem")
    assert verify_wordcount(running.kafka, "mem-lines", "mem-counts").ok
    running.do("jobs", "remove", "mem", "--purge")
