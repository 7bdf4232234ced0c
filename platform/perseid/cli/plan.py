"""`perseid plan`: the planners' decisions for a topology, a failure or a list of sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perseid.cli import canvas, output, plan_recovery, plan_topologies, plan_tuning
from perseid.cli.plan_answers import show, timed
from perseid.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from perseid.coordinator.planners.mc_trees import TreeCount

app = typer.Typer(rich_markup_mode=None)
app.command("thresholds", epilog="Example: plan thresholds --theta 1e5 --l 1000 --gamma 1000")(
    plan_tuning.thresholds
)
app.command("checkpoint", epilog="Example: perseid plan checkpoint --sizes sizes.csv --period 200")(
    plan_tuning.checkpoint
)
app.command(
    "recovery",
    epilog="""Example: plan recovery --topology my-job --failed '[["counts", 0]]' --free 1.5""",
)(plan_recovery.recovery)

TopologyOption = Annotated[
    str, typer.Option("--topology", help=plan_topologies.HELP, show_default=False)
]
InputOption = Annotated[
    str, typer.Option("--input", help="JSON or YAML file, - for stdin.", show_default=False)
]


@app.command("replication", epilog="Example: plan replication --topology t.yaml --budget 4")
def replication(
    topology: TopologyOption,
    budget: Annotated[int, typer.Option(help="Partitions that can be replicated.")],
    rates: plan_topologies.Rates = None,
    algorithm: Annotated[
        Literal["dp", "greedy", "structure-aware"], typer.Option(help="Which planner.")
    ] = "structure-aware",
    plot: canvas.Plot = None,
    as_json: output.Json = False,
) -> None:
    """Which partitions to replicate so that most output survives the worst failure."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.replication import greedy, optimal
    from perseid.coordinator.planners.structure_aware import structure_aware

    read = plan_files.topology(topology, rates)
    planner = {"dp": optimal, "greedy": greedy, "structure-aware": structure_aware}[algorithm]
    plan, elapsed_ms = timed(planner, read, budget)
    if plot is not None:
        from perseid.cli import topology_plot

        replicated = [read.number(*partition) for partition in plan.replicate]
        topology_plot.draw(
            plot, read, {"replicated": replicated, "not replicated": range(read.partitions)},
            f"fidelity {plan.fidelity:.4g} when all else has failed ({algorithm})",
        )  # fmt: skip
    show(
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
    rates: Annotated[
        str, typer.Option(help="The topology with the new rates; with --topology its rates alone.")
    ],
    moves: Annotated[int, typer.Option(help="Replicas that may be started.")],
    topology: Annotated[
        str | None, typer.Option("--topology", help="A job's folder or job.yaml.")
    ] = None,
    gain: Annotated[float, typer.Option(help="Fidelity that a change must bring.")] = 0.02,
    plot: canvas.Plot = None,
    as_json: output.Json = False,
) -> None:
    """The next replication plan when rates have changed."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.adaptation import adapt as decide

    running = plan_files.read(plan, plan_files.PlanFile)
    files = (rates,) if topology is None else (topology, rates)
    now = plan_files.topology(*files)
    found, elapsed_ms = timed(decide, now, running.replicate, running.budget, moves, gain)
    if plot is not None:
        from perseid.cli import topology_plot

        moved = {"replica started": found.start, "replica stopped": found.stop,
                 "replicated": found.plan.replicate}  # fmt: skip
        groups = {name: [now.number(*p) for p in some] for name, some in moved.items()}
        topology_plot.draw(
            plot, now, {**groups, "not replicated": range(now.partitions)},
            f"fidelity {found.plan.fidelity:.4g} when all else has failed",
        )  # fmt: skip
    show(
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
    rates: plan_topologies.Rates = None,
    plot: canvas.Plot = None,
    as_json: output.Json = False,
) -> None:
    """How much of the output is left when partitions have failed."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.fidelity import fidelities, losses
    from perseid.coordinator.planners.mc_trees import counted

    read = plan_files.topology(topology, rates)
    mask = read.mask(read.number(*partition) for partition in _partitions(failed))
    lost = losses(read, mask)
    shown = lost.round(12) + 0.0  # turns -0.0 into 0.0
    loss = {node.name: shown[read.slice(node.name)].tolist() for node in read.nodes}
    kept = float(fidelities(read, mask))
    if plot is not None:
        from perseid.cli import topology_plot

        groups = {"failed": mask.nonzero()[0], "loses input": shown.nonzero()[0]}
        topology_plot.draw(
            plot, read, {**groups, "whole": range(read.partitions)}, f"fidelity {kept:.4g}"
        )
    show(
        {
            "fidelity": kept,
            "loss": {name: values for name, values in loss.items() if any(values)},
            **_trees(counted(read), as_json=as_json),
        },
        as_json=as_json,
    )


@app.command("placement", epilog="Example: perseid plan placement --input placement.yaml")
def placement(
    input_file: InputOption, plot: canvas.Plot = None, as_json: output.Json = False
) -> None:
    """Where the copies of replicated partitions run."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.replica_placement import place_replicas

    read = plan_files.read(input_file, plan_files.PlacementFile)
    primaries = plan_files.placed(read, "primaries")
    found = place_replicas(primaries, read.replicate, read.workers)
    replicas = [[*partition, worker] for partition, worker in found.items()]
    if plot is not None:
        from perseid.cli import plan_plots

        plan_plots.workers(
            plot, read.workers, primaries.values(), found.values(), f"{len(found)} replicas placed"
        )
    show({"replicas": replicas}, as_json=as_json)


@app.command("mttf", epilog="Example: perseid plan mttf --input placement.yaml")
def mttf(input_file: InputOption, plot: canvas.Plot = None, as_json: output.Json = False) -> None:
    """How long a placement lasts on average until something is lost."""
    from perseid.cli import plan_files
    from perseid.coordinator.planners.mttf import mean_time_to_failure_s

    read = plan_files.read(input_file, plan_files.PlacementFile)
    if read.worker_mttf_s is None or read.worker_mttr_s is None:
        raise UsageError(f"{input_file}: worker_mttf_s and worker_mttr_s are needed, in seconds")
    primaries = plan_files.placed(read, "primaries")
    replicas = plan_files.placed(read, "replicas")
    found = mean_time_to_failure_s(primaries, replicas, read.worker_mttf_s, read.worker_mttr_s)
    if math.isinf(found):
        raise BadInputError(
            f"{input_file}: no partitions, or times of workers too long to be compared"
        )
    if plot is not None:
        from perseid.cli import plan_plots

        plan_plots.workers(
            plot, read.workers, primaries.values(), replicas.values(),
            f"mean time to failure {found / 86_400:.4g} days",
        )  # fmt: skip
    show({"mttf_s": found, "mttf_days": found / 86_400}, as_json=as_json)


def _partitions(text: str) -> list[tuple[str, int]]:
    return plan_topologies.partitions("--failed", text)


def _trees(found: TreeCount, *, as_json: bool) -> dict[str, Any]:
    """The exact number, or under another name an approximation, so that both stay distinct."""
    name = "mc_trees" if found.exact or not as_json else "mc_trees_at_most"
    return {name: found.trees if as_json and found.trees < 10**300 else str(found)}
