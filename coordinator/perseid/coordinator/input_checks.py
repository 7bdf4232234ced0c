"""Input checks on their way into the token log: bounds what a token carries and what waits. Pure.

Each done epoch reports a count and a CRC of what each source task read of each source. A later
token carries them, so that a replay can compare. A token must fit into a record, and the waiting
checks must not grow. If epochs have more checks than tokens can carry, the checks of whole epochs
are dropped and an event reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perseid.coordinator.model import JobState
from perseid.topics.records import InputCheck

CARRIED_BYTES_MAX = 400_000  # by one token; Kafka takes records of 1 MB, and ranges need room, too
WAITING_BYTES_MAX = 2 * CARRIED_BYTES_MAX
_NUMBERS_BYTES = 24  # of one check, at most, without its source's name


def carried(checks: tuple[InputCheck, ...]) -> tuple[InputCheck, ...]:
    """The oldest waiting checks, as many as a token can carry."""
    left = CARRIED_BYTES_MAX
    for count, check in enumerate(checks):
        left -= _bytes(check)
        if left < 0:
            return checks[:count]
    return checks


def with_checks(job: JobState, checks: tuple[InputCheck, ...]) -> JobState:
    """The job with another epoch's checks; above the bound, the oldest epochs' are dropped."""
    waiting = job.inputs.checks + checks
    total = sum(map(_bytes, waiting))
    gone: set[int] = set()
    while total > WAITING_BYTES_MAX and waiting:
        epoch = waiting[0].epoch
        gone.add(epoch)
        total -= sum(_bytes(c) for c in waiting if c.epoch == epoch)
        waiting = tuple(c for c in waiting if c.epoch != epoch)
    seen = max([job.inputs.checks_to, *(c.epoch for c in checks)])
    job = replace(job, inputs=job.inputs.waiting(waiting, seen))
    return job.with_events(_reports(gone, len(checks))) if gone else job


def _reports(epochs: Iterable[int], checks: int) -> str:
    return (
        f"a replay will not compare the input of epochs {min(epochs)} to {max(epochs)}: an epoch "
        f"has {checks} checks (source tasks times sources), and tokens carry "
        f"{CARRIED_BYTES_MAX} bytes of them; a lower `parallelism` makes them fewer"
    )


def _bytes(check: InputCheck) -> int:
    return len(check.source.encode()) + _NUMBERS_BYTES
