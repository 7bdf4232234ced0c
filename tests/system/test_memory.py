"""State beyond its limit, or the container's: a clear stop between two epochs, and on with more."""

from __future__ import annotations

import shutil
from pathlib import Path

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until

STOPPED_S = 180.0
LITTLE = {"max": 400 << 20, "current": 399 << 20}  # of which 2 KiB could be freed


def job(folder: Path, memory: str, name: str = "mem", epoch: str = "maxRecords: 400000") -> str:
    names = {
        "name: wordcount": f"name: {name}", "topic: lines": f"topic: {name}-lines",
        "topic: word-counts": f"topic: {name}-counts",
        'use: "wordcount:Counts"': f'use: "wordcount:Counts", memory: "{memory}"',
        "maxRecords: 400000": epoch,
    }  # fmt: skip
    return str(example(folder, "wordcount", names))


def words(first: int, count: int = 200) -> list[bytes]:
    """Lines with a word each that has not occurred before, twice."""
    return [f"word{i} word{i}".encode() for i in range(first, first + count)]


def test_state_beyond_its_limit_stops_the_job_which_resumes_with_more(
    running: RunningCluster, tmp_path: Path
) -> None:
    """One epoch brings more than the limit: after any other one of it the old limit would stop."""
    running.topic("mem-lines")
    running.do("jobs", "apply", job(tmp_path / "small", "64KiB"))
    running.produce("mem-lines", words(0, 20_000))  # 64 KiB hold fewer
    failed = running.wait_job("mem", lambda j: j["state"] == "failed", "stopped")
    text = failed["error"]["text"]
    assert "operator counts, partition " in text
    assert "of the 16384 bytes that `memory:` gives it" in text
    assert "Raise `memory:` of operator counts" in text
    assert failed["committed_epoch"] == failed["error"]["epoch"]

    running.do("jobs", "apply", job(tmp_path / "large", "64MiB"))
    running.wait_caught_up("mem")
    assert verify_wordcount(running.kafka, "mem-lines", "mem-counts").ok
    running.do("jobs", "remove", "mem", "--purge")


def test_large_records_make_small_epochs(running: RunningCluster, tmp_path: Path) -> None:
    """4 MB of input with 1 MiB an epoch: of records not known yet one of each partition."""
    line = b"word " * 20_000
    running.topic("big-lines")
    running.produce("big-lines", [line] * 40)
    running.do("jobs", "apply", job(tmp_path / "job", "64MiB", "big", 'maxBytes: "1MiB"'))
    running.keep_tokens("big")
    running.wait_caught_up("big")
    read = [n for t in running.tokens("big") if (n := t.records)]
    assert sum(read) == 40
    assert max(read[:2]) <= 4
    assert max(read) <= (1 << 20) // len(line) + 3  # of each of four partitions one at least
    assert verify_wordcount(running.kafka, "big-lines", "big-counts").ok
    running.do("jobs", "remove", "big", "--purge")


def test_a_job_is_stopped_before_the_container_runs_out_of_memory(
    running: RunningCluster, tmp_path: Path
) -> None:
    """The control group's files are the test's: it must not exhaust the machine's memory."""
    running.topic("oom-lines")
    running.do("jobs", "apply", job(tmp_path / "job", "64MiB", "oom"))
    running.produce("oom-lines", words(0))
    running.wait_caught_up("oom")
    group = running.cluster.data / "cgroups"
    group.mkdir()
    try:
        for name, size in LITTLE.items():
            (group / f"memory.{name}").write_text(f"{size}\n")
        (group / "memory.stat").write_text("anon 417333248\ninactive_file 2048\n")
        fed = 200

        def stopped() -> bool:
            nonlocal fed
            running.produce("oom-lines", words(fed))
            fed += 200
            return bool(running.job("oom").get("state") == "failed")

        until(
            stopped, STOPPED_S, "a job that grows by more than 1 MiB in ten minutes to be stopped"
        )
    finally:
        shutil.rmtree(group)
    failed = running.job("oom")
    text = failed["error"]["text"]
    assert "the machine (or container) has 1 MiB of its 400 MiB left, after epoch" in text
    assert "Give the worker more memory" in text
    assert failed["committed_epoch"] == failed["error"]["epoch"]

    running.do("jobs", "start", "oom")
    running.produce("oom-lines", words(fed))
    running.wait_caught_up("oom")
    verdict = verify_wordcount(running.kafka, "oom-lines", "oom-counts")
    assert verdict.ok, verdict
    assert verdict.output_records > 0
    running.do("jobs", "remove", "oom", "--purge")
