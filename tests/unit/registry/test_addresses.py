"""To which addresses kazoo connects, and how long it tries one."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from perseid.records.access import Access
from perseid.registry.zookeeper import new_client
from support.addresses import Names

SESSION_S = 6.0


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What kazoo's own handler is asked to connect to."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        SequentialThreadingHandler, "create_connection", lambda _, **asked: found.append(asked)
    )
    return found


def connect(hosts: str, name: str, address: str) -> None:
    """As kazoo does with an address that it looked up before."""
    client = new_client(hosts, SESSION_S, Access(part="ZOOKEEPER"))
    client.handler.create_connection(
        address=(address, 2181), hostname=name, timeout=SESSION_S, use_ssl=False
    )


@pytest.mark.parametrize(
    ("known", "now", "used"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.2", "127.0.0.2"),
        ("127.0.0.1", "no-such-name.invalid", "127.0.0.1"),
    ],
    ids=["unchanged", "moved", "not to be found"],
)
def test_the_address_is_one_that_the_name_has_now(
    tried: list[dict[str, Any]], known: str, now: str, used: str
) -> None:
    names = Names()
    names["z1"] = now
    with names.looked_up():
        connect("z1:2181", "z1", known)
    (asked,) = tried
    assert asked["address"] == (used, 2181)
    assert (asked["hostname"], asked["use_ssl"]) == ("z1", False)


def test_of_several_addresses_of_a_name_kazoo_chooses(
    tried: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 2181)) for n in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    connect("z:2181", "z", "127.0.0.2")
    assert tried[0]["address"] == ("127.0.0.2", 2181)


@pytest.mark.parametrize(("hosts", "attempt_s"), [("z1:1", 6.0), ("z1:1,z2:1,z3:1", 2.0)])
def test_a_server_that_is_gone_leaves_time_for_the_others(
    tried: list[dict[str, Any]], hosts: str, attempt_s: float
) -> None:
    connect(hosts, "127.0.0.1", "127.0.0.1")
    assert tried[0]["timeout"] == attempt_s
