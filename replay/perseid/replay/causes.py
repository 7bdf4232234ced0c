"""Groups differences by cause: operator, state, kind, and the columns that differ. Pure.

Takes any number of differences and needs bounded memory: counts, the number of different keys and
epochs (`distinct`), and a few samples of each cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pyarrow as pa

from perseid.replay.differences import Differences, Place
from perseid.replay.distinct import Distinct
from perseid.replay.findings import SAMPLES_MAX, Cause, Difference, Kind

CAUSES_MAX = 200  # of further sets of columns the differences count as of no known columns


@dataclass(slots=True)
class _Group:
    """What is known of one cause."""

    first_epoch: int
    records: int = 0
    keys: Distinct = field(default_factory=Distinct)
    epochs: Distinct = field(default_factory=Distinct)
    samples: list[Difference] = field(default_factory=list)

    def add(self, epoch: int, keys: pa.BinaryArray) -> None:
        self.first_epoch = min(self.first_epoch, epoch)
        self.records += len(keys)
        self.keys.add(keys)
        self.epochs.add(pa.array([str(epoch)]))


class Causes:
    """See the module's docstring. The order in which differences arrive does not matter to counts.

    Samples are the first ones that arrive. Differences beyond those that were looked at one by one
    (`Differences.rest`) are of no known columns.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, Kind, tuple[str, ...]], _Group] = {}
        self._compared: defaultdict[str, Distinct] = defaultdict(Distinct)
        self._entries: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self.records = 0

    def compared(self, operator: str, keys: pa.BinaryArray) -> None:
        """The keys of records that were compared, of either side, equal or not."""
        self._compared[operator].add(keys)

    def compared_state(self, operator: str, state: str, epoch: int, entries: int) -> None:
        """The number of entries of one partition's state that were compared at a checkpoint."""
        self._entries[operator, state][epoch] += entries

    def add(self, found: Differences) -> None:
        place = found.place
        by_cause: defaultdict[tuple[Kind, tuple[str, ...]], list[Difference]] = defaultdict(list)
        for difference in found.found:
            by_cause[difference.kind, difference.fields].append(difference)
        for (kind, fields), some in by_cause.items():
            group = self._group(place, kind, fields)
            group.add(place.epoch, pa.array([_key(d) for d in some], pa.binary()))
            group.samples += some[: SAMPLES_MAX - len(group.samples)]
        for kind, keys in found.rest.items():
            self._group(place, kind, ()).add(place.epoch, keys)
        self.records += len(found)

    def found(self) -> tuple[Cause, ...]:
        """By first epoch, of one epoch the largest first."""
        causes = [
            Cause(
                operator, kind, fields, group.first_epoch, group.epochs.count, group.records,
                group.keys.count, self._share(operator, state, group), tuple(group.samples), state,
            )
            for (operator, state, kind, fields), group in self._groups.items()
        ]  # fmt: skip
        return tuple(sorted(causes, key=lambda c: (c.first_epoch, -c.records, c.operator, c.kind)))

    def _group(self, place: Place, kind: Kind, fields: tuple[str, ...]) -> _Group:
        cause = place.operator, place.state, kind, fields
        if cause not in self._groups and len(self._groups) >= CAUSES_MAX:
            cause = place.operator, place.state, kind, ()
        return self._groups.setdefault(cause, _Group(place.epoch))

    def _share(self, operator: str, state: str, group: _Group) -> float:
        """At most 1: both counts may be estimates. Of a state, of its entries when it had most."""
        keys = self._compared[operator].count
        if state:
            keys = max(self._entries[operator, state].values(), default=0)
        return min(1.0, group.keys.count / keys) if keys else 0.0


def _key(difference: Difference) -> bytes | None:
    record = difference.committed or difference.made
    return None if record is None else record.key
