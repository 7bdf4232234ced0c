"""`perseid plan`: what the planners would decide for a topology, a failure, a list of sizes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import typer

from perseid.cli import output
from perseid.errors import UsageError

app = typer.Typer(rich_markup_mode=None)
_Found = TypeVar("_Found")

TopologyOption = Annotated[
    str, typer.Option("--topology", help="JSON or YAML file, - for stdin.", show_default=False)
]
InputOption = Annotated[
    str, typer.Option("--input", help="JSON or YAML file, - for stdin.", show_default=False)
]


@app.command("replication", epilog="Example: plan replication --topology t.yaml --budget 4")
def replication(
    topology: TopologyOption,
    budget: Annotated[int, typer.Option(help="Partitions that can be replicated.")],
    algorithm: Annotated[
        Literal["dp", "greedy", "structure-aware"], typer.Option(help="Which planner.")
    ] = "structure-aware",
    as_json: output.Json = False,
) -> None:
    """Which partitions to replicate so that most output survives the worst failure."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.replication import greedy, optimal
    from perseid.coordinator.planners.structure_aware import structure_aware

    read = plan_files.topology(topology)
    planner = {"dp": optimal, "greedy": greedy, "structure-aware": structure_aware}[algorithm]
    plan, elapsed_ms = _timed(planner, read, budget)
    _show(
        {
            "algorithm": algorithm,
            "budget": budget,
            "replicate": [list(partition) for partition in plan.replicate],
            "fidelity": plan.fidelity,
            "fidelity_none_replicated": 0.0,
            "elapsed_ms": elapsed_ms,
        },
        as_json=as_json,
    )


@app.command("adapt", epilog="Example: perseid plan adapt --plan now.json --rates t.yaml --moves 2")
def adapt(
    plan: Annotated[str, typer.Option(help="What `plan replication --json` printed.")],
    rates: Annotated[str, typer.Option(help="The topology with the new rates.")],
    moves: Annotated[int, typer.Option(help="Replicas that may be started.")],
    gain: Annotated[float, typer.Option(help="Fidelity that a change must bring.")] = 0.02,
    as_json: output.Json = False,
) -> None:
    """The next replication plan when rates have changed."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.adaptation import adapt as decide

    running = plan_files.read(plan, plan_files.PlanFile)
    now = plan_files.topology(rates)
    found, elapsed_ms = _timed(decide, now, running.replicate, running.budget, moves, gain)
    _show(
        {
            "budget": running.budget,
            "replicate": [list(partition) for partition in found.plan.replicate],
            "fidelity": found.plan.fidelity,
            "start": [list(partition) for partition in found.start],
            "stop": [list(partition) for partition in found.stop],
            "elapsed_ms": elapsed_ms,
        },
        as_json=as_json,
    )


@app.command(
    "fidelity", epilog="""Example: plan fidelity --topology t.yaml --failed '[["a", 0]]'"""
)
def fidelity(
    topology: TopologyOption,
    failed: Annotated[str, typer.Option(help='JSON, e.g. [["src", 0]].')] = "[]",
    as_json: output.Json = False,
) -> None:
    """How much of the output is left when partitions have failed."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.fidelity import fidelities, losses
    from perseid.coordinator.planners.mc_trees import count

    read = plan_files.topology(topology)
    mask = read.mask(read.number(*partition) for partition in _partitions(failed))
    lost = losses(read, mask)
    loss = {n.name: [round(float(x), 12) for x in lost[read.slice(n.name)]] for n in read.nodes}
    _show(
        {
            "fidelity": float(fidelities(read, mask)),
            "loss": {name: values for name, values in loss.items() if any(values)},
            "mc_trees": count(read),
        },
        as_json=as_json,
    )


@app.command("recovery", epilog="Example: perseid plan recovery --input failed.yaml")
def recovery(
    input_file: InputOption,
    algorithm: Annotated[
        Literal["dp", "best-density", "oc"], typer.Option(help="Which scheduler.")
    ] = "best-density",
    as_json: output.Json = False,
) -> None:
    """Which failed partitions to recover first when resources are short."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.best_density import best_density
    from perseid.coordinator.planners.recovery import operator_centric, optimal

    problem = plan_files.recovery(input_file)
    scheduler = {"dp": optimal, "best-density": best_density, "oc": operator_centric}[algorithm]
    plan, elapsed_ms = _timed(scheduler, problem)
    _show(
        {
            "algorithm": algorithm,
            "recover": list(plan.recover),
            "queries": list(plan.queries),
            "priority": plan.priority,
            "cost": plan.cost,
            "elapsed_ms": elapsed_ms,
        },
        as_json=as_json,
    )


@app.command("thresholds", epilog="Example: plan thresholds --theta 1e5 --l 1000 --gamma 1000")
def thresholds(
    theta: Annotated[float, typer.Option(help="Theta: allowed state divergence.")],
    items: Annotated[int, typer.Option("--l", help="L: allowed unprocessed items.")],
    gamma: Annotated[int, typer.Option(help="Gamma: allowed lost output items.")],
    failures: Annotated[int, typer.Option(help="Recoveries so far.")] = 0,
    copies: Annotated[int, typer.Option(help="Copies of the operator.")] = 1,
    stage: Annotated[int, typer.Option(help="Its place in the pipeline.")] = 1,
    stages: Annotated[int, typer.Option(help="Operators in the pipeline.")] = 1,
    beta: Annotated[float, typer.Option(help="Most outputs of one item.")] = 1.0,
    as_json: output.Json = False,
) -> None:
    """The thresholds of approximate fault tolerance after failures."""
    from perseid.coordinator.planners.thresholds import Bounds, Share
    from perseid.coordinator.planners.thresholds import thresholds as decide

    found = decide(Bounds(theta, items, gamma), failures, Share(copies, stage, stages, beta))
    _show(
        {"theta": found.theta, "l": found.l, "gamma": found.gamma, "exact": found.exact},
        as_json=as_json,
    )


@app.command("checkpoint", epilog="Example: perseid plan checkpoint --sizes sizes.csv --period 200")
def checkpoint(
    sizes: Annotated[str, typer.Option(help="CSV with time_s,operator,bytes; - for stdin.")],
    period: Annotated[float, typer.Option(help="Seconds; one checkpoint in each.")],
    as_json: output.Json = False,
) -> None:
    """When checkpoints would be taken: profiled on these sizes, and played on them again."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners import checkpoint_timing as timing

    read = plan_files.sizes(sizes)
    learned = timing.profile(read, period)
    plans = {
        "checkpoints": timing.played(read, period, timing.Stopping(learned)),
        "first_minimum": timing.played(read, period, timing.FirstMinimum(learned)),
        "oracle": timing.oracle(read, period),
        "fixed": timing.fixed(read, period),
    }
    if as_json:
        output.document(plans)
        return
    rows = [
        [number, *(f"{p.bytes:,.0f} at {p.time_s:g} s" for p in row)]
        for number, row in enumerate(zip(*plans.values(), strict=True), start=1)
    ]
    output.table(["period", *plans], rows)


@app.command("placement", epilog="Example: perseid plan placement --input placement.yaml")
def placement(input_file: InputOption, as_json: output.Json = False) -> None:
    """Where the copies of replicated partitions run."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.replica_placement import place_replicas

    read = plan_files.read(input_file, plan_files.PlacementFile)
    primaries = {(name, number): worker for name, number, worker in read.primaries}
    found = place_replicas(primaries, read.replicate, read.workers)
    replicas = [[*partition, worker] for partition, worker in found.items()]
    _show({"replicas": replicas}, as_json=as_json)


@app.command("mttf", epilog="Example: perseid plan mttf --input placement.yaml")
def mttf(input_file: InputOption, as_json: output.Json = False) -> None:
    """How long a placement lasts on average until something is lost."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.mttf import mean_time_to_failure_s

    read = plan_files.read(input_file, plan_files.PlacementFile)
    if read.worker_mttf_s is None or read.worker_mttr_s is None:
        raise UsageError(f"{input_file}: worker_mttf_s and worker_mttr_s are needed, in seconds")
    found = mean_time_to_failure_s(
        {(name, number): worker for name, number, worker in read.primaries},
        {(name, number): worker for name, number, worker in read.replicas},
        read.worker_mttf_s,
        read.worker_mttr_s,
    )
    _show({"mttf_s": found, "mttf_days": found / 86_400}, as_json=as_json)


def _partitions(text: str) -> list[tuple[str, int]]:
    try:
        return [(str(name), int(number)) for name, number in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"--failed {text!r}: expected JSON like [[\"src\", 0], [\"join\", 1]]"
        ) from error


def _timed(decide: Callable[..., _Found], *arguments: Any) -> tuple[_Found, float]:
    """The decision, and how many milliseconds it took."""
    started_s = time.perf_counter()
    found = decide(*arguments)
    return found, round((time.perf_counter() - started_s) * 1000, 3)


def _show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.document(found)
    else:
        output.fields({name: _plain(value) for name, value in found.items()})


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > 1 and isinstance(value[1], int):
        name, partition, *where = value
        return " on ".join([f"{name}[{partition}]", *where])
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value) or "-"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_plain(item)}" for name, item in value.items()) or "-"
    return str(value)
