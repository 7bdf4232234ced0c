"""Keeper and supervisors around plain sleeping processes: no JVM, real signals."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.embedded import Cluster, keeper_lock, table
from perseid.embedded.identity import send, tag, tagged, wait_gone
from perseid.embedded.lifecycle import down
from perseid.embedded.table import ProcessSpec
from perseid.records.marks import Mark, mark
from perseid.testing.wait import until

# What is kept alive, killed and stopped here: it sleeps so as to be there; no test waits for it.
SLEEP = "import time; time.sleep(600)"
# Leaves a grandchild in a session of its own.
LEAVES_ONE = (
    "import subprocess, sys, time;"
    f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True); {SLEEP}"
)


def sleeper(name: str, code: str = SLEEP, grace_s: float = 10.0) -> ProcessSpec:
    return ProcessSpec(name, "redis", [sys.executable, "-c", code], stop_grace_s=grace_s)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "data")
    made.home.make()
    yield made
    made.down(purge=True)
    assert list(tagged(f"{made.data}#")) == []


def start(cluster: Cluster, *specs: ProcessSpec) -> None:
    table.write_specs(cluster.home, list(specs))
    keeper_lock.revive(cluster.home)
    for spec in specs:
        cluster.wait_alive(spec.name)


def test_a_killed_process_is_started_again_under_the_same_supervisor(cluster: Cluster) -> None:
    start(cluster, sleeper("a"), sleeper("b"))
    before, other = cluster.process("a"), cluster.process("b")
    cluster.kill("a")
    cluster.wait_alive("a", other_than=before.pid)
    after = cluster.process("a")
    assert after.supervisor_pid == before.supervisor_pid
    assert after.restarts == before.restarts + 1
    assert cluster.process("b") == other
    assert "signal 9" in cluster.home.log("a").read_text()


def test_children_of_a_dead_process_are_killed(cluster: Cluster) -> None:
    start(cluster, sleeper("a", LEAVES_ONE))
    own = tag(cluster.data, "a")
    pids = until(lambda: p if len(p := set(tagged(own))) == 2 else None, 20, "a grandchild")
    old = cluster.kill("a")
    cluster.wait_alive("a", other_than=old)
    until(lambda: not pids & set(tagged(own)), 20, "the old tree to be gone")


def test_a_child_dies_with_its_supervisor_and_both_come_back(cluster: Cluster) -> None:
    start(cluster, sleeper("a"))
    before = cluster.process("a")
    assert before.pid is not None
    child = mark(before.pid)
    assert cluster.kill("a", supervisor=True) == before.supervisor_pid
    assert wait_gone(child, 20)
    cluster.wait_alive("a", other_than=before.pid)
    assert cluster.process("a").supervisor_pid != before.supervisor_pid


def test_a_killed_keeper_comes_back_and_adopts_the_supervisors(cluster: Cluster) -> None:
    start(cluster, sleeper("a"), sleeper("b"))
    before = [cluster.process(name) for name in ("a", "b")]
    old = cluster.kill("keeper")
    cluster.wait_alive("keeper", other_than=old)
    assert [cluster.process(name) for name in ("a", "b")] == before
    cluster.kill("a", supervisor=True)
    cluster.wait_alive("a", other_than=before[0].pid)


def test_there_is_one_keeper_however_many_are_started(cluster: Cluster) -> None:
    start(cluster, sleeper("a"))
    keeper = cluster.pid("keeper")
    for _ in range(3):
        keeper_lock.start_keeper(cluster.home)
    assert cluster.pid("keeper") == keeper
    assert keeper_lock.take(cluster.home) is None


def test_a_process_that_is_no_longer_wanted_is_stopped(cluster: Cluster) -> None:
    start(cluster, sleeper("a"), sleeper("b"))
    gone, kept = mark(cluster.pid("b")), cluster.pid("a")
    start(cluster, sleeper("a"))
    assert wait_gone(gone, 20)
    assert cluster.pid("a") == kept
    until(lambda: [p.name for p in cluster.processes()] == ["keeper", "a"], 20, "b to be gone")


def test_another_command_restarts_the_process(cluster: Cluster) -> None:
    start(cluster, sleeper("a"))
    old = cluster.pid("a")
    start(cluster, sleeper("a", f"x = 1; {SLEEP}"))
    cluster.wait_alive("a", other_than=old)


def test_down_stops_in_order_and_asks_before_it_kills(cluster: Cluster) -> None:
    # Sleeps until it is asked to stop: when it is asked is what the test looks at.
    note = (
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n"
        "    with open('order', 'a') as f: f.write(sys.argv[1])\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "time.sleep(600)\n"
    )
    specs = [
        ProcessSpec(name, "redis", [sys.executable, "-c", note, name], stop_order=order)
        for order, name in ((2, "last"), (0, "first"), (1, "middle"))
    ]
    start(cluster, *specs)
    for spec in specs:
        until((cluster.data / spec.name).exists, 20, f"{spec.name} to listen to signals")
    assert down(cluster.data) == ["keeper", "last", "first", "middle"]
    assert (cluster.data / "order").read_text() == "firstmiddlelast"
    assert cluster.processes() == []


def test_down_ends_what_does_not_listen(cluster: Cluster) -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
    start(cluster, sleeper("a", deaf, grace_s=0.2))
    who = mark(cluster.pid("a"))
    assert set(cluster.down()) == {"keeper", "a"}
    assert wait_gone(who, 1)


def test_down_without_a_keeper_and_with_a_strangers_pid_on_record(cluster: Cluster) -> None:
    """A recorded pid that the kernel gave to somebody else (here: this test) is left alone."""
    start(cluster, sleeper("a"))
    me = mark(os.getpid())
    assert me is not None
    stranger = Mark(me.pid, me.started + 1)
    table.write_running(cluster.home, table.Running("b", "redis", stranger, stranger))
    assert set(cluster.down()) == {"keeper", "a"}
    assert cluster.down() == []


def test_after_everything_was_killed_the_wanted_processes_are_started_again(
    cluster: Cluster,
) -> None:
    start(cluster, sleeper("a"), sleeper("b"))
    everything = [
        who
        for row in cluster.processes()
        for pid in (row.supervisor_pid, row.pid)
        if pid is not None and (who := mark(pid))
    ]
    for who in everything:  # stopped first, so that none revives another meanwhile
        send(who, signal.SIGSTOP)
    for who in everything:
        send(who, signal.SIGKILL)
    assert all(wait_gone(who, 20) for who in everything)
    assert not any(row.alive for row in cluster.processes())
    start(cluster, sleeper("a"), sleeper("b"))
    assert all(row.alive for row in cluster.processes())


def test_a_tied_cluster_ends_with_its_process_however_that_ends(cluster: Cluster) -> None:
    owner = subprocess.Popen([sys.executable, "-c", SLEEP])
    table.write_owner(cluster.home, mark(owner.pid))
    start(cluster, sleeper("a"))
    owner.kill()
    owner.wait()
    until(lambda: not cluster.processes(), 20, "the cluster to end")
    assert list(tagged(f"{cluster.data}#")) == []
    assert table.read_specs(cluster.home) == []


def test_pause_and_resume_reach_the_whole_tree(cluster: Cluster) -> None:
    start(cluster, sleeper("a", LEAVES_ONE))
    until(lambda: len(list(tagged(tag(cluster.data, "a")))) == 2, 20, "a grandchild")
    pids = cluster.pause("a")
    until(lambda: {_state(pid) for pid in pids} == {"T"}, 20, "both to be stopped")
    assert sorted(cluster.resume("a")) == sorted(pids)
    until(lambda: "T" not in {_state(pid) for pid in pids}, 20, "both to continue")


def _state(pid: int) -> str:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def test_a_folder_removed_under_a_running_cluster_ends_it(cluster: Cluster) -> None:
    start(cluster, sleeper("a"))
    running = table.read_running(cluster.home, "a")
    keeper = table.read_running(cluster.home, "keeper")
    assert running is not None
    assert keeper is not None
    shutil.rmtree(cluster.data)
    assert wait_gone(keeper.supervisor, 20)
    assert wait_gone(running.supervisor, 20)
    assert wait_gone(running.child, 20)
    cluster.home.make()
    start(cluster, sleeper("b"))
    assert list(tagged(tag(cluster.data, "a"))) == []
