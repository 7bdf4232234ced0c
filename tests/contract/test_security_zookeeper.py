"""A deployment's part of ZooKeeper is its user's alone, over TLS or not."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from perseid.embedded.health import zookeeper as fault_of
from perseid.errors import RefusedError, RetryableError, UsageError
from perseid.records import Deployment, JobEntry, LeaderInfo, WorkerInfo
from perseid.records.access import Access
from perseid.registry import Registry, lead
from perseid.registry.probe import look
from perseid.registry.zookeeper import KazooCoordination
from support.zookeeper import SecuredZooKeeperServer, ZooKeeperServer

SECRET = "canary-51c2"
_names = count(1)


@pytest.fixture(scope="module", params=["plain", "TLS"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    kinds = {"plain": ZooKeeperServer, "TLS": SecuredZooKeeperServer}
    with kinds[request.param](tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeperServer]:
    with SecuredZooKeeperServer(tmp_path_factory.mktemp("tls")) as running:
        yield running


def access(
    server: ZooKeeperServer, folder: Path, user: str = "perseid", secret: str = SECRET
) -> Access:
    (folder / user).write_text(secret)
    own = {"user": user, "password_file": str(folder / user)}
    if isinstance(server, SecuredZooKeeperServer):
        return server.access(**own)
    return Access.model_validate({"part": "ZOOKEEPER", **own})


def deployment(server: ZooKeeperServer, how: Access, name: str | None = None) -> Deployment:
    return Deployment(
        name=name or f"d{next(_names)}", kafka="", zookeeper=server.hosts, store="", state="",
        logs="", redis="redis://127.0.0.1", zookeeper_access=how,
    )  # fmt: skip


def without_login(server: ZooKeeperServer) -> KazooClient:
    tls: dict[str, Any] = {}
    if isinstance(server, SecuredZooKeeperServer):
        tls = {"use_ssl": True, "ca": str(server.authority.ca), "check_hostname": True}
    client = KazooClient(server.hosts, **tls)
    client.start(10)
    return client


def below(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for child in client.get_children(path):
        yield from below(client, f"{path}/{child}")


@pytest.mark.security("5.4")
def test_whatever_a_deployment_writes_is_its_users_alone(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    settings = deployment(server, access(server, tmp_path))
    with closing(Registry.connect(settings)) as registry:
        assert lead(registry, lambda epoch: LeaderInfo("c1", epoch, 1, "http://x"), 0) is not None
        registry.register_worker(WorkerInfo("w1", "w1-0", "here", 1, 1, 2, "local[2]", 0))
        registry.put_job_entry(JobEntry("wordcount", "u", "r", "a", "running", 1, 0), None)
        inner = registry.coordination
        assert isinstance(inner, KazooCoordination)
        found = list(below(inner._client, settings.chroot))
        assert len(found) > 6
        for path in found:
            rights, _ = inner._client.get_acls(path)
            assert [(r.id.scheme, r.id.id.partition(":")[0]) for r in rights] == [
                ("digest", "perseid")
            ], path
        stranger = without_login(server)
        try:
            attempts: list[Callable[[], object]] = [
                lambda: stranger.get(f"{settings.chroot}/leader"),
                lambda: stranger.create(f"{settings.chroot}/mine"),
                lambda: stranger.set(f"{settings.chroot}/epoch", b"9"),
                lambda: stranger.delete(f"{settings.chroot}/jobs/wordcount", recursive=True),
            ]
            for attempt in attempts:
                with pytest.raises(NoAuthError):
                    attempt()
        finally:
            stranger.stop()
            stranger.close()


@pytest.mark.security("5.4")
@pytest.mark.parametrize(("user", "secret"), [("perseid", "other"), ("somebody", SECRET)])
def test_another_user_or_password_is_refused(
    server: ZooKeeperServer, tmp_path: Path, user: str, secret: str
) -> None:
    settings = deployment(server, access(server, tmp_path))
    Registry.connect(settings).close()
    (tmp_path / "other").mkdir()
    other = access(server, tmp_path / "other", user, secret)
    with pytest.raises(RefusedError, match="is PERSEID_ZOOKEEPER_USER who made it") as caught:
        Registry.connect(deployment(server, other, settings.name))
    assert secret not in str(caught.value)


@pytest.mark.security("5.4")
def test_what_was_open_to_all_before_is_refused_until_it_is_closed(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    how = access(server, tmp_path)
    plain = Access.model_validate({**how.model_dump(), "user": None, "password_file": None})
    root = f"/open-{next(_names)}"
    before = KazooCoordination(server.hosts, root, 2.0, access=plain)
    before.start(10.0)
    before.close()
    assert look(server.hosts, root, 2.0, 5.0, plain).open_to_all
    with pytest.raises(RefusedError, match=f"setAcl -R {root} auth::cdrwa"):
        KazooCoordination(server.hosts, root, 2.0, access=how).start(10.0)


@pytest.mark.security("5.4")
def test_doctor_and_health_come_in_the_same_way(server: ZooKeeperServer, tmp_path: Path) -> None:
    how = access(server, tmp_path)
    settings = deployment(server, how)
    Registry.connect(settings).close()
    assert fault_of(server.hosts, how) is None
    assert not look(server.hosts, settings.chroot, 2.0, 5.0, how).open_to_all


@pytest.mark.security("5.4")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kazoo's sockets
@pytest.mark.parametrize("change", ["other authority", "other name", "plain"])
def test_a_server_that_is_not_trusted_gets_no_password(
    secured: SecuredZooKeeperServer, tmp_path: Path, change: str
) -> None:
    own = access(secured, tmp_path).model_dump()
    if change == "other authority":
        own["ca"] = str(secured.authority.issue("another", ["localhost"]).cert)
    if change == "plain":
        own["ca"] = None
    hosts = secured.hosts.replace("localhost", "127.0.0.1") if change == "other name" else None
    coordination = KazooCoordination(
        hosts or secured.hosts, "/x", 2.0, access=Access.model_validate(own)
    )
    with pytest.raises(RetryableError) as caught:
        coordination.start(2.0)
    assert SECRET not in str(caught.value)
    gc.collect()  # kazoo leaves those open with which it was not content


@pytest.mark.security("5.4", "5.14")
def test_a_password_file_that_is_not_there_is_named(server: ZooKeeperServer) -> None:
    how = Access(part="ZOOKEEPER", user="perseid", password_file="/nowhere/secret")
    with pytest.raises(UsageError, match="PERSEID_ZOOKEEPER_PASSWORD_FILE: /nowhere/secret"):
        Registry.connect(deployment(server, how))
