"""Measures how a function's work grows with its input, by counting operations instead of time."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

Case = tuple[float, Callable[[], Any]]  # the size, and the counted call


def case(size: float, decide: Callable[..., Any], *arguments: Any, **more: Any) -> Case:
    """Returns one size with the call that is counted for it."""
    return size, partial(decide, *arguments, **more)


def exponent(cases: Sequence[Case], counter: Callable[[Callable[[], Any]], int]) -> float:
    """The steepest of the steps from size to size, on a double logarithmic scale.

    >>> steps = []
    >>> def quadratic(n):
    ...     steps.append(n * n)
    >>> def counted(run):
    ...     run()
    ...     return steps[-1]
    >>> exponent([case(n, quadratic, n) for n in (10, 20, 40)], counted)
    2.0
    """
    found = [(size, counter(run)) for size, run in cases]
    return max(
        math.log(more / less) / math.log(larger / smaller)
        for (smaller, less), (larger, more) in pairwise(found)
    )


def instructions(run: Callable[[], Any], folder: Path) -> int:
    """Counts the bytecode instructions of a folder's files that `run` executes.

    Work of C code within one instruction, as in `sorted` or numpy, is not counted.
    """
    counted = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        if not frame.f_code.co_filename.startswith(str(folder)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return counted
