"""`perseid bench`: perseid and a peer, side by side in one run, measured alike at their sinks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import canvas, output
from perseid.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from perseid.cli.benches.bench_cluster import Place
    from perseid.cli.benches.peer import Install
    from perseid.cli.benches.sides import Side

TAKES: dict[str, tuple[str, ...]] = {
    "wordcount": ("--peer", "--lines"), "recovery": ("--peer", "--state"), "planners": (),
    "simulation": (),
}  # fmt: skip
PEERS = ("spark",)
COLUMNS = ("figure", "setting", "x", "system", "version", "guarantee", "rows_per_s", "ratio",
           "messages_out", "p50_ms", "p99_ms", "p50_ratio", "seconds", "seconds_each",
           "state_bytes", "totals_right", "rss_mb", "runs", "value", "worst", "cases")  # fmt: skip
STATE, LINES = "100MB", 12_000_000
SEEDS = 40
TRIGGER_LINES = 200_000  # the peer's largest trigger is our largest epoch


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(TAKES)}.")],
    *,
    peer: Annotated[str | None, typer.Option("--peer", help="Run beside it: spark.")] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, help="Runs (3, 5), cases a point (100) or seeds (40)."),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="recovery: size of the state (100MB).")
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option("--lines", min=1, help="wordcount: lines that wait at first (12 million)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Folder for PNG and SVG.")] = None,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Measure perseid, beside a peer if one is named, on a cluster of its own.

    wordcount: lines/s at saturation, latency at 500 lines/s, peak memory. recovery: seconds from
    kill -9 of the worker to new output, with and without the warm second worker. planners: the
    papers' experiments on the planners, and simulation: seeds/s, both without a cluster.
    """
    from perseid.cli.benches import peer as peers
    from perseid.cli.benches import results
    from perseid.cli.benches.bench_cluster import place

    if name not in TAKES:
        raise UsageError(f"bench {name}: expected one of {', '.join(TAKES)}")
    for option, value in (("--peer", peer), ("--state", state), ("--lines", lines)):
        if value is not None and option not in TAKES[name]:
            raise UsageError(f"bench {name} takes no {option}: leave it out")
    if peer is not None and peer not in PEERS:
        raise UsageError(f"--peer {peer}: expected one of {', '.join(PEERS)}")
    if plot is not None:
        canvas.check_installed()
    installed = peers.install(output.note) if peer else None
    if name == "planners":
        result = _planners(runs)
    elif name == "simulation":
        result = _simulation(runs)
    else:
        with place(data) as where:
            measured = _recovery if name == "recovery" else _wordcount
            result = measured(where, installed, runs, state or STATE, lines or LINES)
    path = results.append(result, data)
    if plot is not None:
        results.plot(result, plot)
    if as_json:
        output.document(result)
    else:
        results.show(result, COLUMNS)
    output.note(f"appended to {path}")


def _planners(runs: int | None) -> dict[str, Any]:
    from dataclasses import asdict

    from perseid.cli.benches import planners, results

    settings = planners.Settings(cases=runs or 100)
    return results.document("planners", asdict(settings), planners.run(settings))


def _simulation(runs: int | None) -> dict[str, Any]:
    """In a process of its own, as all that stands beside the engine."""
    from perseid.cli.benches import results

    seeds = runs or SEEDS
    command = [sys.executable, "-m", "perseid.testing.simulation.speed", str(seeds)]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise RefusedError("a seed failed (see above), so its speed means nothing")
    return results.document("simulation", {"seeds": seeds}, json.loads(ran.stdout))


def _wordcount(
    place: Place, installed: Install | None, runs: int | None, _state: str, lines: int
) -> dict[str, Any]:
    from perseid.cli.benches import results, wordcount
    from perseid.cli.benches.sides import Perseid

    settings = wordcount.Settings(lines=lines, runs=runs or 3)
    sides: list[Side] = [Perseid(place.cluster), *_peers(place, installed, memory="1g")]
    rows = wordcount.run(place, sides, settings)
    return results.document("wordcount", wordcount.described(settings), rows)


def _recovery(
    place: Place, installed: Install | None, runs: int | None, state: str, _lines: int
) -> dict[str, Any]:
    from perseid.cli.benches import recovery, results
    from perseid.cli.benches.sides import Perseid

    settings = recovery.Settings(state_bytes=recovery.parse_size(state), runs=runs or 5)
    sides: list[Side] = [
        Perseid(place.cluster),
        Perseid(place.cluster, workers=1),
        *_peers(place, installed, memory="4g"),
    ]
    rows = recovery.run(place, sides, settings)
    return results.document("recovery", recovery.described(settings), rows)


def _peers(place: Place, installed: Install | None, memory: str) -> list[Side]:
    from perseid.cli.benches.sides import Spark

    if installed is None:
        return []
    folder = place.data / "peer"
    return [Spark(installed, folder, place.kafka, memory=memory, max_offsets=TRIGGER_LINES)]
