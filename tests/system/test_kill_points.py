"""`kill -9` at every instrumented point of an epoch, a checkpoint, a restore and a leader's writes.

One job counts words under a steady input. For each point: arm it, feed until some process has died
there, wait until all input is committed, and let the independent verifier read both topics whole.
"""

from __future__ import annotations

import glob
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from perseid.records import crashpoints
from perseid.records.crashpoints import KillTarget
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until
from perseid.worker.checkpoint import part_writer
from support.kill_points import REACH_S, kills

JOB = "killed"
LINES = 400  # of one feeding: an epoch or two
FEED_S = 0.2  # between feedings; all that was fed is judged after each kill
QUIET_S = 3.0  # without an epoch
ATTEMPTS = 4

POINTS = kills(takeover=False)
TAKEOVER_POINTS = kills(takeover=True)  # a kill of the owning driver comes first


@pytest.fixture(scope="module")
def job(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running.topic("killed-lines")
    folder = example(
        tmp_path_factory.mktemp("killed"),
        "wordcount",
        {
            "name: wordcount": f"name: {JOB}",
            "topic: lines": "topic: killed-lines",
            "topic: word-counts": "topic: killed-counts",
            'period: "30s"': 'period: "3s"',
        },
    )
    running.do("jobs", "apply", str(folder))
    yield JOB
    running.do("jobs", "remove", JOB)


def feed_until_reached(running: RunningCluster, folder: Path, point: str, seed: int) -> None:
    fed = 0

    def reached() -> bool:
        nonlocal fed
        if not crashpoints.armed(folder, point):
            return True
        running.produce("killed-lines", lines(LINES, seed * 1000 + fed))
        fed += 1
        return False

    until(reached, REACH_S, f"some process to die at {point}", FEED_S)


def judge(running: RunningCluster) -> None:
    running.produce("killed-lines", lines(LINES, 7))
    running.wait_caught_up(JOB)
    verdict = verify_wordcount(running.kafka, "killed-lines", "killed-counts")
    assert verdict.ok, verdict
    assert verdict.output_records > 0


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("point", "target"), POINTS)
def test_nothing_is_lost_or_doubled_by_a_kill(
    running: RunningCluster, crash_points: Path, job: str, point: str, target: KillTarget
) -> None:
    if target == "driver":  # another worker has to take over; a process has its own driver
        running.wait_workers(2)
    crashpoints.arm(crash_points, point, target)
    feed_until_reached(running, crash_points, point, POINTS.index((point, target)))
    judge(running)


@pytest.mark.drawn
@pytest.mark.parametrize(("point", "target"), TAKEOVER_POINTS)
def test_nothing_is_lost_or_doubled_by_a_kill_during_a_takeover(
    running: RunningCluster, crash_points: Path, job: str, point: str, target: KillTarget
) -> None:
    crashpoints.arm(crash_points, point, target)
    for attempt in range(ATTEMPTS):  # a kill between two epochs leaves nothing to replay
        running.wait_workers(2)
        running.produce("killed-lines", lines(20 * LINES, attempt))
        running.take_over(job)
        if not crashpoints.armed(crash_points, point):
            break
    assert not crashpoints.armed(crash_points, point), f"no process died at {point}"
    judge(running)


def test_a_checkpoint_outlives_a_process_that_was_to_write_a_part_of_it(
    running: RunningCluster, job: str
) -> None:
    """It waited for the part for 300 s: no other process knew of the order."""
    running.wait_workers(2)
    seed = itertools.count(97_000)

    def fed(wanted: Callable[[dict[str, Any]], Any], what: str) -> Any:
        """What `wanted` finds of the job, under input, as soon as it finds something."""

        def look() -> Any:
            running.produce("killed-lines", lines(LINES // 4, next(seed)))
            found = running.job(job)
            return wanted(found) if found else None

        return until(look, REACH_S, what, FEED_S)

    writers = fed(lambda j: part_writers(running, j), "part writers of the owner")
    with ExitStack() as resumed:
        for writer in writers:
            resumed.callback(resume, writer)
            writer.suspend()
        holder, epoch = fed(lambda j: left_over(running, j, writers), "a part that waits")
        holder.kill()

    def complete(job: dict[str, Any]) -> bool:
        return job["checkpoint"] is not None and job["checkpoint"]["epoch"] >= epoch

    fed(complete, f"the checkpoint of epoch {epoch}")
    abandoned = [text for text in running.job(job)["events"] if f"epoch {epoch} aborted" in text]
    assert not abandoned
    judge(running)


def test_a_stop_does_not_wait_for_a_process_that_died_with_its_part(
    running: RunningCluster, job: str
) -> None:
    """No epoch runs after a final token, so no task of one took the order over: 300 s again."""
    running.wait_workers(2)
    before = running.job(job)["committed_epoch"]

    def writers_of_now() -> list[psutil.Process]:
        """Those of the processes that run the tasks: one that has just begun has no writer yet."""
        running.produce("killed-lines", lines(LINES // 4, 96_000))
        found = running.job(job)
        complete = found["checkpoint"] is not None and found["checkpoint"]["epoch"] > before
        return part_writers(running, found) if complete else []

    writers = until(writers_of_now, REACH_S, "a checkpoint by the processes of now", FEED_S)
    with ExitStack() as resumed:
        for writer in writers:
            resumed.callback(resume, writer)
            writer.suspend()
        running.do("jobs", "stop", job, "--checkpoint", "--no-wait")
        for holder in until(LastOrders(running, job, writers), REACH_S, "the last orders"):
            holder.kill()
    until(lambda: running.job(job)["state"] == "stopped", REACH_S, "the job to stop")
    stopped = running.job(job)
    abandoned = f"epoch {stopped['committed_epoch']} aborted"
    assert not [text for text in stopped["events"] if abandoned in text]
    assert stopped["checkpoint"]["epoch"] == stopped["committed_epoch"]
    running.do("jobs", "start", job)
    judge(running)


class LastOrders:
    """Asked again and again: the processes that have orders of the epoch that nothing follows."""

    def __init__(self, running: RunningCluster, job: str, writers: list[psutil.Process]) -> None:
        self._running, self._job = running, job
        self._parents = {p.pid: p for w in writers if (p := w.parent()) is not None}
        self._last = (-1, 0.0)

    def __call__(self) -> list[psutil.Process] | None:
        now_s, epoch = time.monotonic(), self._running.job(self._job)["committed_epoch"]
        if epoch != self._last[0]:
            self._last = epoch, now_s
        found = {holder for at, holder in orders(self._running) if at == epoch}
        quiet = now_s - self._last[1] > QUIET_S
        return [self._parents[pid] for pid in found & self._parents.keys()] if quiet else None


def orders(running: RunningCluster) -> list[tuple[int, int]]:
    """(epoch, pid of the holder) of all orders that wait."""
    found = []
    for path in glob.glob(f"{running.cluster.deployment.state}/*/*/*/*/orders/o-*.order"):
        _, epoch, *_, holder, _ = Path(path).stem.split("-")
        found.append((int(epoch), int(holder)))
    return found


def part_writers(running: RunningCluster, job: dict[str, Any]) -> list[psutil.Process]:
    return running.below(job["owner"].rpartition("-")[0], part_writer.__name__)


def resume(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # it ends with the process that it works for
        process.resume()


def left_over(
    running: RunningCluster, job: dict[str, Any], writers: list[psutil.Process]
) -> tuple[psutil.Process, int] | None:
    """A process whose writer has not written a part, and the part's epoch.

    Two epochs after it are done: so no task that could be tried again knows of the order.
    """
    holders = {parent.pid: parent for w in writers if (parent := w.parent()) is not None}
    for epoch, holder in orders(running):
        if holder in holders and epoch + 2 <= job["committed_epoch"]:
            return holders[holder], epoch
    return None
