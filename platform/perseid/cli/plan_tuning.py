"""`perseid plan thresholds` and `plan checkpoint`: how much may be lost, and when to save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perseid.cli import canvas, output
from perseid.cli.plan_answers import show
from perseid.errors import UsageError

if TYPE_CHECKING:
    from perseid.coordinator.planners.delta_timing import Changes
    from perseid.coordinator.planners.state_sizes import Point, Sizes
    from perseid.coordinator.planners.thresholds import Bounds

Operator = Literal["count-min", "ripple-join"]
Window = Literal["none", "hopping", "sliding", "decaying"]
NEEDED: dict[Operator, tuple[str, ...]] = {
    "count-min": ("--threshold", "--alpha"), "ripple-join": ("--sampled", "--beta"),
}  # fmt: skip


def thresholds(
    theta: Annotated[
        float | None, typer.Option("--theta", help="Theta: allowed state divergence.")
    ] = None,
    items: Annotated[int | None, typer.Option("--l", help="L: allowed unprocessed items.")] = None,
    gamma: Annotated[
        int | None, typer.Option("--gamma", help="Gamma: allowed lost output items.")
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", help="Instead of these three: 1%, or 0.01.")
    ] = None,
    operator: Annotated[
        Operator | None, typer.Option("--for", help="What may err by --error.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="count-min: what makes a heavy hitter.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="count-min: the most that a record adds.")
    ] = None,
    sampled: Annotated[
        int | None, typer.Option("--sampled", help="ripple-join: sampled items of a window.")
    ] = None,
    failures: Annotated[
        int | None, typer.Option(help="Recoveries so far, those that count; without it 0.")
    ] = None,
    window: Annotated[
        Window, typer.Option(help="In which failures count: decaying, in none.")
    ] = "none",
    failed_at: Annotated[
        str | None, typer.Option("--failed-at", help="Instead of --failures: seconds, 5,19.9.")
    ] = None,
    now: Annotated[float | None, typer.Option(help="With --failed-at: seconds.")] = None,
    length: Annotated[
        float | None, typer.Option(help="With --failed-at: of the window, seconds.")
    ] = None,
    copies: Annotated[int, typer.Option(help="Copies of the operator.")] = 1,
    stage: Annotated[int, typer.Option(help="Its place in the pipeline.")] = 1,
    stages: Annotated[int, typer.Option(help="Operators in the pipeline.")] = 1,
    beta: Annotated[
        float | None, typer.Option("--beta", help="Most outputs of one item; without it 1.")
    ] = None,
    plot: canvas.Plot = None,
    as_json: output.Json = False,
) -> None:
    """The thresholds of approximate fault tolerance after failures.

    From the bounds --theta, --l and --gamma, or from an allowed --error of a kind of operator.
    """
    from perseid.coordinator.planners.thresholds import Share
    from perseid.coordinator.planners.thresholds import thresholds as decide

    given = {"--theta": theta, "--l": items, "--gamma": gamma, "--threshold": threshold,
             "--alpha": alpha, "--sampled": sampled, "--beta": beta}  # fmt: skip
    bounds = _bounds(error, operator, given)
    share = Share(copies, stage, stages, 1.0 if beta is None else beta)
    count = _failures(failures, failed_at, window, now, length)
    found = decide(bounds, count, share, window)
    if plot is not None:
        from perseid.cli import plan_plots

        plan_plots.thresholds(plot, bounds, share, count, window)
    answer: dict[str, Any] = {
        "theta": found.theta, "l": found.l, "gamma": found.gamma, "exact": found.exact,
    }  # fmt: skip
    if failed_at is not None:
        answer["failures"] = count
    if error is not None:
        answer["bounds"] = {"theta": bounds.theta, "l": bounds.l, "gamma": bounds.gamma}
    show(answer, as_json=as_json)


def _failures(
    failures: int | None, failed_at: str | None, window: Window, now: float | None,
    length: float | None,
) -> int:  # fmt: skip
    """How many failures count. UsageError for options that do not belong together."""
    from perseid.coordinator.planners.thresholds import failures_that_count

    if failed_at is None:
        if (now, length) != (None, None):
            raise UsageError("--now and --length belong to --failed-at, e.g. --failed-at 5,19.9")
        return failures or 0
    if failures is not None:
        raise UsageError("--failures or --failed-at, which counts them: not both")
    if window in ("hopping", "sliding") and (now is None or length is None):
        raise UsageError(f"--window {window} with --failed-at: needed is also --now and --length")
    try:
        times_s = [float(at_s) for at_s in failed_at.split(",")]
    except ValueError as error:
        raise UsageError(f"--failed-at {failed_at}: expected seconds like 5,19.9") from error
    return failures_that_count(times_s, now or 0.0, window, length or 0.0)


def _bounds(error: str | None, operator: Operator | None, given: dict[str, Any]) -> Bounds:
    """The allowed losses, given directly or by an error. UsageError names what is missing."""
    from perseid.coordinator.planners.error_bounds import for_count_min, for_ripple_join
    from perseid.coordinator.planners.thresholds import Bounds

    if (error is None) != (operator is None):
        raise UsageError("--error and --for belong together, e.g. --error 1% --for count-min")
    needed = ("--theta", "--l", "--gamma") if operator is None else NEEDED[operator]
    allowed = {*needed, "--beta"}  # of a pipeline too
    what = "the thresholds" if operator is None else f"--for {operator}"
    if missing := [option for option in needed if given[option] is None]:
        or_else = "; or --error with --for" if operator is None else ""
        raise UsageError(f"{what}: needed is also {', '.join(missing)}{or_else}")
    odd = [option for option, value in given.items() if value is not None]
    if odd := [option for option in odd if option not in allowed]:
        raise UsageError(f"{what}: {', '.join(odd)} does not belong to it, leave it out")
    values = [given[option] for option in needed]
    if error is None:
        return Bounds(*values)
    return (for_count_min if operator == "count-min" else for_ripple_join)(_share(error), *values)


def _share(text: str) -> float:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        raise UsageError(f"--error {text}: expected a share like 1% or 0.01") from error


def checkpoint(
    sizes: Annotated[
        str, typer.Option(help="CSV with time_s,operator,bytes[,changed_bytes]; - for stdin.")
    ],
    period: Annotated[float, typer.Option(help="Seconds; one checkpoint in each.")],
    cost: Annotated[
        Literal["state", "delta"],
        typer.Option(help="What one writes: all state, or what changed since the last."),
    ] = "state",
    plot: canvas.Plot = None,
    as_json: output.Json = False,
) -> None:
    """When checkpoints would be taken: profiled on these sizes, and replayed on them.

    With --cost delta the column changed_bytes has all that an operator has changed so far.
    """
    from perseid.cli import plan_files

    changes = plan_files.changes(sizes) if cost == "delta" else None
    read = plan_files.sizes(sizes) if changes is None else changes.sizes
    plans = _plans(read, changes, period)
    if plot is not None:
        from perseid.cli import plan_plots

        plan_plots.checkpoints(plot, read, changes, period, plans)
    if as_json:
        output.document(plans)
        return
    rows = [
        [number, *(f"{p.bytes:,.0f} at {p.time_s:g} s" for p in row)]
        for number, row in enumerate(zip(*plans.values(), strict=True), start=1)
    ]
    output.table(["period", *plans], rows)


def _plans(sizes: Sizes, changes: Changes | None, period_s: float) -> dict[str, list[Point]]:
    """Ours, the paper's (which uses sizes for either cost), the optimum, no policy."""
    from perseid.coordinator.planners import checkpoint_timing as timing
    from perseid.coordinator.planners import delta_stopping, delta_timing

    found = {
        "checkpoints": timing.played(
            sizes, period_s, timing.Stopping(timing.profile(sizes, period_s))
        ),
        "first_minimum": timing.played(
            sizes, period_s, timing.FirstMinimum(timing.profile(sizes, period_s))
        ),
        "oracle": timing.oracle(sizes, period_s),
        "fixed": timing.fixed(sizes, period_s),
    }
    if changes is None:
        return found
    written = {n: changes.checkpoints([p.time_s for p in plan]) for n, plan in found.items()}
    ours = delta_stopping.played(changes, delta_stopping.DeltaStopping(changes, period_s))
    return {**written, "checkpoints": ours, "oracle": delta_timing.oracle(changes, period_s)}
