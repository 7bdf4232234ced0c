"""Checks a job with one output record per input record: ids out = ids in, as multisets.

Unlike running counts, ids show a lost or doubled *intermediate* record. Where records have keys,
the ids of one key must also leave in their input order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from perseid.testing.verify.read import Record, read_topic
from perseid.testing.verify.verdict import Tally, Verdict


class MultisetCheck:
    """Takes all input, then all output, each in offset order per partition.

    Both sides are JSON objects with the unique id in `column`. With `ordered`, order is checked per
    output key if the input records of that key came through one partition.
    """

    def __init__(self, column: str = "id", *, ordered: bool = True) -> None:
        self._column = column
        self._ordered = ordered
        self._sent: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._place: dict[str, tuple[int, int]] = {}  # id -> source partition, offset
        self._newest: dict[tuple[bytes, int], int] = {}  # key, source partition -> offset
        self._tally = Tally()

    def input(self, records: Iterable[Record]) -> None:
        for record in records:
            self._tally.records += 1
            found = self._decode(record)
            if found is None:
                raise ValueError(
                    f"source partition {record.partition} offset {record.offset} has no "
                    f"{self._column!r}: {record.value!r}; the multiset check needs one per record"
                )
            self._sent[found] += 1
            self._place.setdefault(found, (record.partition, record.offset))

    def output(self, record: Record) -> None:
        """Checks one sink record against its predecessors."""
        self._tally.output_records += 1
        where = f"partition {record.partition} offset {record.offset}"
        found = self._decode(record)
        if found is None or found not in self._sent:
            self._tally.add("wrong", f"{where}: nothing sent explains {record.value!r}")
            return
        self._seen[found] += 1
        if self._seen[found] > self._sent[found]:
            self._tally.add("duplicated", f"{where}: {found} again")
        elif self._ordered and record.key is not None:
            self._check_order(record.key, found, where)

    def verdict(self) -> Verdict:
        """Compares the multisets. Call it once, at the end."""
        for missing, times in (self._sent - self._seen).items():
            self._tally.add("lost", f"{missing} never left", times)
        return self._tally.verdict()

    def _check_order(self, key: bytes, found: str, where: str) -> None:
        partition, offset = self._place[found]
        newest = self._newest.get((key, partition), -1)
        if offset < newest:
            self._tally.add(
                "reordered", f"{where}: key {key!r} id {found} of offset {offset} after {newest}"
            )
        self._newest[key, partition] = max(newest, offset)

    def _decode(self, record: Record) -> str | None:
        try:
            return str(json.loads(record.value or b"")[self._column])
        except (ValueError, KeyError, TypeError):
            return None


def verify_multiset(
    bootstrap: str,
    source_topic: str,
    sink_topic: str,
    *,
    column: str = "id",
    ordered: bool = True,
) -> Verdict:
    """Reads both topics from the start to their read-committed ends and compares the ids."""
    check = MultisetCheck(column, ordered=ordered)
    check.input(read_topic(bootstrap, source_topic))
    for record in read_topic(bootstrap, sink_topic):
        check.output(record)
    return check.verdict()
