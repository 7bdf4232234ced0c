"""Scripts: sessions that end on the server's clock, watches, unknown outcomes."""

from __future__ import annotations

from collections.abc import Iterator

from perseid.registry.port import Create, Delete, Set
from support.conformance import Scripts, outcome
from support.conformance.zookeeper_nodes import refused, shown
from support.conformance.zookeeper_side import Watcher, ZooKeeperSide

SCRIPTS: Scripts[ZooKeeperSide] = Scripts()


@SCRIPTS.add((b"", 0, True, True), (b"", 0, True, False), (None, ()), None)
def ephemeral_nodes_end_with_their_session(side: ZooKeeperSide) -> Iterator[object]:
    first, second = side.session(), side.session()
    first.write(Create("/mine", b"", ephemeral=True))
    yield shown(first, "/mine")
    yield shown(second, "/mine")
    watcher = Watcher(second, "/mine")
    first.close()
    yield watcher.sees((None, ()))
    yield outcome(first.close)  # repeating it is harmless


@SCRIPTS.add("done", None, "done", (b"theirs", 0, True, False))
def an_ephemeral_node_is_anybodys_to_delete(side: ZooKeeperSide) -> Iterator[object]:
    first, second = side.session(), side.session()
    first.write(Create("/node", b"mine", ephemeral=True))
    yield refused(second, Delete("/node"))
    yield shown(first, "/node")
    yield refused(second, Create("/node", b"theirs", ephemeral=True))
    yield shown(first, "/node")


@SCRIPTS.add(
    (None, ()), (b"", ()), (b"1", ()), (b"1", ("child",)), (b"1", ()), (None, ()), (b"again", ())
)
def a_watch_stands_and_sees_data_children_and_life(side: ZooKeeperSide) -> Iterator[object]:
    session, writer = side.session(), side.session()
    watcher = Watcher(session, "/w")
    yield watcher.sees((None, ()))
    for write, then in (
        (Create("/w", b""), (b"", ())), (Set("/w", b"1"), (b"1", ())),
        (Create("/w/child", b""), (b"1", ("child",))), (Delete("/w/child"), (b"1", ())),
        (Delete("/w"), (None, ())), (Create("/w", b"again"), (b"again", ())),
    ):  # fmt: skip
        watcher.look()
        writer.write(write)
        yield watcher.sees(then)


@SCRIPTS.add((b"49", ()), True, (b"after", ()))
def changes_between_trigger_and_arming_are_merged_and_none_is_missed(
    side: ZooKeeperSide,
) -> Iterator[object]:
    session, writer = side.session(), side.session()
    writer.write(Create("/w", b""))
    watcher = Watcher(session, "/w")
    watcher.look()
    for i in range(50):
        writer.write(Set("/w", b"%d" % i))
    yield watcher.sees((b"49", ()))
    yield watcher.calls() <= 60  # at most one per change, and few more
    writer.write(Set("/w", b"after"))
    yield watcher.sees((b"after", ()))


@SCRIPTS.add((b"changed", ()), (b"again", ()))
def a_watch_is_called_when_the_connection_is_back(side: ZooKeeperSide) -> Iterator[object]:
    session, writer = side.session(), side.session()
    writer.write(Create("/w", b""))
    watcher = Watcher(session, "/w")
    watcher.look()
    side.cut(session)
    writer.write(Set("/w", b"changed"))
    side.mend(session)
    yield watcher.sees((b"changed", ()))
    writer.write(Set("/w", b"again"))
    yield watcher.sees((b"again", ()))


@SCRIPTS.add(["suspended", "connected"], (b"", 0, True, True))
def a_short_silence_keeps_the_session(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    states = side.states(session)
    session.write(Create("/mine", b"", ephemeral=True))
    side.cut(session)
    side.mend(session)
    yield states
    yield shown(session, "/mine")


@SCRIPTS.add(
    None, ["suspended"], "RetryableError", ["suspended", "lost", "connected"], None, "done",
    (b"new", 0, True, True), (b"seen", ()),
)  # fmt: skip
def the_server_ends_a_silent_session_and_its_client_hears_of_it_later(
    side: ZooKeeperSide,
) -> Iterator[object]:
    session, other = side.session(), side.session()
    states, watcher = side.states(session), Watcher(session, "/w")
    session.write(Create("/mine", b"", ephemeral=True))
    side.cut(session)
    side.server_time_passes()
    yield shown(other, "/mine")  # other sessions see it
    yield list(states)
    yield outcome(session.get, "/mine")
    side.mend(session)
    yield list(states)
    yield shown(session, "/mine")
    yield refused(session, Create("/mine", b"new", ephemeral=True))
    yield shown(session, "/mine")
    other.write(Create("/w", b"seen"))
    yield watcher.sees((b"seen", ()))


@SCRIPTS.add("RetryableError", "RetryableError", "UnknownOutcomeError")
def nothing_is_answered_while_suspended(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    side.cut(session)
    yield outcome(session.get, "/a")
    yield outcome(session.children, "/")
    yield outcome(session.write, Create("/a", b""))
    side.mend(session)


@SCRIPTS.add("UnknownOutcomeError", None, (b"late", ()))
def what_was_written_while_suspended_is_done_later(side: ZooKeeperSide) -> Iterator[object]:
    session, other = side.session(), side.session()
    watcher = Watcher(other, "/a")
    side.cut(session)
    yield outcome(session.write, Create("/a", b"late"))
    yield shown(other, "/a")
    side.mend(session)
    yield watcher.sees((b"late", ()))


@SCRIPTS.add("UnknownOutcomeError", None, "done")
def what_was_written_while_suspended_dies_with_the_session(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    side.cut(session)
    yield outcome(session.write, Create("/a", b"late"))
    side.server_time_passes()
    side.mend(session)
    yield shown(session, "/a")
    yield refused(session, Create("/a", b""))


@SCRIPTS.add(
    "UnknownOutcomeError", (b"", 0, False, False), "/a", "UnknownOutcomeError", (b"1", 1), "/a"
)
def a_write_without_an_answer_that_was_done(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    yield side.write_without_answer(session, "done", Create("/a", b""))
    yield shown(session, "/a")
    yield refused(session, Create("/a", b""))  # repeating it reveals that it was done
    yield side.write_without_answer(session, "done", Set("/a", b"1", 0))
    yield shown(session, "/a")[:2]  # type: ignore[index]
    yield refused(session, Set("/a", b"1", 0))


@SCRIPTS.add("UnknownOutcomeError", None, "done")
def a_write_without_an_answer_that_was_not_done(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    yield side.write_without_answer(session, "not done", Create("/a", b""))
    yield shown(session, "/a")
    yield refused(session, Create("/a", b""))


@SCRIPTS.add("RetryableError", "RetryableError", "UnknownOutcomeError")
def a_closed_session_answers_nothing(side: ZooKeeperSide) -> Iterator[object]:
    session = side.session()
    session.close()
    yield outcome(session.get, "/a")
    yield outcome(session.children, "/")
    yield outcome(session.write, Create("/a", b""))
