"""Whether each part of a cluster answers. A probe returns None when healthy, else the fault.

An open port is not enough: a broker accepts connections seconds before it leads partitions.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from functools import partial

from perseid.errors import PerseidError
from perseid.records import Deployment
from perseid.records.access import SYSTEM, Access, Bootstrap
from perseid.registry import Registry

PROBE_TIMEOUT_S = 2.0
Probe = Callable[[], str | None]


def probes(deployment: Deployment) -> dict[str, Probe]:
    """The parts that everything else needs."""
    return {
        "zookeeper": partial(zookeeper, deployment.zookeeper, deployment.zookeeper_access),
        "redis": partial(redis, deployment.redis, deployment.redis_access),
        "kafka": partial(kafka, deployment.brokers()),
    }


def zookeeper(hosts: str, access: Access) -> str | None:
    answer = _ask(hosts.split(",", maxsplit=1)[0], b"srvr", 2181, access)
    return None if answer and b"Mode:" in answer else f"ZooKeeper at {hosts} does not answer"


def redis(url: str, access: Access) -> str | None:
    from redis import RedisError

    from perseid.state.durability.redis_client import connect

    try:
        with closing(connect(url, access, PROBE_TIMEOUT_S)) as client:
            client.ping()
    except (RedisError, PerseidError) as error:
        return f"Redis at {url} does not answer: {error}"
    return None


def kafka(bootstrap: Bootstrap) -> str | None:
    from perseid.embedded.kafka_probe import brokers

    try:
        return None if brokers(bootstrap, PROBE_TIMEOUT_S) else f"no broker at {bootstrap}"
    except PerseidError as error:
        return str(error)


def spark_master(url: str) -> str | None:
    host, _, port = url.removeprefix("spark://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()
    except OSError as error:
        return f"no Spark master at {url}: {error}"
    return None


def leader(deployment: Deployment) -> str | None:
    """Checks that a coordinator leads."""
    return _of_registry(
        deployment, lambda registry: None if registry.leader() else "no coordinator leads yet"
    )


def worker(deployment: Deployment, name: str) -> str | None:
    """Checks that this worker is registered."""

    def missing(registry: Registry) -> str | None:
        found = name in {worker.id for worker in registry.workers()}
        return None if found else f"not registered yet: {name}"

    return _of_registry(deployment, missing)


def _of_registry(deployment: Deployment, ask: Callable[[Registry], str | None]) -> str | None:
    try:
        with closing(Registry.connect(deployment, timeout_s=PROBE_TIMEOUT_S)) as registry:
            return ask(registry)
    except PerseidError as error:
        return str(error)


def _ask(address: str, words: bytes, default_port: int, access: Access) -> bytes | None:
    host, _, port = address.partition(":")
    try:
        plain = socket.create_connection((host, int(port or default_port)), PROBE_TIMEOUT_S)
        with _encrypted(plain, host, access) as line:
            line.settimeout(PROBE_TIMEOUT_S)
            line.sendall(words)
            answer = b""
            while piece := line.recv(4096):
                answer += piece
            return answer
    except OSError:
        return None


def _encrypted(plain: socket.socket, host: str, access: Access) -> socket.socket:
    """`plain`, or TLS over it, with the server's name verified."""
    if not access.encrypted:
        return plain
    context = ssl.create_default_context(cafile=None if access.ca == SYSTEM else access.ca)
    if access.cert is not None:
        context.load_cert_chain(access.cert, access.key)
    return context.wrap_socket(plain, server_hostname=host)
