"""Which processes may run side by side, on whose data.

All processes of a deployment speak one protocol: the control records, the entries in ZooKeeper, the
state logs and checkpoints, and the names by which writers fence each other. PROTOCOL increases with
any change of these that another version could misread, but not with a change that it can read (a
field that it ignores, a record that it never meets). `tests/unit/registry/test_versions.py` detects
changes. Versions of one protocol may be mixed, so a cluster is upgraded while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

PROTOCOL = 5  # state logs lie below their replica, so an older owner would not be fenced
# Data of these is taken over once their processes are gone: logs stay unread, checkpoints not.
TAKES_OVER = (3, 4)


@dataclass(frozen=True, slots=True)
class Build:
    """The build of one process: perseid's version, and the one protocol it speaks.

    `takes_over`: older protocols whose data it continues.
    """

    version: str
    protocol: int = PROTOCOL
    takes_over: tuple[int, ...] = TAKES_OVER

    def reads(self, protocol: int) -> bool:
        return protocol == self.protocol or protocol in self.takes_over


def this_build() -> Build:
    try:
        return Build(installed("perseid"))
    except PackageNotFoundError:  # run from a source tree
        return Build("unknown")
