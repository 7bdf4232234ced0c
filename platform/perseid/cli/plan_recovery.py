"""`perseid plan recovery`: what to recover first, where, and what when more workers arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perseid.cli import canvas, output, plan_topologies
from perseid.cli.plan_answers import show, timed

if TYPE_CHECKING:
    from perseid.cli.plan_files import RecoveryFile
    from perseid.coordinator.planners.recovery import RecoveryPlan, RecoveryProblem
    from perseid.coordinator.planners.recovery_capacity import Scheduler

Algorithm = Literal["dp", "best-density", "oc"]


def recovery(
    input_file: Annotated[
        str | None, typer.Option("--input", help="Partitions and queries: JSON or YAML file, -.")
    ] = None,
    topology: Annotated[
        list[str] | None,
        typer.Option("--topology", help=f"Instead: {plan_topologies.HELP} May be repeated."),
    ] = None,
    rates: plan_topologies.Rates = None,
    loads: plan_topologies.Loads = None,
    failed: plan_topologies.Failed = None,
    free: plan_topologies.Free = None,
    priorities: plan_topologies.Priorities = None,
    replicated: plan_topologies.Replicated = None,
    shared: plan_topologies.Shared = None,
    algorithm: Annotated[Algorithm, typer.Option(help="Which scheduler.")] = "best-density",
    plot: canvas.Plot = None,
    as_json: output.Json = False,
) -> None:
    """Which failed partitions to recover first when resources are short.

    With workers in the file also where each runs, and the later plans as workers arrive.
    """
    from perseid.coordinator.planners.best_density import best_density
    from perseid.coordinator.planners.recovery import operator_centric, optimal

    given = {
        "--rates": rates, "--loads": loads, "--failed": failed, "--free": free,
        "--priorities": priorities, "--replicated": replicated, "--shared": shared,
    }  # fmt: skip
    file = plan_topologies.recovery_file(input_file, topology or [], given)
    scheduler = {"dp": optimal, "best-density": best_density, "oc": operator_centric}[algorithm]
    if file.free is not None:
        problem = file.problem(file.free)
        plan, elapsed_ms = timed(scheduler, problem)
        later: dict[str, Any] = {}
    else:
        (problem, plan, plans), elapsed_ms = timed(_planned, file, scheduler)
        later = {"plans": plans if as_json else [_described(one) for one in plans]}
    if plot is not None:
        from perseid.cli import plan_plots

        plan_plots.recovery(plot, problem, plan)
    show(
        {
            "algorithm": algorithm,
            "recover": list(plan.recover),
            "queries": list(plan.queries),
            "priority": plan.priority,
            "cost": plan.cost,
            **later,
            "elapsed_ms": elapsed_ms,
        },
        as_json=as_json,
    )


def _planned(
    file: RecoveryFile, scheduler: Scheduler
) -> tuple[RecoveryProblem, RecoveryPlan, list[dict[str, Any]]]:
    """The problem with the cores of all workers, what all plans recover of it, and the plans.

    Each plan counts as installed before the next workers arrive.
    """
    from perseid.coordinator.planners.recovery_capacity import free_cores
    from perseid.coordinator.planners.recovery_schedule import Recovery

    partitions, queries = file.members
    problem = file.problem(sum(free_cores(file.capacity[-1], {}).values()))
    now, plans = Recovery(frozenset(file.failed)), []
    for workers in file.capacity:
        before = now.plan
        now = now.planned(partitions, queries, workers, file.replicated, scheduler)
        if now.plan is None or now.plan is before:
            continue  # without workers nothing fits
        plans.append({
            "number": now.plan.number,
            "rolls_back": now.plan.rolls_back,
            "assigned": dict(now.plan.assigned),
        })  # fmt: skip
        now = now.announced()
        for partition, worker in now.missing.items():
            now = now.installed(partition, worker)
        plans[-1]["queries"] = now.answering(problem.queries, file.replicated)
    columns = [i for i, p in enumerate(problem.failed) if p.id in now.recovered]
    return problem, problem.plan(columns), plans


def _described(plan: dict[str, Any]) -> str:
    where = ", ".join(f"{partition} on {worker}" for partition, worker in plan["assigned"].items())
    return f"{plan['number']}: {where}"
