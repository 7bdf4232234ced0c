"""`memory:` of an operator: a warning, then a stop before its state exceeds the limit. Pure.

Each partition has an even share of the operator's limit. It is checked after every epoch, when all
partitions have logged and committed it: so a stopped job is between two epochs, and a larger limit
can be applied to it. The job stops one epoch early, if another growth like the last one would
exceed the limit; `epoch.maxRecords` and `epoch.maxBytes` bound what one epoch adds.
"""

from __future__ import annotations

from collections.abc import Mapping

from perseid.errors import PermanentError
from perseid.jobs.model.layout import Layout
from perseid.jobs.model.spec import MEMORY_NEAR, JobSpec
from perseid.topics.records import Token

MIB = 1 << 20


def is_judged(token: Token) -> bool:
    """Whether limits are checked after the token's epoch.

    Not after a final one: it is the last of its revision, and the next may have another limit.
    """
    return not token.final


class MemoryWatch:
    """The state sizes of one fragment's partitions, as their tasks report them."""

    def __init__(self, spec: JobSpec, layout: Layout) -> None:
        self._limits: dict[int, int] = {}
        self._layout = layout
        for task in layout.stateful_tasks:
            operator = spec.operators[task.operator]
            if operator.memory_bytes is not None:
                self._limits[task.gid] = operator.memory_bytes // operator.parallelism
        self._last: dict[int, int] = {}
        self._warned: set[int] = set()

    def look(self, epoch: int, state_bytes: Mapping[int, int]) -> tuple[str, ...]:
        """The warnings to report after `epoch`; PermanentError when a limit is reached.

        `state_bytes`: by gid.
        """
        warnings = []
        for gid, size in state_bytes.items():
            limit = self._limits.get(gid)
            if limit is None:
                continue
            growth = max(0, size - self._last.get(gid, size))
            self._last[gid] = size
            if size < MEMORY_NEAR * limit:
                self._warned.discard(gid)
                continue
            if size + growth > limit:
                raise PermanentError(self._stop(gid, epoch, size, growth))
            if gid not in self._warned:
                self._warned.add(gid)
                warnings.append(f"warning: {self._usage(gid, epoch, size)}")
        return tuple(warnings)

    def _usage(self, gid: int, epoch: int, size: int) -> str:
        task, limit = self._layout.task(gid), self._limits[gid]
        return (
            f"operator {task.operator}, partition {task.partition}: its state has {_size(size)} of "
            f"the {_size(limit)} that `memory:` gives it, after epoch {epoch}"
        )

    def _stop(self, gid: int, epoch: int, size: int, growth: int) -> str:
        more = f", and the last epoch has added {_size(growth)}" if growth else ""
        return (
            f"{self._usage(gid, epoch, size)}{more}: another epoch would not fit. The job is "
            f"stopped after epoch {epoch}, its state is kept. Raise `memory:` of operator "
            f"{self._layout.task(gid).operator} in job.yaml (all its partitions share it), or let "
            "the operator keep less, and `perseid jobs apply` it"
        )


def _size(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size >= MIB else f"{size} bytes"
