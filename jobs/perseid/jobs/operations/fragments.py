"""Who runs which part of a job that is several fragments, as plain data and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perseid.jobs.model.assignments import tasks_of
from perseid.jobs.model.layout import Layout, Task
from perseid.records import Plan


def listed(
    plan: Plan | None,
    layout: Layout | None = None,
    done: Mapping[str, int] | None = None,
    states: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Each fragment of a job that has several; empty for a job that is one.

    `layout`: the plan's; without it the partitions are not known. `done`: last done epochs, and
    `states`: waiting, restoring or running, by fragment, as far as they are known.
    """
    if plan is None or len(plan.assignments) == 1:
        return []
    return [
        {
            "name": own.fragment,
            "state": (states or {}).get(own.fragment),
            "partitions": partitions_text(tasks_of(own, layout)) if layout is not None else None,
            "owner": own.owner,
            "generation": own.generation,
            "epoch": (done or {}).get(own.fragment),
        }
        for own in plan.assignments
    ]


def partitions_text(tasks: Iterable[Task]) -> str:
    """Operator partitions in short, as in "counts 0-1, totals 0"."""
    numbers: dict[str, list[int]] = {}
    for task in tasks:
        numbers.setdefault(task.operator, []).append(task.partition)
    return ", ".join(f"{operator} {_ranges(found)}" for operator, found in numbers.items())


def text(fragment: Mapping[str, Any]) -> str:
    """One of `listed` as a line."""
    state, epoch = fragment["state"], fragment["epoch"]
    return (
        f"{fragment['name']}: {fragment['partitions'] or 'partitions unknown'}; "
        f"worker {fragment['owner'] or 'none'}, generation {fragment['generation']}"
        + (f", epoch {epoch}" if epoch is not None else "")
        + (f", {state}" if state is not None else "")
    )


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " and ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
