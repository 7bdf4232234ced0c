"""Who runs which part of a job, and who its replicas, as plain data and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perseid.jobs.model.assignments import tasks_of
from perseid.jobs.model.layout import Layout, Task
from perseid.records import PRIMARY, Plan


def listed(
    plan: Plan | None,
    layout: Layout | None = None,
    done: Mapping[str, int] | None = None,
    states: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Each fragment and replica of a job; empty for a job that is one fragment without a replica.

    `layout`: the plan's; without it the partitions are not known. `done`: last done epochs, and
    `states`: waiting, restoring or running, by `Assignment.name`, as far as they are known.
    """
    all_ = plan.every if plan is not None else ()
    if len(all_) == 1:
        return []
    return [
        {
            "name": own.fragment,
            "role": own.role,
            "state": (states or {}).get(own.name),
            "partitions": partitions_text(tasks_of(own, layout)) if layout is not None else None,
            "owner": own.owner,
            "generation": own.generation,
            "epoch": (done or {}).get(own.name),
        }
        for own in all_
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
        f"{_titled(fragment)}: {fragment['partitions'] or 'partitions unknown'}; "
        f"worker {fragment['owner'] or 'none'}, generation {fragment['generation']}"
        + (f", epoch {epoch}" if epoch is not None else "")
        + (f", {state}" if state is not None else "")
    )


def _titled(fragment: Mapping[str, Any]) -> str:
    name = str(fragment["name"])
    return f"{name} ({fragment['role']})" if fragment["role"] != PRIMARY else name


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " and ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
