"""`perseid rebalance`: fragments move to the workers that have too few at once.

The request is a time in the jobs' entries: until then the leader, whichever it is, moves their
fragments without the wait that it has else (`rebalancing`). Which ones follows from the plans of
all jobs, by `balancing`, here and there. So the request is answered when that finds no more moves,
and what has moved runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perseid.coordinator import balancing, rebalancing
from perseid.coordinator.balancing import Move, Placed
from perseid.errors import PermanentError, RefusedError
from perseid.jobs.operations import applying, steering
from perseid.jobs.operations.applying import Cluster
from perseid.records import JobEntry, Plan
from perseid.registry import Registry

VALID_S = 120.0  # at least: so long leaders follow a request
LOOK_S = 0.5  # between looks at all plans


def rebalance(
    cluster: Cluster, job: str | None, cache: Path, wait_s: float | None, *, dry_run: bool = False
) -> dict[str, Any]:
    """Moves fragments of `job`, or of all jobs, and waits until they run if `wait_s` is set.

    `cache`: for the jobs' archives. With `dry_run` nothing is written. Raises UnknownJob;
    RefusedError if `job` is not to run; PermanentError when the time is over.
    """
    registry, spreads = cluster.registry, dict[str, int]()
    if job is not None:
        _refuse_stopped(steering.stored_entry(registry, job).value)
    before = _look(cluster, cache, spreads)
    found = before.moves(job)
    if not found:
        _refuse_blocked(before, job)
    if dry_run or not found:
        return _shown("would be moved" if found else "even", found)
    until_ms = cluster.clock.wall_ms() + round(1000 * max(VALID_S, wait_s or 0.0))
    for name in before.scope(job):
        _ask(registry, name, until_ms)
    if wait_s is None:
        return _shown("asked for", found)
    deadline_s = cluster.clock.monotonic_s() + wait_s
    while True:
        cluster.clock.sleep(LOOK_S)
        now = _look(cluster, cache, spreads)
        changed = [name for name in before.scope(job) if now.plans.get(name) != before.plans[name]]
        if not now.moves(job) and now.running.issuperset(changed):
            return _shown("moved", _made(before, now, changed))
        if cluster.clock.monotonic_s() >= deadline_s:
            raise PermanentError(_late(registry, wait_s, now.moves(job), changed))


@dataclass(frozen=True, slots=True)
class _Look:
    """The jobs that are to run, at one moment. `running`: those that do, under their plans."""

    plans: Mapping[str, Plan]
    running: frozenset[str]
    workers: Sequence[str]
    placed: Sequence[Placed]

    def scope(self, job: str | None) -> list[str]:
        return sorted(self.plans) if job is None else [job]

    def moves(self, job: str | None, *, all_run: bool = False) -> tuple[Move, ...]:
        """Of `job` alone, if one is named. `all_run`: as if every job ran."""
        among = [
            replace(one, may_move=job in (None, one.job) and (one.may_move or all_run))
            for one in self.placed
        ]
        return balancing.moves(self.workers, among)


def _look(cluster: Cluster, cache: Path, spreads: dict[str, int]) -> _Look:
    """`spreads`: of the archives that were read so far."""
    registry = cluster.registry
    found = registry.look()
    entries = sorted(found.entries.values(), key=rebalancing.age)
    plans = {e.name: found.plans[e.name] for e in entries if _is_placed(e, found.plans)}
    running = frozenset(
        name for name, plan in plans.items()
        if plan.archive == found.entries[name].archive and _runs(registry, plan)
    )  # fmt: skip
    placed = [
        rebalancing.placed(plan, _spread(cluster, plan, cache, spreads), may_move=name in running)
        for name, plan in plans.items()
    ]
    return _Look(plans, running, rebalancing.able(registry.workers()), placed)


def _is_placed(entry: JobEntry, plans: Mapping[str, Plan]) -> bool:
    plan = plans.get(entry.name)
    return plan is not None and plan.job_uuid == entry.uuid and entry.desired == "running"


def _runs(registry: Registry, plan: Plan) -> bool:
    """Whether it runs and does not fail again and again."""
    status, failures = registry.status(plan.job), registry.failures(plan.job)
    fails = failures is not None and failures.job_uuid == plan.job_uuid and failures.count > 0
    return (
        status is not None and status.job_uuid == plan.job_uuid and status.state == "running"
        and status.generation == plan.generation and not fails
    )  # fmt: skip


def _spread(cluster: Cluster, plan: Plan, cache: Path, spreads: dict[str, int]) -> int:
    if len(plan.primaries) == 1:
        return 1
    if plan.archive not in spreads:
        spec = applying.revision(cluster, plan.archive, cache).spec
        spreads[plan.archive] = spec.placement.spread
    return spreads[plan.archive]


def _refuse_stopped(entry: JobEntry) -> None:
    if entry.desired != "running":
        raise RefusedError(
            f"{entry.name} is {entry.desired}, so no worker runs it; "
            f"`perseid jobs start {entry.name}` starts it where there is most room"
        )


def _refuse_blocked(look: _Look, job: str | None) -> None:
    """RefusedError if something would move and may not, since its job does not run now."""
    blocked = sorted({move.job for move in look.moves(job, all_run=True)} - look.running)
    if blocked:
        raise RefusedError(
            f"fragments of {', '.join(blocked)} move when it runs and nothing else changes it; "
            f"`perseid jobs show {blocked[0]}` shows what it does now"
        )


def _ask(registry: Registry, job: str, until_ms: int) -> None:
    stored = registry.job_entry(job)
    if stored is not None and stored.value.desired == "running":
        asked = replace(stored.value, rebalance_until_ms=until_ms)
        steering.put(registry, asked, stored.version)


def _made(before: _Look, now: _Look, changed: Collection[str]) -> list[Move]:
    """The moves that were made, also those that a death made meanwhile."""
    found = []
    for name in changed:
        for own in before.plans[name].primaries:
            after = now.plans[name].of_fragment(own.fragment) if name in now.plans else None
            if after is not None and after.owner != own.owner:
                why = now.plans[name].reason
                found.append(Move(name, own.fragment, own.owner or "", after.owner or "", why))
    return found


def _late(
    registry: Registry, wait_s: float, left: Sequence[Move], changed: Collection[str]
) -> str:
    names = sorted({*changed, *(move.job for move in left)})
    hint = f"`perseid jobs show {names[0]}` shows why" if registry.leader() is not None else (
        "no coordinator leads; `perseid status` shows the processes"
    )  # fmt: skip
    return (
        f"the request is written, but after {wait_s:g} s {len(left)} fragments are still to move, "
        f"or some restore ({', '.join(names)}); {hint}"
    )


def _shown(state: str, found: Sequence[Move]) -> dict[str, Any]:
    moves = [
        {"job": m.job, "fragment": m.fragment, "from": m.source, "to": m.target, "why": m.why}
        for m in found
    ]
    return {"state": state, "moves": moves}
