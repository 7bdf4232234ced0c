"""`bench restore`: how long a job is away whose state logs are lost, by the size of its state.

The keyed job counts all keys and takes a full checkpoint, then some of what has changed since: a
restore reads the whole chain, as it usually must. Again and again: it is stopped, its state logs
are removed, some records come in, and it is started on the same, warm worker. At the end every key
is compared with a count of the input.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from benches.bench_cluster import Place
from benches.host_stall import steady
from benches.keyed import ROW_OVERHEAD, KeyedJob, Shape, engines, filled
from benches.keys import Keys, ends_of, write
from benches.results import median_row
from benches.timeline import Checkpoint
from perseid.cli import output
from perseid.errors import PermanentError

_KEY_BYTES = 88
_MORE = 4_000  # records that come while it is away
_WAIT_S = 300.0
_CHANGED = 0.1  # records for a delta, as a share of the keys: three deltas are below half the state


@dataclass(frozen=True, slots=True)
class Settings:
    """`sizes` in bytes of a snapshot; `links`: checkpoints of changes after the full one."""

    sizes: tuple[int, ...] = (100_000_000, 1_000_000_000)
    links: int = 3
    runs: int = 5


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a size."""
    return [_size(place, size, settings) for size in settings.sizes]


def _size(place: Place, size: int, settings: Settings) -> dict[str, Any]:
    keys = Keys(max(size // (_KEY_BYTES + ROW_OVERHEAD), 1), _KEY_BYTES)
    source = filled(place, keys, 0)
    rows = []
    with engines(place) as bed:
        job = KeyedJob(place, bed, Shape(keys), source)
        drawn = _chain(place, job, settings.links)
        columns = chain_columns(job.progress().checkpoints[-1], settings.links)
        away = count(drawn, _MORE)
        for number in range(settings.runs):
            what = f"restore of {size / 1e6:g} MB"
            row = steady(what, lambda: _once(place, job, next(away)), output.note)
            output.note(f"run {number + 1} of {settings.runs}: {row}")
            rows.append(row)
        bed.stop(job.names)
        epoch = job.check_state()
        output.note(f"the state of epoch {epoch} is right")
        job.remove()
    place.topics.delete([source])
    each = [row["seconds"] for row in rows]
    return {"system": "perseid", "setting": f"{size / 1e6:g} MB", **median_row(rows), **columns,
            "seconds_each": each}  # fmt: skip


def _chain(place: Place, job: KeyedJob, links: int) -> int:
    """Counts all keys, takes a full checkpoint and `links` more; the records after the keys."""
    keys = job.shape.keys
    job.await_counted(keys.keys)
    _checkpoint(place, job)
    step = max(int(keys.keys * _CHANGED) // keys.partitions, 1) * keys.partitions
    for number in range(links):
        _draw(place, job, number * step, step)
        _checkpoint(place, job)
    return links * step


def _draw(place: Place, job: KeyedJob, drawn: int, more: int, *, counted: bool = True) -> None:
    """Sends `more` records after `drawn` ones."""
    keys = job.shape.keys
    write(place.kafka, job.names.source, keys, ends_of(keys, drawn), ends_of(keys, drawn + more))
    if counted:
        job.await_counted(keys.keys + drawn + more)


def chain_columns(newest: Checkpoint, links: int) -> dict[str, Any]:
    """What a restore reads; PermanentError when it is no chain of so many links. Pure."""
    if newest.links != links:
        raise PermanentError(
            f"the checkpoint of epoch {newest.epoch} changes a chain of {newest.links} files, not "
            f"of {links}: what is restored is not what was to be measured"
        )
    return {"chain": newest.links, "read_bytes": newest.read_bytes}


def _checkpoint(place: Place, job: KeyedJob) -> None:
    from perseid.clocks import SystemClock
    from perseid.jobs.operations import checkpointing, steering
    from perseid.topics.log import KafkaLogReader

    reader = KafkaLogReader(place.kafka)
    above = checkpointing.last_epoch(place.topics, reader, job.names.job)
    reader.close()
    entry, version = checkpointing.ask(job.bed.registry, job.names.job, above)
    steering.put(job.bed.registry, entry, version)
    checkpointing.wait(job.bed.registry, SystemClock(), entry, _WAIT_S)


def _once(place: Place, job: KeyedJob, drawn: int) -> dict[str, Any]:
    """One restore; `drawn` records have come after the keys so far."""
    before = len(job.progress().fragments)
    job.bed.stop(job.names)
    job.forget_log()
    _draw(place, job, drawn, _MORE, counted=False)
    asked_ms = job.resume_from_newest(_WAIT_S)
    job.await_counted(job.shape.keys.keys + drawn + _MORE)
    first_ms = min(time_ms for time_ms, _, _ in job.outputs() if time_ms > asked_ms)
    restore_s = restore_seconds(job, before)
    return {
        "seconds": (first_ms - asked_ms) / 1000,
        "restore_s": restore_s,
        "mb_per_s": round(job.shape.state_bytes / 1e6 / restore_s, 1),
        "state_bytes": job.shape.state_bytes,
    }


def restore_seconds(job: KeyedJob, before: int) -> float:
    """From the fragment's word that it restores to its word that it runs."""
    reported = job.progress().fragments[before:]
    begun = min(time_ms for time_ms, state in reported if state.state == "restoring")
    ran = min(time_ms for time_ms, state in reported if state.state == "running")
    return max(ran - begun, 1) / 1000


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "key_bytes": _KEY_BYTES, "partitions": 4, "workers": 1}
