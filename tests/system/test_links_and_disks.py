"""A running job whose links are cut one way or both, and whose disks are full one at a time.

Before, under and after each fault lines are sent; then every count is judged by the independent
verifier. The worst histories of the simulation are played on the same real servers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until
from support.breakable import BreakableCluster
from support.schedule import Strike, worst

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1200)]

JOB = "linked"
LINES = 2000
SESSION_S = 2.0  # of ZooKeeper in the embedded cluster
ONE_WAY_S = 12.0
WORST, OF_SEEDS = 20, 200


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableCluster]:
    folder = tmp_path_factory.mktemp("linked")
    with BreakableCluster(folder) as cluster:
        cluster.running.topic(f"{JOB}-lines", 2)
        cluster.running.apply(example(folder / "job", "wordcount", {
            "name: wordcount": f"name: {JOB}", "topic: lines": f"topic: {JOB}-lines",
            "topic: word-counts": f"topic: {JOB}-counts", 'period: "30s"': 'period: "3s"',
        }))  # fmt: skip
        yield cluster


def last(seconds: float) -> None:
    """The fault lasts so long: its duration is what is tested."""
    ends_s = time.monotonic() + seconds
    until(lambda: time.monotonic() >= ends_s, seconds + 60, "the fault to have lasted")


def judge(breakable: BreakableCluster, seed: int, fault: Callable[[], object]) -> None:
    """Lines before, under and after the fault; then the job runs and all counts are right."""
    running, source = breakable.running, f"{JOB}-lines"
    running.produce(source, lines(LINES, seed))
    running.wait_caught_up(JOB)
    running.produce(source, lines(LINES, seed + 1))
    fault()
    running.produce(source, lines(LINES, seed + 2))
    running.wait_caught_up(JOB)
    verdict = verify_wordcount(running.kafka, source, f"{JOB}-counts")
    assert verdict.ok, verdict


@pytest.mark.parametrize("seconds", [0.7 * SESSION_S, 5 * SESSION_S])
def test_zookeeper_alone_is_cut_off(breakable: BreakableCluster, seconds: float) -> None:
    def fault() -> None:
        with breakable.cut("zookeeper"):
            last(seconds)

    judge(breakable, 10, fault)


def test_the_link_to_zookeeper_flaps(breakable: BreakableCluster) -> None:
    def fault() -> None:
        for _ in range(6):
            with breakable.cut("zookeeper"):
                last(0.3 * SESSION_S)
            last(0.3 * SESSION_S)

    judge(breakable, 20, fault)


@pytest.mark.parametrize("lost", ["requests", "answers"])
@pytest.mark.parametrize("part", ["zookeeper", "kafka"])
def test_a_link_carries_one_way_only(breakable: BreakableCluster, part: str, lost: str) -> None:
    def fault() -> None:
        with breakable.half_open(part, lost):
            last(ONE_WAY_S)

    judge(breakable, 30, fault)


def test_kafka_rejects_every_connection_for_a_while(breakable: BreakableCluster) -> None:
    def fault() -> None:
        with breakable.cut("kafka"):
            last(ONE_WAY_S)

    judge(breakable, 40, fault)


def test_the_disk_of_state_logs_is_full(breakable: BreakableCluster) -> None:
    def fault() -> None:
        with breakable.disks["state"].full():
            breakable.running.wait_job(JOB, lambda j: bool(j["failing"]), "shown as failing")

    judge(breakable, 50, fault)


def test_the_disk_of_kafka_is_full(breakable: BreakableCluster) -> None:
    """A broker that cannot write ends; it is started again when there is room."""

    def fault() -> None:
        with breakable.disks["kafka"].full():
            until(lambda: not breakable.kafka.alive, 300.0, "the broker to end")
        breakable.kafka.kill()
        breakable.kafka.start()

    judge(breakable, 60, fault)


def test_the_disk_of_zookeeper_is_full(breakable: BreakableCluster) -> None:
    """The server ends or refuses writes; it serves again when there is room."""

    def fault() -> None:
        with breakable.disks["zookeeper"].full():
            last(5 * SESSION_S)
        if not breakable.zookeeper.alive:
            breakable.zookeeper.kill()
            breakable.zookeeper.start()

    judge(breakable, 70, fault)


def strike(breakable: BreakableCluster, fault: Strike) -> None:
    """Does to the real servers what was done to the modelled ones."""
    match fault:
        case Strike(what="kill-task"):
            breakable.kill_task(JOB)
        case Strike(what="kill", target="worker"):
            breakable.kill(breakable.owner(JOB))
        case Strike(what="kill"):
            breakable.kill(random.Random(fault.at_s).choice(["c1", "c2"]))
        case Strike(what="pause"):
            name = breakable.owner(JOB) if fault.target == "worker" else "c1"
            breakable.cluster.pause(name)
            last(fault.lasts_s)
            breakable.cluster.resume(name)
        case Strike(what="both"):
            with breakable.cut(fault.target):
                last(fault.lasts_s)
        case _:
            with breakable.half_open(fault.target, fault.what):
                last(fault.lasts_s)


@pytest.mark.timeout(5400)
def test_the_worst_histories_of_the_simulation_on_real_servers(
    breakable: BreakableCluster, seed: int
) -> None:
    first = 1_000_000 + OF_SEEDS * (seed % 1000)
    for outcome, schedule in worst(range(first, first + OF_SEEDS), WORST):

        def fault(schedule: list[Strike] = schedule) -> None:
            began_s = time.monotonic()
            for each in schedule:
                last(max(0.0, each.at_s - (time.monotonic() - began_s)))
                strike(breakable, each)

        try:
            judge(breakable, outcome.seed, fault)
        except AssertionError as error:
            raise AssertionError(f"{outcome.command}: {schedule}") from error
