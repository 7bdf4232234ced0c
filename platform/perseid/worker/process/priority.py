"""A session's share of the CPU, as a nice value.

With autogroup (sched(7)) Linux applies a process's nice value within one session only, and shares
the CPU among sessions, of which each has a nice value too. A worker with its JVM and its Python
processes is one session.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from pathlib import Path

log = logging.getLogger("perseid.worker")

GROUP = Path("/proc/self/autogroup")
_TRIES = 20
_AGAIN_S = 0.1  # Linux allows a host's users one change in that time


def set_share(nice: int, group: Path = GROUP) -> bool:
    """Sets it for the whole session, which this process must lead; False if that is not possible.

    A session that the process does not lead has other processes, so its share stays as it is.
    """
    if os.getsid(0) != os.getpid():
        return False
    for _ in range(_TRIES):
        try:
            group.write_text(str(nice))
            return True
        except FileNotFoundError:  # there is no autogroup here
            return False
        except OSError as error:
            if error.errno != errno.EAGAIN:
                log.warning("the session's nice value cannot be %d: %s", nice, error)
                return False
        time.sleep(_AGAIN_S)
    log.warning("the session's nice value cannot be %d: others change theirs all the time", nice)
    return False
