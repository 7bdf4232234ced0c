"""Whether a plan gives each operator partition of a layout to exactly one primary. Pure."""

from __future__ import annotations

from collections import Counter

from perseid.errors import PermanentError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import Assignment, Plan


def tasks_of(assignment: Assignment, layout: Layout) -> tuple[Task, ...]:
    """The operator partitions of a fragment."""
    if assignment.gids is None:
        return layout.tasks
    wanted = set(assignment.gids)
    return tuple(task for task in layout.tasks if task.gid in wanted)


def check(plan: Plan, layout: Layout) -> None:
    """Raises PermanentError for a plan under which a partition would run twice or not at all."""
    wrong = [*_wrong_ids(plan, layout), *_wrong_tasks(plan, layout)]
    if wrong:
        raise PermanentError(
            f"plan {plan.generation} of job {plan.job} does not fit its layout {layout.number}, in "
            "which every operator partition has exactly one primary fragment: "
            f"{'; '.join(wrong)}. Was its entry in ZooKeeper edited? Restore the job from a "
            f"backup, or begin again with `perseid jobs start {plan.job} --from scratch`"
        )


def check_fused(plan: Plan, layout: Layout) -> None:
    """The same; raises it also for a job of several fragments, which this version does not run."""
    check(plan, layout)
    if len(plan.assignments) > 1:
        raise PermanentError(
            f"plan {plan.generation} of job {plan.job} has {len(plan.assignments)} fragments, and "
            "this version runs a job as one: run the version of perseid that wrote it"
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
