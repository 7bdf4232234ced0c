"""Refuses clocks and randomness inside an operator: equal input must give equal output.

The interpreter's profiler detects calls of clocks and of the system's entropy as they happen; the
global generators of `random` and NumPy are compared afterwards. Imports and the time stamps of
`logging` are excused, since they do not affect results. Garbage collection is off meanwhile: test
tools time it, and it may start at any moment.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import random
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from perseid.errors import RefusedError

_CLOCKS = (
    time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter,
    time.perf_counter_ns,
)  # fmt: skip
_DATES = {"now", "utcnow", "today"}
_EXCUSED = ("logging", "importlib", "_frozen_importlib")


@contextlib.contextmanager
def pure(operator: str) -> Iterator[None]:
    """Raises RefusedError when the block reads a clock or draws a random number of its own."""
    found: list[str] = []

    def seen(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and not found and (name := _impure(function)):
            if not _excused(frame):
                found.append(f"{name} ({_place(frame)})")

    generators = random.getstate(), _numpy_state()
    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # collection callbacks of other tools read clocks, and do not matter here
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    if not found and (random.getstate(), _numpy_state()) != generators:
        found.append("a global random generator")
    if found:
        raise RefusedError(
            f"operator {operator} used {found[0]}: a replay would compute something else; take the "
            "time from `self.now` and chance from `self.random`, which are the token's"
        )


def _impure(function: Any) -> str:
    """Returns the name of a clock or a source of randomness, empty for any other function."""
    if function is os.urandom:
        return "os.urandom"
    if function in _CLOCKS:
        return f"time.{function.__name__}"
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{function.__name__}" if function.__name__ in _DATES else ""
    return ""


def _excused(frame: FrameType) -> bool:
    """Whether logging or an import made the call."""
    at: FrameType | None = frame
    while at is not None:
        package, _, _ = str(at.f_globals.get("__name__", "")).partition(".")
        if package in _EXCUSED:
            return True
        at = at.f_back
    return False


def _place(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _numpy_state() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return kind, bytes(np.asarray(keys)), *rest
