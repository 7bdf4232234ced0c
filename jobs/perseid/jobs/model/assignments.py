"""The fragments of a plan: how they are made, and whether they fit a layout. Pure.

Each operator partition has exactly one primary, and each split of a token exactly one reader.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from perseid.errors import PermanentError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import WHOLE, Assignment, Plan

if TYPE_CHECKING:
    from perseid.jobs.model.spread import Spread


def tasks_of(assignment: Assignment, layout: Layout) -> tuple[Task, ...]:
    """The operator partitions of a fragment."""
    if assignment.gids is None:
        return layout.tasks
    wanted = set(assignment.gids)
    return tuple(task for task in layout.tasks if task.gid in wanted)


def cut(plan: Plan, spread: Spread | None) -> Plan:
    """The plan with its job's fragments, all without an owner under the plan's generation.

    `spread` None: the job is one fragment.
    """
    made = (
        Assignment(name, gids, None, plan.generation, from_epoch=plan.base_epoch, split=split)
        for name, gids, split in parts(spread)
    )
    return replace(plan, assignments=tuple(made))


def parts(spread: Spread | None) -> tuple[tuple[str, tuple[int, ...] | None, int | None], ...]:
    """Name, operator partitions and split of each fragment; for None, of the whole job's."""
    if spread is None:
        return ((WHOLE, None, None),)
    return tuple((str(at), share.gids, at) for at, share in enumerate(spread.shares))


def check(plan: Plan, layout: Layout) -> None:
    """Raises PermanentError for a plan under which a partition would run twice or not at all."""
    wrong = [
        *_wrong_ids(plan, layout), *_wrong_tasks(plan, layout), *_wrong_splits(plan),
        *_wrong_replicas(plan), *_wrong_gate(plan),
    ]  # fmt: skip
    if wrong:
        raise PermanentError(
            f"plan {plan.generation} of job {plan.job} does not fit its layout {layout.number}, in "
            "which every operator partition has exactly one primary fragment, and every split: "
            f"{'; '.join(wrong)}. Was its entry in ZooKeeper edited? Restore the job from a "
            f"backup, or begin again with `perseid jobs start {plan.job} --from scratch`"
        )


def check_cut(plan: Plan, spread: Spread | None) -> None:
    """Raises PermanentError for other fragments than those in which this version cuts the job."""
    wanted, found = _shown_cut(cut(plan, spread)), _shown_cut(plan)
    if found != wanted:
        raise PermanentError(
            f"plan {plan.generation} of job {plan.job} has the fragments {found}, and this version "
            f"cuts the job into {wanted}: run the version of perseid that wrote it"
        )


def _shown_cut(plan: Plan) -> str:
    return "; ".join(
        f"{a.fragment} ({'all partitions' if a.gids is None else list(a.gids)}, {_shown(a.split)})"
        for a in plan.primaries
    )


def _wrong_ids(plan: Plan, layout: Layout) -> list[str]:
    known = {task.gid for task in layout.tasks}
    wrong = []
    for fragment, count in Counter(a.fragment for a in plan.assignments).items():
        if count > 1:
            wrong.append(f"fragment {fragment} is there {count} times")
    for assignment in plan.assignments:
        gids = assignment.gids or ()
        unknown = sorted(set(gids) - known)
        if unknown:
            wrong.append(f"fragment {assignment.fragment} has unknown partitions {unknown}")
        if len(set(gids)) < len(gids):
            wrong.append(f"fragment {assignment.fragment} names a partition twice")
    return wrong


def _wrong_tasks(plan: Plan, layout: Layout) -> list[str]:
    fragments: dict[int, list[str]] = {task.gid: [] for task in layout.tasks}
    for primary in plan.primaries:
        for task in tasks_of(primary, layout):
            fragments[task.gid].append(primary.fragment)
    if not plan.primaries:  # also of a layout without partitions
        return ["it has no primary fragment"]
    return [
        f"{task.label} is in {' and '.join(found) if found else 'none'}"
        for task in layout.tasks
        if len(found := fragments[task.gid]) != 1
    ]


def _wrong_splits(plan: Plan) -> list[str]:
    """A token of a job of several fragments has one split for each, numbered from 0 on."""
    splits = [a.split for a in plan.primaries]
    if splits == [None] or set(splits) == set(range(len(splits))):
        return []
    found = ", ".join(f"{a.fragment} reads {_shown(a.split)}" for a in plan.primaries)
    return [f"each of the splits 0 to {len(splits) - 1} has one reader, but {found}"]


def _wrong_replicas(plan: Plan) -> list[str]:
    """Each replica copies one primary, on another worker and in another log."""
    wrong = []
    for fragment, count in Counter(a.fragment for a in plan.replicas).items():
        if count > 1:
            wrong.append(f"fragment {fragment} has {count} replicas")
    for replica in plan.replicas:
        primary = plan.of_fragment(replica.fragment)
        if primary is None:
            wrong.append(f"replica {replica.fragment} is of no fragment")
        elif (replica.gids, replica.split) != (primary.gids, primary.split):
            wrong.append(f"replica {replica.fragment} has other partitions than its primary")
        elif replica.owner == primary.owner:
            wrong.append(f"replica {replica.fragment} is on its primary's worker {primary.owner}")
        elif replica.log == primary.log:
            wrong.append(f"replica {replica.fragment} has the log {replica.log} of its primary")
    return wrong


def _wrong_gate(plan: Plan) -> list[str]:
    """A gate runs other code on a worker without a copy of the job, and has a log of its own."""
    run, owners = plan.gated, {a.owner for a in plan.copies}
    if run is None or (run.muted and run.archive and run.owner not in owners):
        return []
    return [f"gate {run.fragment} has no code of its own, or the worker of a copy: {run.owner}"]


def _shown(split: int | None) -> str:
    return "all splits" if split is None else f"split {split}"
