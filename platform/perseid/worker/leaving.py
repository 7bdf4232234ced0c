"""How a worker leaves (SIGTERM): it ends its running epochs and hands over every job.

1. The worker marks itself in ZooKeeper as leaving: it gets no new jobs.
2. If configured, each of its jobs takes a checkpoint. A new owner on another host then has little
   to replay; on the same host the state logs are available anyway.
3. Each fragment ends its epoch and starts no further one.
4. Each fragment is stopped and reports it: that hands its job over, and counts as no failure.

A replica ends likewise; its job takes no checkpoint for it.

All of it has a time limit. An epoch that is not done by then is aborted, as if the worker had been
killed: the next owner computes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from perseid.clocks import Clock
from perseid.errors import PerseidError
from perseid.jobs.operations import checkpointing, steering
from perseid.records import JobEntry, WorkerInfo
from perseid.registry import Registry
from perseid.worker.fragment import Fragment

log = logging.getLogger("perseid.worker")

LIMIT_S = 8.0  # `docker stop`, and perseid's supervisor, kill after ten seconds
CHECKPOINT_SHARE = 0.7  # of the limit: the rest is for the epochs
LOOK_S = 0.1


@dataclass(frozen=True)
class Leaving:
    """`limit_s`: for all steps. `checkpoint`: whether each job takes one first."""

    limit_s: float = LIMIT_S
    checkpoint: bool = False


def leave(
    registry: Registry, me: WorkerInfo, fragments: Iterable[Fragment], how: Leaving, clock: Clock
) -> None:
    """Returns when all fragments have ended, or after the limit."""
    running = [fragment for fragment in fragments if not fragment.ended]
    began_s = clock.monotonic_s()
    log.info("leaves; jobs to hand over: %d", len(_epochs(running)))
    try:
        registry.change_worker(replace(me, leaving=True))
        if how.checkpoint:
            asked = [entry for job in _epochs(running).items() for entry in _asked(registry, *job)]
            _await(registry, asked, clock, began_s + how.limit_s * CHECKPOINT_SHARE)
    except PerseidError as error:  # ZooKeeper is unavailable: the epochs can be ended nevertheless
        log.warning("leaves without a word to ZooKeeper: %s", error)
    until_s = began_s + how.limit_s
    for fragment in running:
        fragment.finish()
    for fragment in running:
        if not fragment.finished(until_s - clock.monotonic_s()):
            log.warning("its epoch did not end within %g s and is aborted", how.limit_s,
                        extra={"job": fragment.plan.job, "epoch": fragment.epoch + 1})  # fmt: skip
    for fragment in running:
        fragment.stop(max(1.0, until_s - clock.monotonic_s()))


def _epochs(running: Iterable[Fragment]) -> dict[str, int]:
    """By job, the last completed epoch of its primary that is ahead of the others."""
    found: dict[str, int] = {}
    for fragment in (one for one in running if not one.plan.only.muted):
        job = fragment.plan.job
        found[job] = max(fragment.epoch, found.get(job, fragment.epoch))
    return found


def _asked(registry: Registry, job: str, above: int) -> Iterable[JobEntry]:
    """The entry that requests a checkpoint; none for a job that cannot take one now."""
    try:
        entry, version = checkpointing.ask(registry, job, above)
        steering.put(registry, entry, version)
    except PerseidError as error:
        log.warning("leaves without a checkpoint: %s", error, extra={"job": job})
        return
    yield entry


def _await(registry: Registry, asked: list[JobEntry], clock: Clock, until_s: float) -> None:
    while asked and clock.monotonic_s() < until_s:
        asked = [entry for entry in asked if not _is_answered(registry, entry)]
        if asked:
            clock.sleep(LOOK_S)
    for entry in asked:
        log.warning("leaves before its checkpoint is complete", extra={"job": entry.name})


def _is_answered(registry: Registry, entry: JobEntry) -> bool:
    try:
        found = checkpointing.answered(registry, entry)
    except PerseidError as error:  # stopped or failed meanwhile
        log.warning("leaves without a checkpoint: %s", error, extra={"job": entry.name})
        return True
    if found is not None:
        log.info("took a checkpoint before it leaves", extra={"job": entry.name,
                                                             "epoch": found.epoch})  # fmt: skip
    return found is not None
