from __future__ import annotations

import json

import pytest

from perseid.cli import status
from perseid.embedded import ProcessInfo
from perseid.jobs.following import asking
from perseid.records import Deployment, LeaderInfo, WorkerInfo
from perseid.records.repository import RepoJob, RepoRecord

SETTINGS = Deployment(kafka="k:1", zookeeper="z:2", redis="redis://r:3/0", store="s", state="t",
                      logs="l")  # fmt: skip
PROCESSES = [
    ProcessInfo("kafka", "kafka", 10, 11, True),
    ProcessInfo("c1", "coordinator", 20, 21, True),
    ProcessInfo("c2", "coordinator", 22, 23, True),
    ProcessInfo("w1", "worker", 30, 31, True),
    ProcessInfo("w2", "worker", 32, 33, True),
    ProcessInfo("w3", "worker", None, 35, False),
]
LEADER = LeaderInfo("c2", 5, 22, "http://127.0.0.1:9")
WORKER = WorkerInfo("w1", "w1-a", "h", 30, 31, 2, "local[2]", 0)
JOB = {"name": "wordcount", "state": "running", "revision": "r" * 40, "generation": 2, "epoch": 9,
       "committed_epoch": 8, "lag": 5, "mode": "exact", "error": None, "records_in_per_s": 12.5,
       "checkpoint": {"epoch": 7, "age_s": 3.25, "bytes": 10}}  # fmt: skip
FRAGMENT = {"job": "wordcount", "fragment": "whole", "generation": 2, "state": "running"}


def seen() -> status.Seen:
    view = {"leader": {"looked_ms": 1_800_000_000_000}, "jobs": [JOB],
            "workers": [{"incarnation": "w1-a", "fragments": [FRAGMENT]}]}  # fmt: skip
    return status.Seen(LEADER, (WORKER,), view=view)


def test_the_document_has_what_the_contract_names() -> None:
    shown = status.document(SETTINGS, PROCESSES, seen())
    assert (shown["kafka"], shown["zookeeper"]) == ("k:1", "z:2/perseid/local")
    assert (shown["redis"], shown["api"]) == ("redis://r:3/0", LEADER.url)
    assert shown["coordinator"] == [{"pid": 20, "leader": False}, {"pid": 22, "leader": True}]
    live, starting, dead = shown["workers"]
    assert (live["id"], live["pid"], live["supervisor_pid"]) == ("w1", 30, 31)
    assert (live["state"], live["cores"], live["fragments"]) == ("live", 2, [FRAGMENT])
    assert (starting["id"], starting["state"]) == ("w2", "starting")
    assert (dead["id"], dead["state"]) == ("w3", "dead")
    assert (shown["jobs"], shown["looked_ms"]) == ([JOB], 1_800_000_000_000)
    assert shown["faults"] == ["process w3 is not alive"]
    assert json.loads(json.dumps(shown)) == shown


def test_a_failed_job_and_the_last_warning_are_faults() -> None:
    events = ["warning: old", "failure 1: x", "warning: its state has 81 %"]
    job = {"name": "j", "state": "running", "error": None, "events": events}
    assert status.job_faults(job) == ["job j: warning: its state has 81 %"]
    failed = {"name": "j", "state": "failed", "error": {"text": "it is full"}}
    assert status.job_faults(failed) == ["job j failed: it is full"]


def test_a_job_that_fails_again_and_again_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    failing = {"failures": 7, "for_s": 61, "text": "ArrowTypeError: Expected bytes, got a Decimal"}
    job = JOB | {"state": "restoring", "failing": failing, "late_records": 3, "watermark_ms": 0}
    assert status.job_faults(job) == [
        "job wordcount fails again and again (7 times in 61 s): ArrowTypeError: Expected bytes, "
        "got a Decimal"
    ]
    found = seen()
    assert found.view is not None
    found.view["jobs"] = [job]
    status.show(status.document(SETTINGS, [], found))
    printed = capsys.readouterr().out
    (row,) = [line for line in printed.splitlines() if line.startswith("wordcount ")]
    assert "failing" in row
    assert "restoring" not in row
    assert "job wordcount: 3 records were late, the watermark is 1970-01-01T00:00:00Z" in printed


def printed_lines(found: status.Seen, capsys: pytest.CaptureFixture[str]) -> list[str]:
    status.show(status.document(SETTINGS, PROCESSES, found))
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_each_fragment_of_a_spread_job_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = seen()
    assert found.view is not None
    status.show(status.document(SETTINGS, [], found))
    assert "fragments" not in capsys.readouterr().out
    several = [
        {"name": "0", "role": "primary", "state": "running", "partitions": "counts 0-1, totals 0",
         "owner": "w1-a", "generation": 2, "epoch": 8},
        {"name": "1", "role": "primary", "state": "waiting", "partitions": "counts 2-3",
         "owner": None, "generation": 5, "epoch": 6},
    ]  # fmt: skip
    found.view["jobs"] = [JOB | {"owner": None, "fragments": several}]
    found.view["workers"][0]["fragments"] = [FRAGMENT | {"fragment": "0"}]
    lines = printed_lines(found, capsys)
    at = lines.index("fragments")
    assert "job fragment role state partitions worker generation epoch" in lines[at:]
    assert "wordcount 0 primary running counts 0-1, totals 0 w1-a 2 8" in lines[at:]
    (second,) = [line for line in lines if line.startswith("wordcount 1 primary waiting")]
    assert second.endswith("5 6")
    assert "w1 30 live 2 wordcount/0" in lines


def test_a_whole_job_with_a_replica_has_a_line_for_each(
    capsys: pytest.CaptureFixture[str]
) -> None:
    found = seen()
    assert found.view is not None
    both = [
        {"name": "whole", "role": "primary", "state": "running", "partitions": "counts 0-3",
         "owner": "w1-a", "generation": 2, "epoch": 8},
        {"name": "whole", "role": "replica", "state": "restoring", "partitions": "counts 0-3",
         "owner": "w2-a", "generation": 3, "epoch": 5},
    ]  # fmt: skip
    found.view["jobs"] = [JOB | {"owner": "w1-a", "fragments": both}]
    lines = printed_lines(found, capsys)
    at = lines.index("fragments")
    assert "wordcount whole primary running counts 0-3 w1-a 2 8" in lines[at:]
    assert "wordcount whole replica restoring counts 0-3 w2-a 3 5" in lines[at:]
    assert "w1 30 live 2 wordcount" in lines


def test_input_that_is_held_back_is_a_fault() -> None:
    held = {"topic": "lines", "partition": 2, "offset": 70, "records": 10, "for_s": 42}
    assert status.job_faults(JOB | {"stalled_input": [held]}) == [
        "job wordcount: lines[2] is held back at offset 70 for 42 s by an open transaction, 10 "
        "records wait for its end: `perseid txn list wordcount` and `perseid doctor` show whose it "
        "may be"
    ]


def test_without_a_leader_what_is_stored_is_shown() -> None:
    stored = JOB | {"epoch": None, "lag": None, "checkpoint": None}
    found = status.Seen(jobs=[stored], faults=["no coordinator leads"])
    shown = status.document(SETTINGS, PROCESSES, found)
    assert shown["api"] is None
    assert shown["jobs"] == [stored]
    assert "no coordinator leads" in shown["faults"]
    assert not any(c["leader"] for c in shown["coordinator"])


def test_a_leader_of_another_machine_is_listed() -> None:
    shown = status.document(SETTINGS, [], seen())
    assert shown["coordinator"] == [{"pid": 22, "leader": True}]


def test_a_leader_that_has_just_died_is_not_listed() -> None:
    alive = [p for p in PROCESSES if p.pid != LEADER.pid]
    shown = status.document(SETTINGS, alive, seen())
    assert shown["coordinator"] == [{"pid": 20, "leader": False}]


def test_a_followed_repository_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = (RepoJob("a", "job-a", "applied", "t", "1" * 40, "x"),
            RepoJob("b", "job-b", "gone", "t", "1" * 40, "x", "continues"))  # fmt: skip
    url = "https://git.example/jobs.git"
    found = RepoRecord(url, "main", 60, "applied", 0, "1" * 40, "2" * 40, rewritten=True, jobs=jobs)
    reported = seen()
    reported.repository = asking.document(found, 0)
    shown = status.document(SETTINGS, PROCESSES, reported)
    assert json.loads(json.dumps(shown))["repository"]["jobs"][1]["result"] == "gone"
    assert shown["repository"]["faults"] == ["repository: job-b gone: continues"]
    status.show(shown)
    text = capsys.readouterr().out
    head = f"{url} main: applied at {'1' * 12}, seen {'2' * 12}, the ref was rewritten"
    assert head in " ".join(text.split())
    assert "job-a" in text


def test_people_see_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    status.show(status.document(SETTINGS, PROCESSES, seen()))
    text = capsys.readouterr().out
    for part in ("k:1", "w1", "wordcount", "epoch 7, 3 s", "process w3 is not alive"):
        assert part in text
