"""Looks at outputs that differ from the ledger, record by record where the sink topic has them.

What an epoch has made is in the audit's folder (`worker.sink.kept_outputs`), what it committed in
the window of offsets that the ledger names. Where the topic has that no more, counts and checksums
of the ledger are all that is known, and the report has the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from perseid.engine.comparison import total
from perseid.replay.differences import Differences, Place, Rows, differences
from perseid.replay.findings import Compared, Difference
from perseid.replay.sink_records import NotThere, committed
from perseid.worker.sink.kept_outputs import Kept, kept

if TYPE_CHECKING:
    from perseid.engine.comparison import Comparison, Unequal
    from perseid.replay.causes import Causes
    from perseid.replay.findings import Kind
    from perseid.replay.sink_columns import SinkColumns
    from perseid.replay.sink_records import Reader
    from perseid.replay.tolerances import Tolerances
    from perseid.topics.records import SinkWindow

WINDOWS_MAX = 2_000  # that are looked at record by record in one audit
NONE = pa.array([], pa.binary())


class Look:
    """The outputs of one run that differ. `causes`: are added to; `outputs`: the run's folder."""

    def __init__(
        self, columns: SinkColumns, outputs: Path, reader: Reader, causes: Causes,
        tolerances: Tolerances | None = None,
    ) -> None:  # fmt: skip
        self._columns, self._outputs, self._reader = columns, outputs, reader
        self._tolerances = tolerances
        self.causes = causes
        self._looked: Counter[str] = Counter()  # windows by topic
        self._why: dict[str, str] = {}  # the first reason why one was not looked at, by topic

    def differing(self, found: Iterable[Unequal], near: Iterable[SinkWindow]) -> list[Unequal]:
        """Those of one epoch that differ by more than a tolerance.

        `near`: what the ledgers have of this epoch and of its neighbours.
        """
        windows = list(near)
        return [one for one in found if self._differs(one, windows)]

    def compared(self, comparison: Comparison) -> tuple[Compared, ...]:
        """How each topic was compared."""
        return tuple(
            Compared(
                topic, "records" if self._looked[topic] else "ledger", comparison.records[topic],
                comparison.windows[topic], self._why.get(topic, self._columns.why.get(topic, "")),
            )
            for topic in sorted(comparison.windows.keys() | self._looked.keys())
        )  # fmt: skip

    def _differs(self, one: Unequal, near: list[SinkWindow]) -> bool:
        place = Place(one.operator, one.partition, one.epoch, one.topic, one.topic_partition)
        made = kept(self._outputs, one.epoch, one.operator, one.partition)
        mine = _rows(made.get((one.topic, one.topic_partition), (NONE, NONE)))
        theirs = self._committed(one, near, mine)
        if isinstance(theirs, NotThere):
            self._why.setdefault(one.topic, theirs.text)
            self.causes.add(by_ledger(one))
            return True
        self._looked[one.topic] += 1
        found = differences(place, theirs, mine, self._columns.of(one.topic), self._tolerances)
        for rows in (theirs, mine):
            self.causes.compared(one.operator, rows.keys)
        self.causes.add(found)
        return len(found) > 0

    def _committed(self, one: Unequal, near: list[SinkWindow], mine: Rows) -> Rows | NotThere:
        if one.committed is None:
            return Rows(NONE, NONE, np.array([], np.int64))
        if self._looked.total() >= WINDOWS_MAX:
            return NotThere("mixed", f"{WINDOWS_MAX} windows were looked at, and no more")
        return committed(self._reader, one.committed, near, mine)


def by_ledger(one: Unequal) -> Differences:
    """What counts and checksums show: that something differs, and by how many records."""
    made, before = total(one.made)[0], total(one.committed)[0]
    kind: Kind = "value" if made == before else "missing" if made < before else "added"
    place = Place(one.operator, one.partition, one.epoch, one.topic, one.topic_partition)
    found = Difference(
        kind, one.operator, one.partition, one.epoch, one.topic, one.topic_partition, 0
    )
    return Differences(place, (found,))


def _rows(found: Kept) -> Rows:
    return Rows(*found)
