import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.embedded import identity
from perseid.embedded.identity import send, sweep, tag, tagged, wait_gone
from perseid.records.marks import Mark, alive, mark
from perseid.testing.wait import until

# A child with a grandchild in a session of its own, as Spark's Python daemon has. Both sleep, since
# they are there to be killed: no test waits for them, and none outlives a broken one for long.
TREE = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
    " start_new_session=True); print('up', flush=True); time.sleep(60)"
)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    value = tag(tmp_path, "w1")
    child = subprocess.Popen(
        [sys.executable, "-c", TREE],
        env={**os.environ, identity.TAG: value},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    yield child
    sweep(value)
    child.wait()
    child.stdout.close()


def test_a_mark_names_one_life_of_a_pid() -> None:
    me = mark(os.getpid())
    assert me is not None and alive(me)
    reused = Mark(me.pid, me.started + 1)
    assert not alive(reused)
    assert not send(reused, signal.SIGKILL)  # or this test would not come back


def test_zombies_are_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    who = mark(child.pid)
    assert wait_gone(who, 20)
    assert child.poll() == 0


def test_sweep_kills_descendants_in_other_sessions_and_no_other_process(
    tree: subprocess.Popen[str], tmp_path: Path
) -> None:
    value = tag(tmp_path, "w1")
    until(lambda: len(list(tagged(value))) == 2, 20, "child and grandchild")
    assert list(tagged(tag(tmp_path, "w"))) == []  # a prefix of a name is another name
    assert sweep(tag(tmp_path, "w2")) == 0
    assert sweep(value) == 2
    assert list(tagged(value)) == []
    assert tree.wait(timeout=20) == -signal.SIGKILL


def test_all_processes_of_a_cluster_by_its_folder(
    tree: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert tree.pid in set(tagged(f"{tmp_path}#"))
    assert list(tagged(f"{tmp_path}/other#")) == []
