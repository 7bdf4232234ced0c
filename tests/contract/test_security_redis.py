"""A deployment's user of Redis can do what perseid does there, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis.exceptions import NoPermissionError

from perseid.embedded.health import redis as fault_of
from perseid.errors import RetryableError, UsageError
from perseid.records import Deployment
from perseid.records.access import Access
from perseid.state.durability.counters import CounterKey, Divergence
from perseid.state.durability.counters_redis import RedisCounters
from perseid.state.durability.redis_client import connect, rights
from support.certificates import Authority
from support.redis_server import RedisServer, TlsFront

SECRET = "canary-77aa"
KEY, VALUE = CounterKey("wordcount", "counts", 0), Divergence(1, 1, 2.5)


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Access:
    file = tmp_path_factory.mktemp("secrets") / "redis"
    file.write_text(SECRET)
    return Access(part="REDIS", user="perseid", password_file=str(file))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, access: Access) -> Iterator[RedisServer]:
    """The user that the documentation makes, and no default one."""
    users = ["user default off", f"user perseid on >{SECRET} {rights('local')}"]
    with RedisServer(tmp_path_factory.mktemp("redis"), users, access) as running:
        yield running


@pytest.mark.security("5.5")
def test_counters_need_no_more_rights(server: RedisServer, access: Access) -> None:
    with closing(RedisCounters(server.url, access=access)) as counters:
        assert counters.publish(KEY, VALUE)
        assert counters.read(KEY) == VALUE
        assert not counters.publish(KEY, VALUE)
    assert fault_of(server.url, access) is None
    with connect(server.url, access, 2.0) as client:
        assert client.time()


@pytest.mark.security("5.5")
@pytest.mark.parametrize(
    "command",
    [
        "EVAL|return 1|0", "CONFIG|GET|*", "FLUSHALL", "MODULE|LIST", "KEYS|*", "ACL|LIST",
        "SAVE", "SCRIPT|FLUSH", "DEBUG|JMAP", "SHUTDOWN", "GET|other",
        "SET|perseid:others:divergence:x|1", "SUBSCRIBE|x", "DEL|perseid:local:x", "REPLICAOF|x|1",
    ],
)  # fmt: skip
def test_everything_else_is_denied(server: RedisServer, access: Access, command: str) -> None:
    with connect(server.url, access, 2.0) as client, pytest.raises(NoPermissionError):
        client.execute_command(*command.split("|"))


@pytest.mark.security("5.5")
def test_another_deployments_counters_are_out_of_reach(server: RedisServer, access: Access) -> None:
    with (
        closing(RedisCounters(server.url, "others", access=access)) as counters,
        pytest.raises(RetryableError, match="NoPermissionError"),
    ):
        counters.publish(KEY, VALUE)


@pytest.mark.security("5.5", "5.14")
def test_without_the_password_no_client_comes_in(
    server: RedisServer, access: Access, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("canary-b00")
    wrong = access.model_copy(update={"password_file": str(tmp_path / "wrong")})
    for how, text in (
        (wrong, "invalid username-password"),
        (Access(part="REDIS"), "authenticated"),
    ):
        fault = fault_of(server.url, how)
        assert fault is not None and text in fault
        assert "canary" not in fault


@pytest.mark.security("5.5")
def test_over_tls_the_servers_name_is_verified(
    server: RedisServer, access: Access, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    trusted = access.model_copy(update={"ca": str(authority.ca)})
    with TlsFront(server.port, authority) as front:
        url = f"rediss://localhost:{front.port}/0"
        with closing(RedisCounters(url, access=trusted, timeout_s=5.0)) as counters:
            assert counters.read(CounterKey("none", "none", 0)) is None
        stranger = access.model_copy(update={"ca": str(other.ca)})
        for where, how in ((url, stranger), (url.replace("localhost", "127.0.0.1"), trusted)):
            fault = fault_of(where, how)
            assert fault is not None and "certificate verify failed" in fault.lower()


@pytest.mark.security("5.5", "5.14")
def test_a_url_with_a_password_is_refused_without_quoting_it() -> None:
    with pytest.raises(UsageError, match="PERSEID_REDIS_PASSWORD_FILE") as caught:
        Deployment(
            kafka="", zookeeper="", redis=f"rediss://perseid:{SECRET}@redis:6379", store="",
            state="", logs="",
        )  # fmt: skip
    assert SECRET not in str(caught.value)
