"""A leader that is killed, or stopped for longer than its session and then resumes.

Two real coordinators on the real ZooKeeper and Kafka; the worker is a stand-in that reports every
epoch at once, so that the tokens come as fast as the coordinator can write them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import httpx
import pytest

from perseid.coordinator.decision_log import files
from perseid.embedded import Cluster
from perseid.jobs.model.trees import store_archive
from perseid.jobs.repository import job_folders
from perseid.records import Deployment, JobEntry, LeaderInfo, Plan, WorkerInfo
from perseid.records.version import PROTOCOL
from perseid.registry import Registry
from perseid.state.durability.store import open_store
from perseid.testing.stack import example, group_offsets
from perseid.testing.wait import until
from perseid.topics import clients, codec, names
from perseid.topics.admin import TopicAdmin
from perseid.topics.chain import Accepted, Base, Chain, Void, valid_tokens
from perseid.topics.log import KafkaLogReader, KafkaLogWriter, ProgressLog
from perseid.topics.records import (
    Claim,
    EpochDone,
    FragmentState,
    LedgerRecord,
    Token,
    TokenRecord,
)
from support.decisions import replayed

PATIENCE_S = 120.0
PAUSE_S = 9.0  # more than four sessions
LONG_SESSION_S = 6.0  # where a time is compared with a session: a busy machine loses a second
INCARNATION = "w1-stand-in"
PARALLELISM = 4  # of the example


def wait_for(what: str, holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> float:
    """Seconds until `holds`; fails naming `what` when the time is up."""
    started_s = time.monotonic()
    until(holds, timeout_s, what, poll_s=0.01)
    return time.monotonic() - started_s


class StandIn:
    """Runs whatever plan names it: reads tokens and reports them done."""

    def __init__(self, deployment: Deployment, registry: Registry, job: str) -> None:
        self._deployment, self._registry, self._job = deployment, registry, job
        self._stop = threading.Event()
        self.done: list[tuple[int, float]] = []  # epoch and when
        self.thread = threading.Thread(target=self._run)

    def stop(self) -> None:
        self._stop.set()
        self.thread.join()

    def _run(self) -> None:
        wait_for("a plan", self._plan_is_mine)
        plan = cast(Plan, self._registry.plan(self._job))
        writer = KafkaLogWriter(self._deployment.kafka)
        progress = ProgressLog(self._job, None, writer)
        reader = KafkaLogReader(self._deployment.kafka)
        base = Base(plan.job_uuid, plan.base_epoch, plan.base_offset)
        chain, position = Chain(base), base.offset
        topic = names.tokens(self._job)
        progress.append(
            FragmentState(plan.job_uuid, plan.generation, INCARNATION, "running", plan.base_epoch)
        )
        while not self._stop.is_set():
            entries = reader.read_from(topic, 0, position, max_records=100, timeout_s=0.2)
            for entry in entries:
                position = entry.offset + 1
                seen = chain.feed(
                    entry.offset, codec.decode_token(topic, entry.offset, entry.value)
                )
                if isinstance(seen, Accepted) and seen.kind == "token" and seen.token is not None:
                    self._commit(writer, plan, seen.token, seen.offset)
                    progress.append(self._report(plan, seen.token, seen.offset))
                    self.done.append((seen.token.epoch, time.monotonic()))
        reader.close()

    def _commit(self, writer: KafkaLogWriter, plan: Plan, token: Token, offset: int) -> None:
        """What is reported as done is in the ledger of each partition."""
        for partition in range(PARALLELISM):
            record = LedgerRecord(
                plan.job_uuid, token.layout, "counts", partition, plan.generation, token.epoch,
                offset,
            )  # fmt: skip
            writer.append(names.ledger(self._job), partition, codec.encode(record))

    def _plan_is_mine(self) -> bool:
        plan = self._registry.plan(self._job)
        return self._stop.is_set() or (plan is not None and plan.owner == INCARNATION)

    def _report(self, plan: Plan, token: Token, offset: int) -> EpochDone:
        rows = sum(r.end - r.start for split in token.splits for r in split)
        return EpochDone(
            plan.job_uuid, plan.generation, INCARNATION, token.epoch, offset, rows, rows, 5
        )


class Stage:
    """The deployment, two coordinators, the stand-in, and a trickle of input."""

    def __init__(self, deployment: Deployment, folder: Path, registry: Registry) -> None:
        self.deployment, self.folder, self.registry = deployment, folder, registry
        self.coordinators: dict[str, subprocess.Popen[bytes]] = {}
        self.job = f"led-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.job}-lines"
        self.worker = StandIn(deployment, registry, self.job)
        self._enough = threading.Event()
        self._input = threading.Thread(target=self._produce)
        self.produced = 0

    def start_coordinator(self, name: str) -> None:
        command = [sys.executable, "-m", "perseid.coordinator", "--id", name,
                   "--deployment", str(self.folder / "deployment.json")]  # fmt: skip
        with (self.folder / f"{name}.log").open("wb") as log:
            self.coordinators[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def start_job(self) -> None:
        texts = {"name: wordcount": f"name: {self.job}", "topic: lines": f"topic: {self.topic}"}
        (tree,) = job_folders.find(str(example(self.folder / self.job, "wordcount", texts)))
        sha = store_archive(open_store(self.deployment.store), tree)
        entry = JobEntry(self.job, uuid.uuid4().hex, tree.revision, sha, "running", 1, 0)
        self.registry.put_job_entry(entry, None)
        pid = os.getpid()
        me = WorkerInfo("w1", INCARNATION, "localhost", pid, pid, 1, "none", 0, protocol=PROTOCOL)
        self.registry.register_worker(me)
        self.worker.thread.start()
        self._input.start()

    def leader(self) -> LeaderInfo:
        wait_for("a leader", lambda: self.registry.leader() is not None)
        return cast(LeaderInfo, self.registry.leader())

    def new_leader(self, old: LeaderInfo) -> LeaderInfo:
        def changed() -> bool:
            found = self.registry.leader()
            return found is not None and found.id != old.id

        wait_for("another leader", changed)
        return self.leader()

    def epochs(self, more: int) -> float:
        """Waits for `more` epochs from now on; seconds until the first of them."""
        before, started_s = len(self.worker.done), time.monotonic()
        wait_for(f"{more} more epochs", lambda: len(self.worker.done) >= before + more)
        return self.worker.done[before][1] - started_s

    def end_input(self) -> None:
        self._enough.set()
        self._input.join()

    def close(self) -> None:
        self._enough.set()
        if self.worker.thread.ident is not None:
            self.worker.stop()
        for process in self.coordinators.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _produce(self) -> None:
        producer = clients.bulk(self.deployment.kafka)
        while not self._enough.wait(0.005):
            producer.produce(self.topic, b"one two three")
            self.produced += 1
            producer.poll(0)
        producer.flush(PATIENCE_S)


@pytest.fixture
def stage(
    services: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Stage]:  # fmt: skip
    """Its parameter: seconds of a session of ZooKeeper."""
    session_s = getattr(request, "param", services.deployment.zookeeper_session_s)
    deployment = services.deployment.model_copy(
        update={"name": f"leadership-{uuid.uuid4().hex[:8]}", "store": str(tmp_path / "store"),
                "state": str(tmp_path / "state"), "logs": str(tmp_path / "logs"),
                "zookeeper_session_s": session_s}
    )  # fmt: skip
    (tmp_path / "deployment.json").write_text(deployment.model_dump_json())
    admin = TopicAdmin(deployment.kafka)
    with ExitStack() as stack:
        registry = Registry.connect(deployment)
        stack.callback(registry.close)
        made = Stage(deployment, tmp_path, registry)
        admin.create(made.topic, 2)
        job = made.job
        stack.callback(
            admin.delete, [made.topic, names.tokens(job), names.progress(job), names.ledger(job)]
        )
        stack.callback(made.close)
        yield made


def started(stage: Stage) -> LeaderInfo:
    """Both coordinators run, the first one leads, epochs flow."""
    stage.start_coordinator("c1")
    first = stage.leader()
    stage.start_coordinator("c2")
    stage.start_job()
    stage.epochs(10)
    wait_for("the standby", lambda: standby_answers(stage))
    return first


def standby_answers(stage: Stage) -> bool:
    """The standby has connected when its process reports that it serves."""
    return b"stands by" in (stage.folder / "c2.log").read_bytes()


def read_log(stage: Stage) -> list[tuple[int, TokenRecord]]:
    reader = KafkaLogReader(stage.deployment.kafka)
    place = (names.tokens(stage.job), 0)
    end = TopicAdmin(stage.deployment.kafka).ends([place])[place]
    entries = reader.read_range(*place, 0, end, timeout_s=PATIENCE_S)
    reader.close()
    return [(e.offset, cast(TokenRecord, codec.decode(e.value))) for e in entries]


def check_tokens(stage: Stage) -> None:
    """The valid tokens are a dense chain that names every record once; a claim shuts older out."""
    stage.end_input()
    log = read_log(stage)
    tokens = list(valid_tokens(Chain(), log).values())
    assert [t.epoch for t in tokens] == list(range(1, len(tokens) + 1))
    position = {0: 0, 1: 0}
    for token in tokens:
        for split in token.splits:
            for r in split:
                assert r.start == position[r.partition]
                position[r.partition] = r.end
    chain, claimed = Chain(), 0
    for offset, record in log:
        accepted = not isinstance(chain.feed(offset, record), Void)
        claimed = max(claimed, record.coordinator_epoch if isinstance(record, Claim) else 0)
        assert accepted == (record.coordinator_epoch == claimed)


@pytest.mark.parametrize("stage", [LONG_SESSION_S], indirect=True)
def test_a_killed_leader_is_replaced_within_two_sessions(stage: Stage) -> None:
    first = started(stage)
    stage.coordinators[first.id].kill()
    seconds = stage.epochs(1)
    second = stage.new_leader(first)
    assert second.epoch > first.epoch
    assert seconds <= 2 * stage.deployment.zookeeper_session_s
    stage.epochs(20)
    check_tokens(stage)
    found = {path.parent.name: replayed(path) for path in files.found(stage.folder / "logs")}
    assert found.keys() == {first.id, second.id}
    assert {name: again.difference for name, again in found.items() if not again.same} == {}
    # Workers read tokens before their append is answered, and the kill takes what was not yet
    # written: of the first leader's ten tokens the file may lack the last ones.
    assert found[first.id].events["TokenAppended"] >= 5
    assert found[second.id].events["TokenAppended"] >= 10
    assert found[first.id].ending in ("open", "cut off")


def test_a_stopped_leader_gets_no_write_accepted_when_it_resumes(stage: Stage) -> None:
    first = started(stage)
    process = stage.coordinators[first.id]
    process.send_signal(signal.SIGSTOP)
    stopped_s = time.monotonic()
    second = stage.new_leader(first)
    stage.epochs(20)
    wait_for("the pause to be long", lambda: time.monotonic() - stopped_s >= PAUSE_S)
    plan, status = stage.registry.plan(stage.job), stage.registry.status(stage.job)
    group = names.group(stage.job)
    wait_for("the group's offsets", lambda: bool(group_offsets(stage.deployment.kafka, group)))
    mirrored = group_offsets(stage.deployment.kafka, group)
    process.send_signal(signal.SIGCONT)
    wait_for("the old leader to end", lambda: process.poll() is not None)
    stage.epochs(20)
    assert stage.registry.leader() == second
    assert (stage.registry.plan(stage.job), stage.registry.status(stage.job)) == (plan, status)
    again = group_offsets(stage.deployment.kafka, group)
    assert all(again[place] >= offset for place, offset in mirrored.items())
    check_tokens(stage)
    ends = TopicAdmin(stage.deployment.kafka).ends([(stage.topic, 0), (stage.topic, 1)])
    wait_for("all to be mirrored", lambda: group_offsets(stage.deployment.kafka, group) == ends)


@pytest.mark.parametrize("stage", [LONG_SESSION_S], indirect=True)
def test_a_leader_answers_over_http_until_it_is_asked_to_end(stage: Stage) -> None:
    first = started(stage)
    shown = httpx.get(f"{first.url}/api/v1/status", timeout=PATIENCE_S, trust_env=False).json()
    assert shown["leader"]["pid"] == stage.coordinators["c1"].pid
    (job,) = shown["jobs"]
    assert (job["name"], job["state"]) == (stage.job, "running")
    assert job["committed_epoch"] >= 10
    assert job["records_in_per_s"] > 0
    # With SIGTERM it gives the leadership up at once: no standby waits for its session to expire.
    process, asked_s = stage.coordinators["c1"], time.monotonic()
    process.send_signal(signal.SIGTERM)
    second = stage.new_leader(first)
    assert time.monotonic() - asked_s < 0.75 * stage.deployment.zookeeper_session_s
    assert second.id == "c2"
    wait_for("the old leader to end", lambda: process.poll() is not None)
    assert process.returncode == 0
    stage.epochs(5)
    assert [c.id for c in stage.registry.coordinators()] == ["c2"]
    check_tokens(stage)
