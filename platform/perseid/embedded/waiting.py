"""Waiting for a condition with one deadline; used by `up`, and by tests instead of sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from perseid.errors import RetryableError

Found = TypeVar("Found")

POLL_S = 0.05


class WaitedInVain(RetryableError):
    """The condition did not hold in time."""


def until(
    condition: Callable[[], Found | None], timeout_s: float, what: str, poll_s: float = POLL_S
) -> Found:
    """The first truthy value of `condition`; raises WaitedInVain naming `what` after `timeout_s`.

    The condition is checked at least once, and once more after the deadline has passed.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() >= deadline_s
        found = condition()
        if found:
            return found
        if late:
            raise WaitedInVain(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(poll_s)
