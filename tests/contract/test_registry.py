"""The registry on the fake and on a real ZooKeeper, which test_conformance_zookeeper compares."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from kazoo.client import KazooClient

from perseid.errors import DamagedFile, PermanentError, RefusedError
from perseid.records import (
    CheckpointPointer,
    CheckpointPointers,
    CoordinatorInfo,
    JobEntry,
    JobFailures,
    JobStatus,
    LeaderInfo,
    Plan,
    WorkerInfo,
)
from perseid.records.audits import AuditProgress, AuditRequest
from perseid.records.version import PROTOCOL, Build, this_build
from perseid.registry import (
    ConflictError,
    Fence,
    FencedRegistry,
    FenceLostError,
    Registry,
    SessionState,
    UnknownOutcomeError,
    codec,
    lead,
    paths,
    versions,
)
from perseid.registry.audits import AuditNodes
from perseid.registry.port import Coordination, Delete, Set
from perseid.registry.zookeeper import KazooCoordination
from perseid.testing.registry import FakeCoordination, FakeZooKeeper
from perseid.testing.wait import until
from support.zookeeper import ZooKeeperServer

_PATIENCE_S = 60.0
Outcome = Literal["done", "not done"]
_roots = itertools.count()


@dataclass
class Service:
    """Opens sessions under one fresh root, and ends one as the server would."""

    session: Callable[[], Coordination]
    expire: Callable[[Any], None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def _expire_real(coordination: KazooCoordination) -> None:
    # A second connection with the session's id and password that closes it: ZooKeeper's own way.
    inner = coordination._client
    twin = KazooClient(coordination.hosts, client_id=inner.client_id)
    twin.start()
    twin.stop()
    twin.close()


def _expire_fake(coordination: FakeCoordination) -> None:
    coordination.expire()
    coordination.resume()


@pytest.fixture(params=["fake", "zookeeper"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    opened: list[Coordination] = []
    if request.param == "fake":
        zookeeper = FakeZooKeeper()
        yield Service(zookeeper.session, _expire_fake)
        return
    server: ZooKeeperServer = request.getfixturevalue("server")
    root = f"/perseid/test-{next(_roots)}"

    def session() -> KazooCoordination:
        coordination = KazooCoordination(server.hosts, root, session_s=2.0)
        coordination.start(timeout_s=_PATIENCE_S)
        opened.append(coordination)
        return coordination

    yield Service(session, _expire_real)
    for coordination in opened:
        coordination.close()


@pytest.fixture
def client(service: Service) -> Coordination:
    return service.session()


class Signal:
    """Counts calls; a test waits for one more."""

    def __init__(self) -> None:
        self._calls = threading.Semaphore(0)

    def __call__(self, *_: object) -> None:
        self._calls.release()

    def wait(self) -> bool:
        return self._calls.acquire(timeout=_PATIENCE_S)

    def drain(self) -> None:
        while self._calls.acquire(blocking=False):
            pass


def job_entry(name: str = "wordcount", **changes: Any) -> JobEntry:
    fields: dict[str, Any] = {
        "name": name, "uuid": "u1", "revision": "r1", "archive": "a" * 64, "desired": "running",
        "counter": 1, "applied_ms": 5, "start": {"from": "scratch"},
    } | changes  # fmt: skip
    return JobEntry(**fields)


def plan(generation: int = 1, owner: str | None = "w1-1") -> Plan:
    pointer = CheckpointPointer(5, 1, 1, "r1", 17, "jobs/x/manifest.json", 9, 100, 7)
    return Plan.fused("wordcount", "u1", generation, owner, "r1", "a" * 64, 1, 0, 0, (pointer,))


def worker(incarnation: str, pid: int = 10) -> WorkerInfo:
    return WorkerInfo("w1", incarnation, "localhost", pid, 9, 2, "local[2,4]", 5)


def leader(epoch: int, id: str = "c1") -> LeaderInfo:  # noqa: A002 - the field's name
    return LeaderInfo(id, epoch, 1, "http://127.0.0.1:1")


def become_leader(registry: Registry, id: str = "c1") -> FencedRegistry:  # noqa: A002
    fence = lead(registry, lambda epoch: leader(epoch, id))
    assert fence is not None
    return FencedRegistry(registry, fence)


def test_a_job_entry_is_created_once_and_changed_by_version(client: Coordination) -> None:
    registry = Registry(client)
    registry.put_job_entry(job_entry(), expected_version=None)
    with pytest.raises(ConflictError):
        registry.put_job_entry(job_entry(), expected_version=None)
    stored = registry.job_entry("wordcount")
    assert stored is not None
    registry.put_job_entry(job_entry(counter=2), stored.version)
    with pytest.raises(ConflictError):
        registry.put_job_entry(job_entry(counter=3), stored.version)
    assert registry.jobs() == {"wordcount": job_entry(counter=2)}


def test_workers_come_and_go_with_their_sessions_or_their_supervisors_hint(
    service: Service,
) -> None:
    one, two, reader = (Registry(service.session()) for _ in range(3))
    for _ in range(2):  # calling again is harmless
        one.register_worker(worker("w1-1"))
    two.register_worker(worker("w2-1", pid=20))
    assert [w.incarnation for w in reader.workers()] == ["w1-1", "w2-1"]
    assert reader.remove_worker("w1", 20)
    assert not reader.remove_worker("w1", 20)
    one.close()
    assert reader.workers() == ()


def test_a_node_left_by_an_earlier_session_is_replaced(service: Service) -> None:
    old, new, reader = (Registry(service.session()) for _ in range(3))
    old.register_worker(worker("w1-1"))
    new.register_worker(worker("w1-1"))
    old.close()
    assert [w.incarnation for w in reader.workers()] == ["w1-1"]


def test_the_registry_reports_changes_of_jobs_plans_and_members(service: Service) -> None:
    reader, writer = Registry(service.session()), Registry(service.session())
    changed = Signal()
    reader.watch(changed)
    for _ in (paths.CHANGED, paths.WORKERS, paths.LEADER):
        assert changed.wait()
    fenced = become_leader(writer)
    assert changed.wait()
    changes: list[Callable[[], None]] = [
        lambda: writer.put_job_entry(job_entry(), None), lambda: fenced.put_plan(plan()),
        lambda: writer.register_worker(worker("w1-1")),
    ]  # fmt: skip
    for change in changes:
        changed.drain()
        change()
        assert changed.wait()


def test_one_leader_at_a_time_and_the_epoch_only_rises(service: Service) -> None:
    one, two = Registry(service.session()), Registry(service.session())
    first = become_leader(one, "c1")
    assert lead(two, leader) is None
    assert two.leader() == leader(first.fence.epoch, "c1")
    one.close()
    second = lead(two, lambda epoch: leader(epoch, "c2"), above=40)
    assert second is not None
    assert second.epoch == 41 > first.fence.epoch


def test_a_dead_leader_is_struck_off_by_its_supervisor(service: Service) -> None:
    one, two = Registry(service.session()), Registry(service.session())
    first = become_leader(one, "c1")
    assert not two.remove_leader("c1", 77)
    assert two.remove_leader("c1", 1)
    assert not two.remove_leader("c1", 1)
    first.confirm()  # it was not dead after all: it leads until another one does
    become_leader(two, "c2").confirm()
    with pytest.raises(FenceLostError):
        first.confirm()


def test_the_leaders_writes_are_read_back_by_all(service: Service) -> None:
    registry, reader = Registry(service.session()), Registry(service.session())
    fenced = become_leader(registry)
    registry.put_job_entry(job_entry(), None)
    pointers = CheckpointPointers("u1", plan().checkpoints)
    status = JobStatus("u1", "failed", 3, 1, 5, {"kind": "BadInputError"}, ("restored",))
    for generation in (2, 3):
        fenced.put_plan(plan(generation))
        fenced.put_pointers("wordcount", pointers)
        fenced.put_status("wordcount", status)
        fenced.put_failures("wordcount", JobFailures("u1", generation, 5))
    assert reader.plan("wordcount") == plan(3)
    assert reader.generation("wordcount") == 3
    assert reader.pointers("wordcount") == pointers
    assert reader.status("wordcount") == status
    assert reader.failures("wordcount") == JobFailures("u1", 3, 5)
    # another process removed the nodes without the writer: they are made again
    become_leader(registry).remove_job("wordcount", "u1")
    assert (reader.jobs(), reader.plan("wordcount")) == ({}, None)
    assert reader.generation("wordcount") == 3


def test_a_late_removal_takes_nothing_from_the_next_job_of_that_name(service: Service) -> None:
    registry = Registry(service.session())
    fenced = become_leader(registry)
    registry.put_job_entry(job_entry(), None)
    fenced.put_plan(plan(1))
    fenced.remove_job("wordcount", "u0")
    assert registry.jobs() == {"wordcount": job_entry()}
    assert registry.plan("wordcount") == plan(1)
    fenced.remove_job("wordcount", job_entry().uuid)
    assert (registry.jobs(), registry.plan("wordcount")) == ({}, None)


def test_a_writer_finds_nodes_again_that_it_remembered_and_others_removed(
    client: Coordination,
) -> None:
    registry = Registry(client)
    fenced = become_leader(registry)
    registry.put_job_entry(job_entry(), None)
    fenced.put_plan(plan(1))
    client.write(Delete(paths.plan("wordcount")))
    fenced.put_plan(plan(2))
    assert registry.plan("wordcount") == plan(2)


def test_a_read_outlives_the_end_of_its_session(server: ZooKeeperServer) -> None:
    """On ZooKeeper alone: the fake, to be harder on its users, answers no read meanwhile."""
    client = KazooCoordination(server.hosts, f"/perseid/test-{next(_roots)}", session_s=2.0)
    client.start(timeout_s=_PATIENCE_S)
    registry = Registry(client)
    registry.put_job_entry(job_entry(), None)
    states: queue.Queue[SessionState] = queue.Queue()
    client.on_session(states.put)
    ending = threading.Thread(target=_expire_real, args=(client,))
    ending.start()
    seen: list[SessionState] = []
    while SessionState.LOST not in seen or seen[-1] is not SessionState.CONNECTED:
        assert registry.jobs() == {"wordcount": job_entry()}  # so one is always under way
        with contextlib.suppress(queue.Empty):
            seen.append(states.get_nowait())
    ending.join()
    client.close()


def test_a_fenced_leader_writes_nothing(service: Service) -> None:
    old, new = Registry(service.session()), Registry(service.session())
    new.put_job_entry(job_entry(), None)
    zombie = become_leader(old, "c1")
    zombie.put_plan(plan(1, "w1-1"))
    back = Signal()
    old.on_session(lambda state: back() if state is SessionState.CONNECTED else None)
    service.expire(old.coordination)  # as after a pause that was longer than the session
    assert back.wait()
    successor = become_leader(new, "c2")
    successor.put_plan(plan(2, "w2-1"))
    failed = JobStatus("u1", "failed", 9, 1, 5)
    attempts: list[Callable[[], None]] = [
        zombie.confirm, lambda: zombie.put_plan(plan(9, "w1-1")),
        lambda: zombie.put_status("wordcount", failed),
        lambda: zombie.remove_job("wordcount", "u1"),
    ]  # fmt: skip
    for write in attempts:
        with pytest.raises(FenceLostError):
            write()
    assert new.plan("wordcount") == plan(2, "w2-1")
    assert new.status("wordcount") is None
    assert new.jobs() == {"wordcount": job_entry()}
    successor.confirm()


@pytest.mark.security("5.12", "5.9")
def test_a_wrong_or_damaged_entry_is_refused(client: Coordination) -> None:
    registry = Registry(client)
    good = codec.encode(job_entry())
    registry.put_job_entry(job_entry(), None)
    for data in (good.replace(b"r1", b"r2"), good[:-3], b"[]", codec.encode(plan()),
                 good.replace(b'"format":1', b'"format":9')):  # fmt: skip
        client.write(Set(paths.spec("wordcount"), data))
        with pytest.raises(DamagedFile, match="/jobs/wordcount/spec"):
            registry.job_entry("wordcount")


@pytest.mark.security("5.12", "5.9")
def test_a_large_entry_is_refused_before_it_is_sent(client: Coordination) -> None:
    with pytest.raises(PermanentError, match="262144"):
        Registry(client).put_job_entry(job_entry(revision="r" * codec.ENTRY_BYTES_MAX), None)


# -- only the fake: outcomes that cannot be provoked on a real server ----------------------------


@pytest.mark.parametrize("outcome", ["done", "not done"])
def test_leadership_with_an_unknown_outcome_is_settled_by_trying_again(outcome: Outcome) -> None:
    coordination: FakeCoordination = FakeZooKeeper().session()
    registry = Registry(coordination)
    coordination.unknown_next = outcome
    assert lead(registry, leader) is None
    fence = lead(registry, leader)
    assert fence == Fence(2, 2) if outcome == "done" else fence == Fence(1, 1)
    assert registry.leader() == leader(fence.epoch if fence else 0)


@pytest.mark.parametrize("outcome", ["done", "not done"])
def test_registering_with_an_unknown_outcome_may_be_repeated(outcome: Outcome) -> None:
    coordination: FakeCoordination = FakeZooKeeper().session()
    registry = Registry(coordination)
    coordination.unknown_next = outcome
    with pytest.raises(UnknownOutcomeError):
        registry.register_worker(worker("w1-1"))
    registry.register_worker(worker("w1-1"))
    assert [w.incarnation for w in registry.workers()] == ["w1-1"]


def test_members_announce_themselves_and_what_changes(service: Service) -> None:
    one, two = Registry(service.session()), Registry(service.session())
    reported, coordinator = Signal(), CoordinatorInfo("c1", "h", 1, "http://h:1", "0.1", PROTOCOL)
    assert two.coordinators() == ()
    for registry, name in ((one, "c1"), (two, "c2")):
        versions.admit(registry, name, this_build())
        registry.register_coordinator(replace(coordinator, id=name))
        registry.register_coordinator(replace(coordinator, id=name))
    assert [c.id for c in one.coordinators()] == ["c1", "c2"]
    one.register_worker(worker("w1-1"))
    two.watch(reported)
    reported.drain()
    one.change_worker(replace(worker("w1-1"), leaving=True))
    assert reported.wait()
    assert [w.leaving for w in two.workers()] == [True]
    one.close()
    until(lambda: [c.id for c in two.coordinators()] == ["c2"], _PATIENCE_S, "c1 to be gone")
    with pytest.raises(ConflictError):
        two.change_worker(worker("w1-1"))
    with pytest.raises(RefusedError, match=rf"written with protocol {PROTOCOL} "):
        versions.admit(two, "c3", Build("9.0", PROTOCOL + 1))


# -- audits --------------------------------------------------------------------------------------


def audit(id_: str = "a1") -> AuditRequest:
    return AuditRequest(id_, "wordcount", ("--epochs=1:5", "--cores=1"), 7, "ann")


def test_of_two_workers_one_takes_an_audit(service: Service) -> None:
    one, two = (AuditNodes(Registry(service.session())) for _ in range(2))
    assert (one.changes(), one.ids(), one.every(), one.one("a1")) == (-1, (), [], None)
    one.create(audit())
    before = one.changes()
    with pytest.raises(ConflictError):
        two.create(audit())
    seen = [nodes.one("a1") for nodes in (one, two)]
    assert seen[0] == seen[1] and seen[0] is not None
    taken, version = seen[0].value.taken("w1-1", 9), seen[0].version
    version = one.put(taken, version)
    with pytest.raises(ConflictError):
        two.put(taken.taken("w2-1", 10), version - 1)
    stored = two.one("a1")
    assert stored is not None and (stored.value, stored.version) == (taken, version)
    assert two.changes() > before


def test_progress_is_fenced_and_no_change_that_others_look_for(service: Service) -> None:
    nodes = AuditNodes(Registry(service.session()))
    nodes.create(audit())
    before = nodes.changes()
    running = replace(audit().taken("w1-1", 9), progress=AuditProgress(3, 5, 0))
    assert nodes.put_progress(running, 0) == 1
    with pytest.raises(ConflictError):
        nodes.put_progress(running, 0)
    assert nodes.changes() == before
    with pytest.raises(ConflictError):
        nodes.delete("a1", 0)
    nodes.delete("a1", 1)
    assert (nodes.every(), nodes.changes() > before) == ([], True)
    with pytest.raises(ConflictError):
        nodes.put(running, 1)


def test_a_damaged_audit_hides_no_other_one(service: Service) -> None:
    registry = Registry(service.session())
    nodes = AuditNodes(registry)
    for id_ in ("a1", "a2"):
        nodes.create(audit(id_))
    registry.coordination.write(Set(paths.audit("a1"), b"{}"))
    assert [stored.value.id for stored in nodes.every()] == ["a2"]
    with pytest.raises(DamagedFile, match="/audits/a1"):
        nodes.one("a1")
