"""How long the output of a job stops while something is dead."""

from __future__ import annotations

import signal
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from perseid.embedded.identity import send
from perseid.records.marks import mark
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until

APPEND_TIMES = {"message.timestamp.type": "LogAppendTime"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def lasts(seconds: float) -> None:
    """Input comes steadily for so long."""
    ends_s = time.monotonic() + seconds
    until(lambda: time.monotonic() >= ends_s, seconds + 60, "the time to be over")


def times_ms(running: RunningCluster, topic: str) -> list[int]:
    """The times of the topic's committed records, in order."""
    return sorted(record.time_ms for record in read_topic(running.kafka, topic))


def silences_s(
    given_ms: Sequence[int], shown_ms: Sequence[int], begin: int, end: int
) -> list[float]:
    """How long rows waited from one output to the next, within a time. Both are in order."""
    inner = [t for t in dict.fromkeys(shown_ms) if begin < t < end]
    found = []
    for before, after in pairwise([begin, *inner, end]):
        at = bisect_right(given_ms, before)
        since = given_ms[at] if at < len(given_ms) else after
        found.append(max(after - since, 0) / 1000)
    return found


def assert_not_waited(
    running: RunningCluster, calm: Sequence[float], dead: Sequence[float]
) -> None:
    """Output continued while something was dead; silences in s, before the death and during it.

    A job that waits for a dead worker is silent until the death is known, for a session at least.
    On a busy machine all silences are longer: so the bound rises with the earlier ones.
    """
    bound_s = max(running.cluster.deployment.zookeeper_session_s, 3 * max(calm))
    assert max(dead) < bound_s, f"{max(dead)} s without output; at most {max(calm)} s before"


@contextmanager
def not_restarted(running: RunningCluster, name: str) -> Iterator[None]:
    """The supervisor of the process is stopped: it reports no death and restarts nothing."""
    pid = running.cluster.process(name).supervisor_pid
    assert pid is not None
    supervisor = mark(pid)
    assert send(supervisor, signal.SIGSTOP)
    try:
        yield
    finally:
        send(supervisor, signal.SIGCONT)
