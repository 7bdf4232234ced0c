"""Lets the tasks of a stage end in their order, so that each meets its process again.

Spark hands out the idle Python workers of a pool first in, first out. When the tasks of a stage end
in the order in which the next stage of their kind starts, task i gets the process that it had: its
state is there, its consumers are positioned, its sinks hold their producers. The stage ends with
its last task anyway, so nobody waits for longer. What one pool's processes share is memory that
their daemon made before it forked them (perseid.worker.daemon).
"""

from __future__ import annotations

import mmap
import time

import numpy as np

TASKS_MAX = 64  # of one stage; above it there are no turns
WAIT_S = 0.5    # a task before may be retried, or not have begun: order is then given up
_STEP_S = 0.001
_AFTER_S = 0.003  # in which Spark notes that the task before has ended

_ended = np.frombuffer(mmap.mmap(-1, TASKS_MAX * 8), dtype=np.int64)  # stage id by task


def end_in_turn(stage: int, task: int) -> None:
    """Returns when all tasks of `stage` before `task` have passed here, or after WAIT_S.

    `stage` must rise from stage to stage of one pool.
    """
    if task >= TASKS_MAX:
        return
    deadline_s = time.monotonic() + WAIT_S
    if task:
        while (_ended[:task] < stage).any() and time.monotonic() < deadline_s:
            time.sleep(_STEP_S)
        time.sleep(_AFTER_S)
    _ended[task] = stage
