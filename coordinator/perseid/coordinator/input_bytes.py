"""How many bytes an epoch reads: enforces `epoch.maxBytes` by the mean record size. Pure.

Kafka reports how many records wait, not their sizes. So records of an unmeasured source count as
large, and every epoch that read some measures their mean size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perseid.topics.records import EpochDone

FIRST_BYTES = 512 * 1024  # of an unmeasured record: half of a broker's default maximum
KEPT = 0.9  # of a mean after an epoch with smaller records: large ones may come again


def seen(known: Mapping[str, float], done: EpochDone) -> Mapping[str, float]:
    """Mean bytes of a record by source after this epoch; a larger mean replaces it at once.

    >>> from perseid.topics.records import InputCheck
    >>> checks = (InputCheck(5, 0, "lines", 10, 0), InputCheck(5, 1, "lines", 10, 0))
    >>> done = EpochDone("u", 1, "w", 5, 5, 20, 0, 90, checks=checks, bytes_in={"lines": 2000})
    >>> [seen({"lines": before}, done)["lines"] for before in (50.0, 1000.0)]
    [100.0, 900.0]
    """
    rows: Counter[str] = Counter()
    for check in done.checks:
        rows[check.source] += check.count
    read = {s: total / rows[s] for s, total in done.bytes_in.items() if rows[s]}
    return {**known, **{s: max(mean, KEPT * known.get(s, 0.0)) for s, mean in read.items()}}


def within(
    shares: Mapping[tuple[str, int], int], known: Mapping[str, float], bytes_max: int
) -> Mapping[tuple[str, int], int]:
    """The records by (source, partition), all scaled down by one factor if they would be too large.

    A partition keeps at least one record, however large, so that the job always makes progress.

    >>> within({("lines", 0): 100, ("lines", 1): 300}, {"lines": 10.0}, 2000)
    {('lines', 0): 50, ('lines', 1): 150}
    """
    expected = sum(n * known.get(source, FIRST_BYTES) for (source, _), n in shares.items())
    if expected <= bytes_max:
        return shares
    return {key: max(1, int(n * bytes_max / expected)) for key, n in shares.items() if n}


def records_max(done: EpochDone, bytes_max: int) -> int | None:
    """How many records like this epoch's fit into `bytes_max`; None if the epoch read no bytes."""
    total = sum(done.bytes_in.values())
    return max(1, done.rows_in * bytes_max // total) if total else None
