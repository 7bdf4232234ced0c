"""What a Python worker keeps and gives back, seen in a process with its environment."""

from __future__ import annotations

import os
import subprocess
import sys

import orjson
import pytest

from perseid.worker.process.spare_memory import (
    ANYWAY_S,
    GIVE_BACK_S,
    PART_WRITER,
    WORKERS,
    SpareMemory,
)

MB = 1 << 20
USED = 200 * MB
PROGRAM = """
import sys

import numpy as np
import orjson
import psutil
import pyarrow as pa

from perseid.worker.process.spare_memory import SpareMemory

now_s = 0.0
spare = SpareMemory(lambda: now_s)
size = psutil.Process().memory_info
begun, used, step = size().rss, int(sys.argv[1]), 1 << 18
blocks = [pa.allocate_buffer(step) for _ in range(used // step // 2)]
for block in blocks:
    np.frombuffer(block, np.uint8)[:] = 1
blocks += [np.ones(step, np.uint8) for _ in range(used // step // 2)]
blocks = block = None
seen = []
for now_s in map(float, sys.argv[2:]):
    given = spare.give_back_when_due()
    seen.append([given, size().rss - begun])
print(orjson.dumps(seen).decode())
"""


@pytest.mark.parametrize("environment", [WORKERS, PART_WRITER])
def test_spare_memory_is_kept_until_it_is_given_back(environment: dict[str, str]) -> None:
    times = [GIVE_BACK_S - 1, GIVE_BACK_S, 2 * GIVE_BACK_S - 1, 2 * GIVE_BACK_S]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(USED), *map(str, times)],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    early, due, again, due_again = orjson.loads(ran.stdout)
    assert [early[0], due[0], again[0], due_again[0]] == [False, True, False, True]
    assert early[1] > 0.9 * USED
    assert due[1] < 0.2 * USED


def test_what_the_last_tasks_had_in_hand_is_kept() -> None:
    now_s = 0.0
    spare = SpareMemory(lambda: now_s)
    given = []
    for task_bytes in (100, 51, 50, 50, 30, 24):
        now_s += GIVE_BACK_S
        spare.used(task_bytes)
        spare.used(1)
        given.append(spare.give_back_when_due())
    # 50 are half of the 100 that one had; from then on 50 is the most, and 24 less than half of it.
    assert given == [False, False, True, False, False, True]


def test_at_a_steady_load_it_is_given_back_all_the_same_now_and_then() -> None:
    now_s = 0.0
    spare = SpareMemory(lambda: now_s)
    given_s = []
    while now_s < 2 * ANYWAY_S:
        now_s += 1
        spare.used(100)
        if spare.give_back_when_due():
            given_s.append(now_s)
    assert given_s == [ANYWAY_S, 2 * ANYWAY_S]
