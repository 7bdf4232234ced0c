"""Whether a gate's differences are of causes that a user has approved, record by record.

A cause is an operator, a kind and a set of columns, as a report lists it. Another operator, kind or
column, and what is not known of a difference, is not approved. Where the sink topic has not the
records of a window, only counts and checksums are known; that is never approved.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perseid.errors import RefusedError
from perseid.records import ApprovedCause
from perseid.replay.differences import Place, Rows, differences
from perseid.replay.looking import NONE
from perseid.replay.sink_records import NotThere, committed
from perseid.worker.sink.kept_outputs import Kept, kept

if TYPE_CHECKING:
    from perseid.engine.comparison import Unequal
    from perseid.replay.findings import Audit
    from perseid.replay.sink_columns import SinkColumns
    from perseid.replay.sink_records import Reader
    from perseid.topics.records import SinkWindow

APPROVED_MAX = 50  # causes; they are in the job's entry and in its plan

Made = Callable[[int, str, int], Mapping[tuple[str, int], Kept]]  # epoch, operator, partition


class Approval:
    """`perseid.worker.sink.audit.Approval`. `made`: what an operator partition's epoch has made."""

    def __init__(
        self, columns: SinkColumns, reader: Reader, approved: Collection[ApprovedCause], made: Made,
        forget: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._columns, self._reader, self._approved = columns, reader, frozenset(approved)
        self._made, self.forget = made, forget

    def refused(self, one: Unequal, near: Sequence[SinkWindow]) -> str:
        made = self._made(one.epoch, one.operator, one.partition)
        mine = Rows(*made.get((one.topic, one.topic_partition), (NONE, NONE)))
        theirs = self._committed(one, near, mine)
        if isinstance(theirs, NotThere):
            return f"records that cannot be compared ({theirs.text})"
        place = Place(one.operator, one.partition, one.epoch, one.topic, one.topic_partition)
        found = differences(place, theirs, mine, self._columns.of(one.topic))
        by_row = ((d.kind, d.fields) for d in found.found)
        others = ((kind, ()) for kind in found.rest)
        for kind, fields in (*by_row, *others):
            if ApprovedCause(one.operator, kind, fields) not in self._approved:
                return text(kind, fields)
        return ""

    def _committed(self, one: Unequal, near: Sequence[SinkWindow], mine: Rows) -> Rows | NotThere:
        if one.committed is None:
            return Rows(NONE, NONE, np.array([], np.int64))
        return committed(self._reader, one.committed, near, mine)


def of_folder(
    columns: SinkColumns, folder: Path, approved: Collection[ApprovedCause], reader: Reader
) -> Approval:
    """With the outputs that the gate's tasks keep in `folder` (`worker.sink.kept_outputs`)."""

    def made(epoch: int, operator: str, partition: int) -> Mapping[tuple[str, int], Kept]:
        return kept(folder, epoch, operator, partition)

    def forget(before_epoch: int) -> None:
        for found in folder.iterdir() if folder.is_dir() else ():
            if int(found.name) < before_epoch:
                shutil.rmtree(found, ignore_errors=True)

    return Approval(columns, reader, approved, made, forget)


def text(kind: str, fields: Sequence[str]) -> str:
    """A cause in words, without its operator."""
    columns = f" of {', '.join(fields)}" if fields else ""
    return {
        "value": f"another value{columns}", "missing": "a record is missing",
        "added": "a record is added", "order": "records in another order",
    }.get(kind, kind)  # fmt: skip


def causes_of(report: Audit) -> tuple[ApprovedCause, ...]:
    """The causes that an approval of the report approves. Raises RefusedError: none can be."""
    if report.verdict != "diverged":
        raise RefusedError(
            f"the report of {report.job} has the verdict {report.verdict}: only what an audit with "
            "the verdict diverged lists can be approved"
        )
    # A gate compares outputs; a cause in states must not approve outputs of its kind and columns.
    causes = [cause for cause in report.causes if not cause.state]
    if report.causes and not causes:
        raise RefusedError(
            f"the report of {report.job} has differences in states alone, and a gate compares "
            "outputs: apply the revision with --gate audit, without an approval"
        )
    for cause in causes:
        if any(d.committed is None and d.made is None for d in cause.samples):
            raise RefusedError(
                f"the report of {report.job} knows differences of operator {cause.operator} by "
                "counts and checksums alone, since its topic had the records no more: audit newer "
                "epochs, as with --last 1h"
            )
    if not 0 < len(causes) <= APPROVED_MAX:
        raise RefusedError(
            f"the report of {report.job} has {len(causes)} causes, and 1 to {APPROVED_MAX} "
            "can be approved; apply a revision that gives other results without a gate"
        )
    return tuple(dict.fromkeys(ApprovedCause(c.operator, c.kind, c.fields) for c in causes))
