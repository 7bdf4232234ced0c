"""When fragments move to other workers so that each has its share; which ones: `balancing`.

A move is a planned change, and no failure: the job takes a checkpoint if its newest one is not
young, and then the plan gives the fragments to their new owners, under a new generation. So none is
without an owner. The old owner ends them when it sees that plan, the new one restores from the
checkpoint and runs the few epochs since. All other fragments continue.

Moves are made for jobs that run, one job at a time, and all those of a job at once. By itself the
leader begins once it was uneven for UNEVEN_S, under the same workers all the time, and at most
every MOVE_EVERY_S. For a job whose user asks (`perseid rebalance`) it begins at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import takewhile

from perseid.coordinator import balancing, owning, placement
from perseid.coordinator.actions import Action
from perseid.coordinator.balancing import Move, Placed
from perseid.coordinator.job.transfer import Transfer
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import Balance, ClusterState, JobState
from perseid.coordinator.token_time import Now, Time
from perseid.records import JobEntry, Plan, WorkerInfo

UNEVEN_S = 60.0
MOVE_EVERY_S = 30.0
FRESH_S = 5.0  # the age of a checkpoint that needs no later one
GIVE_UP_S = 60.0  # without a checkpoint: then it is decided again
_BETWEEN = frozenset({Phase.LOADING, Phase.WAITING, Phase.RESTORING})

Step = tuple[JobState, list[Action]]


def is_due(before: Time, now: Now) -> bool:
    """Whether to `look`: with the first event of each second. `before`: the last event's time."""
    return int(before.at_s) != int(now.monotonic_s)


def look(state: ClusterState, now: Now) -> ClusterState:
    """Drops moves that cannot be made any more, and begins those that are due."""
    for job in state.jobs.values():
        obstacle = _obstacle(state, job, now)
        if job.transfer is not None and obstacle:
            dropped = job.with_events(f"not moved, {obstacle}: {job.transfer.text}")
            rests = replace(state.balance, moved_s=now.monotonic_s)
            state = replace(state, balance=rests).with_job(replace(dropped, transfer=None))
    if _is_under_way(state):
        return state
    workers = able(state.workers.values())
    jobs = [_placed(job) for job in _oldest_first(state.jobs.values()) if job.plan is not None]
    wanted = () if _is_unknown(state) else balancing.moves(workers, jobs)
    since_s = _since_s(state.balance, workers, now) if wanted else None
    known = frozenset(workers if since_s is not None else ())
    balance = replace(state.balance, uneven_s=since_s, workers=known)
    if balance != state.balance:
        state = replace(state, balance=balance)
    if since_s is None:
        return state
    asked = [replace(j, may_move=j.may_move and _is_asked(state.jobs[j.job], now)) for j in jobs]
    found = balancing.moves(workers, asked) if any(j.may_move for j in asked) else ()
    if not found and _is_time(balance, now):
        found = wanted
    return _begun(state, found, now) if found else state


def move(state: ClusterState, job: JobState, now: Now) -> Step:
    """Gives the fragments that are to move to their new owners, after the checkpoint for it."""
    transfer, plan, newest = job.transfer, job.plan, job.newest
    if transfer is None or plan is None or newest is None or newest.epoch <= transfer.above:
        return job, []
    if _obstacle(state, job, now) or _has_only_copies(job, plan, transfer.targets):
        return job, []
    job = replace(job, transfer=None).with_events(f"moved: {transfer.text}")
    return owning.hand_over(job, plan, transfer.targets, now, transfer.text)


def able(workers: Collection[WorkerInfo]) -> list[str]:
    """The incarnations that may get fragments."""
    return [worker.incarnation for worker in workers if not worker.leaving]


def placed(plan: Plan, wanted: int, *, may_move: bool) -> Placed:
    """The plan as `balancing` sees it."""
    owned = sorted((a for a in plan.primaries if a.owner is not None), key=lambda a: a.generation)
    replicas = {a.fragment: a.owner for a in plan.replicas if a.owner is not None}
    owners = {a.fragment: a.owner for a in owned if a.owner is not None}
    return Placed(plan.job, owners, min(wanted, len(owners)), replicas, may_move)


def age(entry: JobEntry) -> tuple[int, str]:
    """The order of jobs in `balancing`, the oldest first."""
    return entry.applied_ms, entry.name


def _oldest_first(jobs: Collection[JobState]) -> list[JobState]:
    return sorted(jobs, key=lambda job: age(job.entry))


def _placed(job: JobState) -> Placed:
    assert job.plan is not None
    wanted = job.program.spec.placement.spread if job.program is not None else 1
    return placed(job.plan, wanted, may_move=_may_move(job))


def _may_move(job: JobState) -> bool:
    """Whether it runs, and nothing else changes it now."""
    return (
        job.phase is Phase.RUNNING and job.entry.desired == "running" and not job.wants_switch
        and job.switch.rewind_to is None and not job.health.is_failing
    )  # fmt: skip


def _obstacle(state: ClusterState, job: JobState, now: Now) -> str:
    """Why the job's move cannot be made; empty if it can."""
    transfer = job.transfer
    if transfer is None:
        return ""
    if not _may_move(job):
        return "since the job has changed meanwhile"
    workers, owners = able(state.workers.values()), job.ownership.owners
    if any(target not in workers for target in transfer.targets.values()):
        return "since the worker is gone"
    if any(owners.get(name) != source for name, source in transfer.sources.items()):
        return "since it is elsewhere by now"
    if now.monotonic_s - transfer.since_s > GIVE_UP_S:
        return f"since it has had no checkpoint for {GIVE_UP_S:.0f} s"
    return ""


def _is_under_way(state: ClusterState) -> bool:
    """Whether a job is to move, or has moved and does not run yet."""
    if any(job.transfer is not None for job in state.jobs.values()):
        return True
    last = state.jobs.get(state.balance.job)
    return last is not None and last.phase in _BETWEEN and last.entry.desired == "running"


def _is_unknown(state: ClusterState) -> bool:
    """Whether a new leader does not know yet where all jobs run."""
    return any(
        job.phase is Phase.LOADING and job.plan is None and job.health.unloaded is None
        for job in state.jobs.values()
    )


def _since_s(balance: Balance, workers: Collection[str], now: Now) -> float:
    """Since when it is uneven: a worker that joins or goes begins the time again."""
    since_s = balance.uneven_s
    return now.monotonic_s if since_s is None or balance.workers != set(workers) else since_s


def _is_time(balance: Balance, now: Now) -> bool:
    assert balance.uneven_s is not None
    uneven_s, rested_s = now.monotonic_s - balance.uneven_s, now.monotonic_s - balance.moved_s
    return uneven_s >= UNEVEN_S and rested_s >= MOVE_EVERY_S


def _is_asked(job: JobState, now: Now) -> bool:
    until_ms = job.entry.rebalance_until_ms
    return until_ms is not None and now.wall_ms < until_ms


def _begun(state: ClusterState, found: tuple[Move, ...], now: Now) -> ClusterState:
    """The first job's moves are to be made."""
    job = state.jobs[found[0].job]
    ours = list(takewhile(lambda one: one.job == job.name, found))
    transfer = Transfer(
        {one.fragment: one.source for one in ours}, {one.fragment: one.target for one in ours},
        _above(job, [one.fragment for one in ours], now), now.monotonic_s, ours[0].why,
    )  # fmt: skip
    balance = replace(state.balance, moved_s=now.monotonic_s, job=job.name)
    job = replace(job, transfer=transfer).with_events(f"to be moved: {transfer.text}")
    return replace(state, balance=balance).with_job(job)


def _above(job: JobState, fragments: Collection[str], now: Now) -> int:
    """The epoch above which a checkpoint makes the restore short."""
    newest = job.newest
    if newest is None or job.plan is None:
        return 0
    age_ms = job.chain.time.after(now) - newest.time_ms
    fresh = age_ms <= FRESH_S * 1000 and not _has_only_copies(job, job.plan, fragments)
    return newest.epoch - 1 if fresh else newest.epoch


def _has_only_copies(job: JobState, plan: Plan, fragments: Collection[str]) -> bool:
    """Whether epochs of another revision are in state logs alone: these stay on their hosts."""
    own = (a for a in plan.primaries if a.fragment in fragments)
    return any(placement.only_host(job, a) is not None for a in own)
