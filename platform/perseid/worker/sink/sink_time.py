"""How long a sink's transaction may take, and when an epoch is too large for any. Pure.

An epoch's output is one transaction, and the broker aborts one that lasts too long. If the broker
accepts records steadily but too slowly, the epoch is retried with more time, up to the broker's
limit; beyond that only another epoch size, broker setting or link helps, and the job reports it. A
broker that accepts nothing is unavailable, which is a transient error however long it lasts.
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.topics.transactions import PartitionBatch

FIRST_S = 30.0  # how long the open transaction of a dead owner can block readers
GROWTH = 4.0  # 30 s, 2 min, 8 min, and the broker's limit
BROKER_S = 900.0  # Kafka's default of transaction.max.timeout.ms
_USED = 0.75  # of its time; the client drops records at 5/6
_IDLE = 0.5  # of its time: a broker that has accepted nothing for longer is unavailable


def too_slow(elapsed_s: float, idle_s: float | None, lasting_s: float) -> bool:
    """Whether a failed transaction had used up its time while the broker accepted records.

    `elapsed_s` since its begin, `idle_s` since the broker last accepted a record (None: never).

    >>> [too_slow(26.0, idle, 30.0) for idle in (0.2, 20.0, None)], too_slow(3.0, 0.1, 30.0)
    ([True, False, False], False)
    """
    return idle_s is not None and elapsed_s >= _USED * lasting_s and idle_s <= _IDLE * lasting_s


def longer_s(lasting_s: float, broker_s: float) -> float | None:
    """The time of the next attempt; None when the broker allows no more.

    >>> [longer_s(s, 900.0) for s in (30.0, 120.0, 480.0, 900.0)]
    [120.0, 480.0, 900.0, None]
    """
    return min(lasting_s * GROWTH, broker_s) if lasting_s < broker_s else None


def after_s(lasting_s: float, took_s: float) -> float:
    """The time of the next epoch's transaction, when this one took `took_s`.

    >>> after_s(120.0, 40.0), after_s(120.0, 3.0)
    (120.0, 30.0)
    """
    return lasting_s if took_s > FIRST_S / 2 else FIRST_S


def message(place: str, batches: Sequence[PartitionBatch], lasting_s: float) -> str:
    """The permanent error of an epoch that the broker cannot accept in the longest time."""
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
