"""How long a sink's transaction may take, and when an epoch is too much for any. Pure.

An epoch's output goes in one transaction, and the broker aborts one that lasts too long. Where the
broker takes records all the time, only too slowly, the epoch is tried again with more time, up to
what the broker allows; then nothing but another epoch size, broker setting or link helps, and the
job says so. A broker that takes nothing is away: that passes, however long it takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.topics.transactions import PartitionBatch

FIRST_S = 30.0  # for so long can what a dead owner left open hold back readers
GROWTH = 4.0  # 30 s, 2 min, 8 min, and what the broker allows
BROKER_S = 900.0  # Kafka's default of transaction.max.timeout.ms
_USED = 0.75  # of its time; the client gives records up at 5/6
_IDLE = 0.5  # of its time: a broker that has taken nothing for longer is away


def too_slow(elapsed_s: float, idle_s: float | None, lasting_s: float) -> bool:
    """Whether a transaction that failed had used its time up, and the broker took records.

    `elapsed_s` since its begin, `idle_s` since the broker last took a record (None: it never did).

    >>> [too_slow(26.0, idle, 30.0) for idle in (0.2, 20.0, None)], too_slow(3.0, 0.1, 30.0)
    ([True, False, False], False)
    """
    return idle_s is not None and elapsed_s >= _USED * lasting_s and idle_s <= _IDLE * lasting_s


def longer_s(lasting_s: float, broker_s: float) -> float | None:
    """The time of the next try; None when the broker allows no more.

    >>> [longer_s(s, 900.0) for s in (30.0, 120.0, 480.0, 900.0)]
    [120.0, 480.0, 900.0, None]
    """
    return min(lasting_s * GROWTH, broker_s) if lasting_s < broker_s else None


def after_s(lasting_s: float, took_s: float) -> float:
    """The time of the next epoch's transaction, when this one's took so long.

    >>> after_s(120.0, 40.0), after_s(120.0, 3.0)
    (120.0, 30.0)
    """
    return lasting_s if took_s > FIRST_S / 2 else FIRST_S


def said(place: str, batches: Sequence[PartitionBatch], lasting_s: float) -> str:
    """The permanent error of an epoch that the broker cannot take in the longest time."""
    records = sum(len(batch.values) for batch in batches)
    size = sum(batch.keys.nbytes + batch.values.nbytes for batch in batches)
    topics = ", ".join(sorted({batch.topic for batch in batches}))
    return (
        f"{place}: Kafka answers, but takes its {records} records ({size} bytes) for {topics} too "
        f"slowly for one transaction of {lasting_s:.0f} s, the longest that the broker allows; "
        "make epochs smaller (`epoch.maxRecords` in job.yaml), let the broker allow longer ones "
        "(its transaction.max.timeout.ms), or look for a slow link, a full disk or a quota "
        "(producer_byte_rate) between worker and broker"
    )
