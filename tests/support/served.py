"""A leader's HTTP API on fakes: the real app, without a server, a cluster or a coordinator.

The registry has one running job, with a checkpoint, a token log and its files in the store. No
coordinator handles the requests: what a call wrote stays in the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI
from httpx import ASGITransport, BaseTransport, ByteStream, Client, Request, Response

from perseid.clocks import ManualClock
from perseid.coordinator.api.guard import Guard
from perseid.coordinator.api.limits import Rate, RateLimit
from perseid.coordinator.api.routes import Backend
from perseid.coordinator.api.server import make_app
from perseid.coordinator.api.tokens import Role, TokenFile, added
from perseid.coordinator.view import Look
from perseid.jobs.model import trees
from perseid.jobs.operations.applying import Cluster
from perseid.jobs.repository import job_folders
from perseid.records import (
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    JobStatus,
    LeaderInfo,
)
from perseid.records.audits import REPORT, VALUES, AuditRequest, AuditResult
from perseid.records.repository import RepoJob, RepoRecord
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create, Set
from perseid.replay import reports
from perseid.testing.kafka import FakeLogReader, FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore
from perseid.topics import codec as records
from perseid.topics import names
from perseid.topics.records import Begin
from support.audit_reports import example
from support.coordinator import Leader, World, job_entry

JOB = "wordcount"
LEADER = LeaderInfo("c2", 1, 4711, "http://127.0.0.1:4711")
REPOSITORY = "https://git.example/jobs.git"
AUDIT = "3f0c81d2a9b4"
EPOCH = 7  # the newest of the token log


class _InProcess(BaseTransport):
    """Calls the app without a server, each request in an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._inner = ASGITransport(app=app, raise_app_exceptions=False)

    def handle_request(self, request: Request) -> Response:
        return asyncio.run(self._answer(request))

    async def _answer(self, request: Request) -> Response:
        sent = Request(
            request.method, request.url, headers=request.headers, stream=ByteStream(request.read())
        )
        answer = await self._inner.handle_async_request(sent)
        return Response(answer.status_code, headers=answer.headers, content=await answer.aread())


class Served:
    """The app and its dependencies. `secrets` has a token of each role, if there are tokens."""

    def __init__(
        self, folder: Path, *, tokens: bool = True, leads: bool = True, rate: Rate | None = None
    ) -> None:
        self.clock, self.store, self.kafka = ManualClock(), MemoryStore(), ModelKafka()
        self.coordination = FakeZooKeeper().session()
        self.registry = Registry(self.coordination)
        self.topics = FakeTopics(self.kafka)
        self.leads = leads
        self._leader = _leader()
        self.cluster = Cluster(self.registry, self.topics, self.store, self.clock)
        self._put_job()
        self.token_file = folder / "tokens.txt"
        self.secrets: Mapping[Role, str] = {}
        if tokens:
            self.secrets = {r: added(self.token_file, r.word, r) or "" for r in Role}
        self.app = self._app(folder, tokens, rate or Rate(per_s=1e9, burst=1e9))

    def client(self, role: Role | None = None, secret: str | None = None) -> Client:
        """Returns a client with the token of `role`, with `secret`, or with none."""
        given = self.secrets.get(role) if role is not None else secret
        headers = {"Authorization": f"Bearer {given}"} if given is not None else {}
        return Client(base_url="http://127.0.0.1", headers=headers, transport=_InProcess(self.app))

    def entry(self) -> JobEntry:
        stored = self.registry.job_entry(JOB)
        assert stored is not None
        return stored.value

    def put_entry(self, entry: JobEntry) -> None:
        self.registry.put_job_entry(entry, -1)

    def put(self, path: str, value: object) -> None:
        there = self.coordination.get(path) is not None
        data = codec.encode(value)
        self.coordination.write(Set(path, data) if there else Create(path, data))

    def put_audit(self, *, ended: bool) -> None:
        """An audit of AUDIT as its id, open or with a verdict and a report."""
        audit = AuditRequest(AUDIT, JOB, ("--epochs=1:5",), 0, "ann")
        if ended:
            folder = f"audits/d/{AUDIT}/1"
            audit = audit.ended(AuditResult("done", "differs", "diverged", 1, 5, 5, 9), 1, folder)
            for name, found in (
                (REPORT, reports.without_values(example())), (VALUES, example())
            ):  # fmt: skip
                self.store.write(f"{folder}/{name}", [reports.as_json(found).encode()])
        if self.coordination.get(paths.AUDITS) is None:
            self.coordination.write(Create(paths.AUDITS, b""))
        self.put(paths.audit(AUDIT), audit)

    def look(self) -> Look | None:
        return Look(self._leader.state, LEADER, self._leader.world.now) if self.leads else None

    def _put_job(self) -> None:
        (tree,) = job_folders.find(f"example:{JOB}")
        sha = trees.store_archive(self.store, tree)
        self.registry.put_job_entry(job_entry(JOB, archive=sha, revision=tree.revision), None)
        pointer = CheckpointPointer(5, 1, 1, tree.revision, 5, "m", 1, 2048, 0)
        self.put(paths.checkpoint(JOB), CheckpointPointers("u1", (pointer,)))
        self.put(paths.status(JOB), JobStatus("u1", "running", 1, 1, 0, None, ("begun",)))
        self.put(paths.LEADER, LEADER)
        job = RepoJob(JOB, JOB, "applied", "t", tree.revision, sha)
        self.put(paths.REPOSITORY, RepoRecord(REPOSITORY, "main", 60, "applied", 0, jobs=(job,)))
        self.topics.create(names.tokens(JOB), 1)
        self.kafka.append((names.tokens(JOB), 0), None, records.encode(Begin(1, "u1", EPOCH)))

    def _app(self, folder: Path, tokens: bool, rate: Rate) -> FastAPI:
        back = Backend(
            self.look, self.registry.leader, self.cluster, self.topics,
            lambda: FakeLogReader(self.kafka), folder / "archives",
        )  # fmt: skip
        file = TokenFile(self.token_file) if tokens else None
        return make_app(back, Guard(file, RateLimit(self.clock.monotonic_s, rate)))


def _leader() -> Leader:
    """Returns a leader whose job has done one epoch."""
    world = World(entries={JOB: job_entry(JOB)}, workers=["w1-1"])
    world.ends = {("lines", 0): 0, ("lines", 1): 0}
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    world.produce(0, 10)
    leader.poll()
    world.work(JOB)
    leader.listen()
    return leader
