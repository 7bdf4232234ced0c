"""A report that only this process can make: repeated until the broker has acknowledged it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from perseid.errors import RetryableError
from perseid.errors.texts import cut, text_of

R = TypeVar("R")
AGAIN_S = 1.0
REJECTIONS_MAX = 60  # a minute, in which an operator may raise the broker's limit

log = logging.getLogger("perseid.worker")


def report_until_acknowledged(
    append: Callable[[R], object],
    record: R,
    unwanted: Callable[[float], bool],
    shorter: Callable[[R], R] = lambda record: record,
) -> None:
    """Appends `record`; after a failure again, until it is in the log or unwanted.

    A transient error is retried without limit: the broker may be unavailable for longer than one
    append waits. A record that the broker rejects is retried as `shorter` makes it, and the error
    is raised after REJECTIONS_MAX rejections. `unwanted` waits for so many seconds and returns
    whether the report is no longer needed.
    """
    rejections = 0
    while True:
        try:
            append(record)
            return
        except RetryableError as error:
            log.warning("a report is not acknowledged yet: %s", error)
        except Exception as error:
            log.error("a report is rejected: %s", cut(text_of(error)))
            rejections += 1
            if rejections > REJECTIONS_MAX:
                raise
            record = shorter(record)
        if unwanted(AGAIN_S):
            return
