"""`perseid dlq`, `txn` and `doctor` as a user types them, against the real services.

No coordinator and no worker runs: jobs are applied and given a plan, and what they would have
written is written here.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perseid.cli import txn
from perseid.cli.main import run
from perseid.embedded import Cluster
from perseid.errors import PerseidError
from perseid.records import LeaderInfo, Plan, WorkerInfo
from perseid.registry import FencedRegistry, Registry, lead
from perseid.testing.server import free_port
from perseid.topics import names
from perseid.topics.control import control_topics
from perseid.topics.transactions import PartitionBatch, Transaction
from perseid.worker.dead_letters import refused
from support.kafka_handle import Kafka

JOB = """
name: {job}
parallelism: 2
sources:
  lines: {{topic: {job}-lines, format: text}}
  orders: {{topic: {job}-orders, format: json, columns: {{user: string, n: int64}}}}
operators:
  words: {{input: lines, sql: "SELECT value AS word FROM input"}}
  users: {{input: orders, sql: "SELECT user AS word FROM input"}}
sinks:
  words: {{input: words, topic: {job}-words, format: json, key: word}}
  users: {{input: users, topic: {job}-users, format: json, key: word}}
errors: {{tolerance: all, deadletterqueue: {{topic: {job}-dlq}}}}
"""
FIX = """
def corrected(letter):
    if letter.value == b"drop":
        return None
    return letter.value.replace(b"\\xff", b"")

def broken(letter):
    raise ValueError("no idea")
"""
# The command, which is killed when it is about to commit its second transaction.
KILLED = """
import os, signal, sys
from perseid.cli import redrive
from perseid.cli.main import main
from perseid.topics.kafka_transactions import KafkaTransaction

redrive.BATCH_LETTERS = 2
commit, commits = KafkaTransaction.commit, []

def dying(self, timeout_s):
    commits.append(1)
    if len(commits) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(self, timeout_s)

KafkaTransaction.commit = dying
main()
"""
README = Path(__file__).parents[2] / "README.md"
LEDGERS = 5  # dead-letters 0, users 1 and 2, words 3 and 4
_numbers = itertools.count(1)


@dataclass
class Job:
    """One applied job that no worker runs."""

    name: str
    folder: Path
    cluster: Cluster
    kafka: Kafka

    def topic(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def type(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
        """What a command prints with --json, and its exit code."""
        capsys.readouterr()
        code = run([*words, "--data", str(self.cluster.data), "--json"])
        return code, json.loads(capsys.readouterr().out)

    def left_open(self, name: str, *places: tuple[str, int]) -> Transaction:
        """A transaction of a producer that stopped in the middle."""
        found = self.kafka.transactions.acquire(name, 1_000_000, 20)
        found.begin()
        for topic, partition in places:
            found.send(PartitionBatch(topic, partition, [None], [b"undecided"]))
        found.flush(20)
        return found

    def letters(self, rows: Sequence[dict[str, Any]]) -> None:
        """Dead letters as workers write them."""
        plain = {"key": None, "kind": "BadInputError", "reason": "not valid", "operator": None,
                 "input": None, "operator_partition": None, "trace": None}  # fmt: skip
        printed = [{**plain, **row} for row in rows]
        sender = self.kafka.transactions.acquire(f"dlq-of-{self.name}", 1_000_000, 20)
        sender.begin()
        sender.send(
            PartitionBatch(
                self.topic("dlq"), 0,
                [row["key"] for row in printed], [row["value"] for row in printed],
                [refused.headers(row, self.name, 3) for row in printed],
            )
        )  # fmt: skip
        sender.flush(20)
        sender.commit(20)
        sender.close()

    def bad_lines(self, *values: bytes) -> None:
        self.letters([
            {"topic": self.topic("lines"), "partition": n % 2, "offset": n, "value": value}
            for n, value in enumerate(values)
        ])  # fmt: skip

    def lines(self) -> list[bytes]:
        return [v for p in (0, 1) for v in self.kafka.values(self.topic("lines"), p)]


@pytest.fixture
def job(services: Cluster, real_kafka: Kafka, tmp_path: Path) -> Iterator[Job]:
    name = f"ops{next(_numbers)}"
    (tmp_path / "job.yaml").write_text(JOB.format(job=name))
    (tmp_path / "fix.py").write_text(FIX)
    for kind in ("lines", "orders"):
        real_kafka.topics.create(f"{name}-{kind}", 2)
    [ledger] = [t for t in control_topics(name, LEDGERS) if t.name == names.ledger(name)]
    real_kafka.topics.create(ledger.name, ledger.partitions, ledger.config)
    words = ["jobs", "apply", str(tmp_path), "--no-wait", "--data", str(services.data)]
    assert run(words) == 0
    yield Job(name, tmp_path, services, real_kafka)
    assert run(["jobs", "remove", name, "--no-wait", "--data", str(services.data)]) == 0


def test_dead_letters_are_listed_and_shown(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.bad_lines(b"a\xff", b"b\xff", b"c\xff")
    code, found = job.type(capsys, "dlq", "list")
    [row] = [row for row in found["jobs"] if row["job"] == job.name]
    assert code == 0
    assert (row["letters"], row["redriven"], row["counted_all"]) == (3, 0, True)
    assert row["kinds"] == {"BadInputError": 3}
    code, found = job.type(capsys, "dlq", "show", job.name, "--limit", "2")
    assert [letter["value"] for letter in found["letters"]] == ["b\\xff", "c\\xff"]
    assert found["letters"][0]["origin"] == {
        "topic": job.topic("lines"), "partition": 1, "offset": 1
    }  # fmt: skip
    words = ("dlq", "show", job.name, "--partition", "0", "--offset", "0", "--limit", "1")
    assert job.type(capsys, *words)[1]["letters"][0]["value"] == "a\\xff"
    assert run(["dlq", "show", job.name, "--data", str(job.cluster.data)]) == 0
    text = capsys.readouterr().out
    assert f"{job.topic('lines')}[1] offset 1" in text
    assert job.type(capsys, "dlq", "show", job.name, "--partition", "9")[0] == 2


def test_a_redrive_that_was_killed_twice_sends_every_letter_once(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.bad_lines(*(b"%d\xff" % n for n in range(7)))
    fix = f"{job.folder / 'fix.py'}:corrected"
    words = ["dlq", "redrive", job.name, "--transform", fix, "--data", str(job.cluster.data)]
    for done in (2, 4):
        ran = subprocess.run([sys.executable, "-c", KILLED, *words], check=False, timeout=60)
        assert ran.returncode == -signal.SIGKILL
        held = job.type(capsys, "txn", "list", job.name)[1]["open"]
        assert (job.topic("lines"), 0) in {(row["topic"], row["partition"]) for row in held}
        assert all(row["transactional_ids"] == [names.redrive_id(job.name)] for row in held)
        seen = job.type(capsys, "dlq", "list")[1]["jobs"]
        assert [row["redriven"] for row in seen if row["job"] == job.name] == [done]
    assert run(words) == 0
    assert "3 dead letters redriven" in capsys.readouterr().out
    assert sorted(job.lines()) == [b"%d" % n for n in range(7)]
    code, again = job.type(capsys, *words[:-2])
    assert (code, again["redriven"], again["already"]) == (0, 0, 7)
    shown = job.type(capsys, "dlq", "show", job.name)[1]["letters"]
    assert all(letter["redriven"]["topic"] == job.topic("lines") for letter in shown)


def test_some_letters_with_a_transform_that_leaves_one_out(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.bad_lines(b"a\xff", b"drop", b"c\xff")
    fix = f"{job.folder / 'fix.py'}:"
    words = ("dlq", "redrive", job.name, "--transform")
    code, dry = job.type(capsys, *words, fix + "corrected", "--dry-run")
    assert (code, dry["redriven"], dry["skipped"]) == (0, 2, [{"partition": 0, "offset": 1}])
    assert job.lines() == []
    code, found = job.type(capsys, *words, fix + "broken")
    assert code == 1
    assert "0:0 of" in found["error"]["message"]
    assert "ValueError: no idea" in found["error"]["message"]
    code, some = job.type(capsys, *words, fix + "corrected", "--offsets", "0:1-2")
    assert (code, some["redriven"]) == (0, 1)
    assert job.lines() == [b"c"]
    code, rest = job.type(capsys, "dlq", "redrive", job.name, "--from", "2026-01-01T00:00:00")
    assert (rest["redriven"], rest["already"]) == (2, 1)
    assert sorted(job.lines()) == [b"a\xff", b"c", b"drop"]


def test_letters_of_operators_go_back_where_the_source_is_json(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    of = {"operator": "counts", "operator_partition": 0, "input": "a", "trace": "...", "key": b"u"}
    row = b'{"user": "u", "n": 1, "offset": 7}'
    job.letters([
        {**of, "topic": job.topic("orders"), "partition": 1, "offset": 7, "value": row},
        {**of, "topic": job.topic("lines"), "partition": 0, "offset": 8, "value": b'{"value": 1}'},
        {**of, "topic": "", "partition": -1, "offset": -1, "value": b"{}"},
    ])  # fmt: skip
    code, found = job.type(capsys, "dlq", "redrive", job.name)
    assert code == 3
    assert "2 dead letters" in found["error"]["message"]
    assert "holds records of format text" in found["error"]["message"]
    assert "got from another operator" in found["error"]["message"]
    code, found = job.type(capsys, "dlq", "redrive", job.name, "--offsets", "0:0")
    assert (code, found["redriven"]) == (0, 1)
    [value] = job.kafka.values(job.topic("orders"), 1)
    assert json.loads(value) == {"user": "u", "n": 1}


def test_what_has_no_dead_letters_is_refused(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.type(capsys, "dlq", "redrive", job.name, "--topic", "no-such-topic")[0] == 3
    assert job.type(capsys, "dlq", "show", "ops")[0] == 2


@pytest.fixture
def planned(job: Job) -> Iterator[Registry]:
    """The job with a plan that worker w1-a runs; the session in which workers are registered."""
    with closing(Registry.connect(job.cluster.deployment)) as registry:
        fence = lead(registry, lambda epoch: LeaderInfo("c1", epoch, 1, "http://127.0.0.1:1"))
        assert fence is not None
        entry = registry.jobs()[job.name]
        plan = Plan.fused(job.name, entry.uuid, 1, "w1-a", entry.revision, entry.archive, 1, 0, 0)
        FencedRegistry(registry, fence).put_plan(plan)
        yield registry


def open_words(job: Job) -> Transaction:
    """What an owner leaves that dies between its ledger record and its commit."""
    name = names.transactional_id(job.name, 1, "words", 1)
    return job.left_open(name, (job.topic("words"), 0), (names.ledger(job.name), 4))


def test_an_open_transaction_is_listed_and_aborted(
    job: Job, planned: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.type(capsys, "txn", "list", job.name) == (0, {"open": []})
    old = open_words(job)
    ids = [names.transactional_id(job.name, 1, "words", p) for p in (0, 1)]
    found = {row["topic"]: row for row in job.type(capsys, "txn", "list")[1]["open"]}
    ledger, words = found[names.ledger(job.name)], found[job.topic("words")]
    assert (ledger["partition"], ledger["transactional_ids"]) == (4, ids[1:])
    assert (words["partition"], words["transactional_ids"]) == (0, ids)
    assert (ledger["certain"], words["certain"]) == (True, False)
    assert words["end"] > words["stable"]
    assert 0 <= words["age_s"] < 60
    assert words["stuck"] is False
    dry = job.type(capsys, "txn", "abort", job.name, "--dry-run")
    assert (dry[0], dry[1]["aborted"], dry[1]["left"]) == (0, ids, [])
    assert len(job.type(capsys, "txn", "list", job.name)[1]["open"]) == 2
    assert run(["txn", "abort", job.name, "--data", str(job.cluster.data)]) == 0
    assert f"{ids[1]} ended" in capsys.readouterr().out
    assert job.type(capsys, "txn", "list", job.name)[1] == {"open": []}
    with pytest.raises(PerseidError):
        old.commit(20)
    assert job.kafka.values(job.topic("words")) == []


def test_a_living_owner_is_let_be_unless_forced(
    job: Job, planned: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    planned.register_worker(WorkerInfo("w1", "w1-a", "h", 1, 2, 2, "local[2]", 0))
    open_words(job)
    code, found = job.type(capsys, "txn", "abort", job.name)
    assert code == 3
    assert "runs on worker w1-a" in found["error"]["message"]
    assert "--force" in found["error"]["message"]
    assert len(job.type(capsys, "txn", "list", job.name)[1]["open"]) == 2
    assert job.type(capsys, "txn", "abort", job.name, "--force")[0] == 0
    assert job.type(capsys, "txn", "list", job.name)[1] == {"open": []}


def test_what_others_hold_back_is_reported(
    job: Job, planned: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(txn, "SETTLE_S", 0.5)
    other = job.left_open(f"others-{job.name}", (job.topic("lines"), 1))
    [row] = job.type(capsys, "txn", "list", job.name)[1]["open"]
    assert (row["topic"], row["transactional_ids"]) == (job.topic("lines"), [])
    older = names.transactional_id(job.name, 0, "words", 0)
    job.left_open(older, (job.topic("words"), 1))
    code, found = job.type(capsys, "txn", "abort", job.name, "--id", older)
    assert (code, found["aborted"]) == (1, [older])
    assert [(r["topic"], r["partition"]) for r in found["left"]] == [(job.topic("lines"), 1)]
    code, found = job.type(capsys, "txn", "abort", job.name, "--id", f"others-{job.name}")
    assert code == 2
    other.commit(20)


def findings(document: dict[str, Any]) -> dict[str, list[str]]:
    """The levels of each check."""
    found: dict[str, list[str]] = {}
    for one in document["findings"]:
        found.setdefault(one["check"], []).append(one["level"])
    return found


def test_a_doctor_finds_what_is_missing(
    job: Job, planned: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = job.type(capsys, "doctor")
    found = findings(printed)
    assert code == 1
    assert found["workers"] == ["problem"]  # the job wants to run, and none is there
    assert found["coordinators"] == ["warning"]  # one leads, no standby
    assert found[f"job {job.name}: topics"] == ["problem"] * 2  # no leader made tokens and progress
    assert {"ok"} == {
        *found["kafka"], *found["redis"], *found["zookeeper"], *found["java"],
        *found["clock of redis"], *found["clock of zookeeper"], *found["transactions"],
        *found["broker 1: transaction.max.timeout.ms"],
        *found["broker 1: transactional.id.expiration.ms"],
    }  # fmt: skip
    missing = next(f for f in printed["findings"] if f["check"] == f"job {job.name}: topics")
    assert names.tokens(job.name) in missing["found"]
    assert f"perseid jobs remove {job.name}" in missing["next"]
    assert run(["doctor", "--data", str(job.cluster.data)]) == 1
    assert "         next     " in capsys.readouterr().out


def test_a_doctor_without_problems_exits_with_0(
    job: Job, planned: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in control_topics(job.name, LEDGERS):
        job.kafka.topics.create(topic.name, topic.partitions, topic.config)
    for number in ("1", "2"):
        planned.register_worker(
            WorkerInfo(f"w{number}", f"w{number}-a", "h", 1, 2, 2, "local[2]", 0)
        )
    code, printed = job.type(capsys, "doctor")
    found = findings(printed)
    assert found["workers"] == ["ok"]
    assert found[f"job {job.name}: topics"] == ["ok"]
    of_machine = {"java", "memory"} | {c for c in found if c.startswith("disk of")}
    problems = {c for c, seen in found.items() if "problem" in seen} - of_machine
    assert problems == set()
    assert code == (printed["problem"] > 0)


def test_doctor_reports_kafka_and_zookeeper_that_are_away(
    job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEID_KAFKA", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("PERSEID_ZOOKEEPER", f"127.0.0.1:{free_port()}")
    code, printed = job.type(capsys, "doctor")
    found = findings(printed)
    assert code == 1
    assert (found["kafka"], found["zookeeper"]) == (["problem"], ["problem"])
    assert found["redis"] == ["ok"]
    assert "coordinators" not in found


def test_the_commands_of_the_readme_do_what_it_describes(
    job: Job, planned: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job.bad_lines(b"a\xff", b"b\xff")
    open_words(job)
    monkeypatch.chdir(job.folder)
    typed = re.findall(r"^    \./perseid ((?:doctor|dlq|txn)[^#\n]*)", README.read_text(), re.M)
    assert [words.split()[:2] for words in typed] == [
        ["doctor"], ["dlq", "list"], ["dlq", "show"], ["dlq", "redrive"], ["txn", "list"],
        ["txn", "abort"],
    ]  # fmt: skip
    message = {}
    for words in typed:
        asked = [job.name if word == "pageviews" else word for word in shlex.split(words)]
        assert run([*asked, "--data", str(job.cluster.data)]) == (words.strip() == "doctor")
        message[words.strip()] = capsys.readouterr().out
    printed = list(message.values())
    assert "expected" in printed[0]
    assert f"{job.name}-dlq" in printed[1]
    assert "BadInputError: not valid" in printed[2]
    assert "2 dead letters would be redriven" in printed[3]
    assert names.transactional_id(job.name, 1, "words", 1) in printed[4]
    assert "would be ended" in printed[5]
