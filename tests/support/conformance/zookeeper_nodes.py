"""Scripts: nodes, versions, atomic writes, refused writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perseid.registry.port import Check, ConflictError, Create, Delete, Set, Write
from perseid.testing.registry import REQUEST_BYTES_MAX
from support.conformance import Scripts, outcome
from support.conformance.zookeeper_side import ZooKeeperSide

SCRIPTS: Scripts[ZooKeeperSide] = Scripts()


def shown(session: Any, path: str) -> object:
    """Returns data, version, and whether the node is ephemeral and the session's own."""
    node = session.get(path)
    return None if node is None else (node.data, node.version, node.ephemeral, node.mine)


def refused(session: Any, *writes: Write) -> object:
    """Returns the path that a conflict names, or the other outcome."""
    try:
        session.write(*writes)
    except ConflictError as error:
        return error.path
    return "done"


@SCRIPTS.add(None, (b"1", 0, False, False), (b"2", 1, False, False), (b"3", 2, False, False))
def versions_rise_with_every_set(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    yield shown(session, "/a")
    session.write(Create("/a", b"1"))
    yield shown(session, "/a")
    session.write(Set("/a", b"2", version=0))
    yield shown(session, "/a")
    session.write(Set("/a", b"3"))
    yield shown(session, "/a")


@SCRIPTS.add("/a", "/a", "/a", "/a", "/none", "/none", "/none", "/none/child", (b"old", 0), None)
def a_refused_write_names_its_path_and_undoes_the_others(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    session.write(Create("/a", b"old"))
    for write in (Create("/a", b""), Set("/a", b"", version=7), Delete("/a", version=7),
                  Check("/a", 7), Check("/none", 0), Set("/none", b""), Delete("/none"),
                  Create("/none/child", b"")):  # fmt: skip
        yield refused(session, Create("/b", b""), write, Set("/a", b"new"))
    yield shown(session, "/a")[:2]  # type: ignore[index]
    yield shown(session, "/b")


@SCRIPTS.add(("b", "c"), (), "/a", "/a", "done", (), "done", None)
def a_node_with_children_is_not_deleted(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    session.write(Create("/a", b""), Create("/a/c", b""), Create("/a/b", b""))
    yield session.children("/a")
    yield session.children("/none")
    yield refused(session, Delete("/a"))
    yield refused(session, Delete("/a/b"), Delete("/a"))
    yield refused(session, Delete("/a/b"), Delete("/a/c"))
    yield session.children("/a")
    yield refused(session, Delete("/a"))
    yield shown(session, "/a")


@SCRIPTS.add("/mine/child", "/mine/child", ())
def an_ephemeral_node_has_no_children(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    yield refused(session, Create("/mine", b"", ephemeral=True), Create("/mine/child", b""))
    session.write(Create("/mine", b"", ephemeral=True))
    yield refused(session, Create("/mine/child", b"", ephemeral=True))
    yield session.children("/mine")


@SCRIPTS.add("done", (b"2", 2), "done", ("c",), "done", None)
def one_write_may_build_on_itself(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    yield refused(session, Create("/a", b"0"), Set("/a", b"1", 0), Check("/a", 1), Set("/a", b"2"))
    yield shown(session, "/a")[:2]  # type: ignore[index]
    yield refused(session, Create("/p", b""), Create("/p/c", b""))
    yield session.children("/p")
    yield refused(session, Delete("/p/c"), Delete("/p"), Delete("/a", 2))
    yield shown(session, "/a")


@SCRIPTS.add((b"1", 1), (b"again", 0), "/a", "done")
def a_recreated_node_starts_at_version_0(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    session.write(Create("/a", b"0"))
    session.write(Set("/a", b"1"))
    yield shown(session, "/a")[:2]  # type: ignore[index]
    session.write(Delete("/a", 1), Create("/a", b"again"))
    yield shown(session, "/a")[:2]  # type: ignore[index]
    yield refused(session, Set("/a", b"", 1))
    yield refused(session, Set("/a", b"", 0))


@SCRIPTS.add("/one", "/two", (b"", 0))
def the_first_of_several_conflicts_is_named(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    session.write(Create("/one", b""), Create("/two", b""))
    yield refused(session, Check("/one", 9), Check("/two", 9))
    yield refused(session, Check("/one", 0), Create("/two", b""), Check("/one", 9))
    yield shown(session, "/one")[:2]  # type: ignore[index]


@SCRIPTS.add("done", "done", "/epoch", "done", b"new")
def a_fence_stops_the_old_leader(side: ZooKeeperSide) -> Iterator[object]:
    old, new = side.session(), side.session()
    old.write(Create("/epoch", b"1"), Create("/plan", b""))
    yield refused(old, Check("/epoch", 0), Set("/plan", b"old"))
    yield refused(new, Set("/epoch", b"2", 0))
    yield refused(old, Check("/epoch", 0), Set("/plan", b"zombie"))
    yield refused(new, Check("/epoch", 1), Set("/plan", b"new"))
    yield new.get("/plan").data


@SCRIPTS.add((b"", 0), (bytes(range(256)), 1))
def data_is_any_bytes(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    session.write(Create("/a", b""))
    yield shown(session, "/a")[:2]  # type: ignore[index]
    session.write(Set("/a", bytes(range(256))))
    yield shown(session, "/a")[:2]  # type: ignore[index]


@SCRIPTS.add(
    "done", 1_000_000, "UnknownOutcomeError", "UnknownOutcomeError", 1_000_000, None, "done",
    ["suspended", "connected", "suspended", "connected"],
)  # fmt: skip
def a_request_that_is_too_large_looks_like_a_broken_connection(
    side: ZooKeeperSide,
) -> Iterator[object]:
    session = side.session()
    states = side.states(session)
    yield refused(session, Create("/large", b"x" * 1_000_000))
    yield len(session.get("/large").data)
    yield outcome(session.write, Set("/large", b"y" * (REQUEST_BYTES_MAX + 1)))
    side.await_states(states, 2)
    half = b"z" * (REQUEST_BYTES_MAX // 2 + 1)
    yield outcome(session.write, Set("/large", half), Create("/other", half))
    side.await_states(states, 4)
    yield len(session.get("/large").data)
    yield shown(session, "/other")
    yield refused(session, Create("/other", b""))
    yield states
