"""Every benchmark by its name: the options that it takes, its peers, and what runs it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches import environment
from benches.asked import TIMED, Asked
from perseid.errors import RefusedError

if TYPE_CHECKING:
    from benches.bench_cluster import Place
    from benches.install import Install
    from benches.sides import Side

SEEDS = 40
NEXMARK_RECORDS, NEXMARK_RUNS = 1_000_000, 5


Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """`run` gives the document of contracts.md; the folder is that of `--data`."""

    run: Callable[[Asked, Path | None], Result]
    takes: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()


Measured = Callable[["Place", dict[str, "Install"], Asked], Result]


def _on_cluster(measured: Measured) -> Callable[[Asked, Path | None], Result]:
    """Fetches the peers first, then runs on a cluster of its own."""

    def run(asked: Asked, data: Path | None) -> Result:
        from benches.bench_cluster import place, state_logs_in
        from benches.install import install
        from perseid.cli import output

        installed = {peer: install(peer, output.note) for peer in asked.peers}
        with state_logs_in(asked.state_dir), place(data) as where:
            return measured(where, installed, asked)

    return run


def _set(settings: Any, **asked: Any) -> Any:
    """The settings with what the user asked for."""
    return replace(settings, **{name: v for name, v in asked.items() if v is not None})


def _wordcount(place: Place, installed: dict[str, Install], asked: Asked) -> Result:
    from benches import results, wordcount
    from benches.peer_sides import Spark
    from benches.sides import Perseid

    settings = _set(wordcount.Settings(), lines=asked.lines, runs=asked.runs)
    peers: list[Side] = [Spark(found, place, "wordcount") for found in installed.values()]
    rows = wordcount.run(place, [Perseid(place.cluster), *peers], settings)
    return results.document("wordcount", wordcount.described(settings), rows)


def _updates(name: str, job: str) -> Measured:
    def measured(place: Place, installed: dict[str, Install], asked: Asked) -> Result:
        from benches import results, updates
        from benches.peer_sides import Bytewax, Loop, Quix
        from benches.sides import Perseid
        from perseid.cli.scenario.bed import Scenario

        settings = _set(updates.Settings(), records=asked.records, runs=asked.runs)
        kinds = {"bytewax": Bytewax, "quix": Quix, "loop": Loop}
        peers: list[Side] = [kinds[n](found, place, job) for n, found in installed.items()]
        rows = updates.run(place, [Perseid(place.cluster, Scenario(job)), *peers], job, settings)
        return results.document(name, updates.described(job, settings), rows)

    return measured


def _latency(place: Place, installed: dict[str, Install], asked: Asked) -> Result:
    from benches import latency, results
    from benches.peer_sides import Quix, Spark
    from benches.sides import Perseid
    from perseid.cli.scenario.bed import Scenario

    settings = _set(latency.Settings(), window_s=asked.seconds, runs=asked.runs)
    job = "balances"
    sides: list[Side] = [Perseid(place.cluster, Scenario(job))]
    for name, found in installed.items():
        quix = name == "quix"
        sides.append(Quix(found, place, job, commit_s=1.0) if quix else Spark(found, place, job))
    rows = latency.run(place, sides, settings)
    return results.document("latency", latency.described(settings), rows)


def _recovery(place: Place, installed: dict[str, Install], asked: Asked) -> Result:
    from benches import recovery, results
    from benches.peer_sides import Spark
    from benches.sides import Perseid

    settings = _set(recovery.Settings(), state_bytes=asked.state, runs=asked.runs)
    peers = [Spark(found, place, "wordcount", memory="4g") for found in installed.values()]
    ours = [Perseid(place.cluster), Perseid(place.cluster, workers=1)]
    rows = recovery.run(place, [*ours, *peers], settings)
    return results.document("recovery", recovery.described(settings), rows)


def _spread(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    from benches import results, spread

    words = _set(spread.Settings().words, lines=asked.lines, runs=asked.runs)
    settings = spread.Settings(words)
    sides = [spread.TwoLevels(place.cluster, count) for count in (1, spread.WORKERS)]
    rows = spread.run(place, sides, settings)
    return results.document("spread", spread.described(settings), rows)


def _promotion(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    from benches import promotion, results

    settings = _set(promotion.Settings(), state_bytes=asked.state, kills=asked.kills)
    rows = promotion.run(place, settings)
    return results.document("promotion", promotion.described(settings), rows)


def _audit(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    from benches import audit, results

    settings = _set(audit.Settings(), records=asked.records, live_s=asked.seconds, runs=asked.runs)
    return results.document("audit", audit.described(settings), audit.run(place, settings))


def _checkpoint(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    from benches import checkpoint, results, timed

    settings = _set(
        checkpoint.Settings(), sizes=asked.sizes, records=asked.records, window_s=asked.seconds,
        runs=asked.runs,
    )  # fmt: skip
    rows = checkpoint.run(place, settings)
    described = checkpoint.described(settings)
    if asked.timed:
        moments = _set(timed.Settings(), window_s=asked.seconds, runs=asked.runs)
        rows += timed.run(place, moments)
        described[TIMED] = timed.described(moments)
    return results.document("checkpoint", described, rows)


def _restore(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    from benches import restore, results

    settings = _set(restore.Settings(), sizes=asked.sizes, runs=asked.runs)
    return results.document("restore", restore.described(settings), restore.run(place, settings))


def _scale(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    """All axes, or only those that are asked for."""
    from benches import results, scale

    axes = {"keys": asked.keys, "partitions": asked.partitions, "jobs": asked.jobs}
    if asked.minutes is not None or any(found is not None for found in axes.values()):
        axes = {name: found or () for name, found in axes.items()}
    settings = _set(
        scale.Settings(), **axes, minutes=asked.minutes, records=asked.records,
        window_s=asked.seconds, runs=asked.runs, master=asked.master,
    )  # fmt: skip
    return results.document("scale", scale.described(settings), scale.run(place, settings))


def _coordinator(place: Place, _installed: dict[str, Install], asked: Asked) -> Result:
    from benches import idle_jobs, results

    settings = _set(idle_jobs.Settings(), jobs=asked.jobs, window_s=asked.seconds)
    rows = idle_jobs.run(place, settings)
    return results.document("coordinator", idle_jobs.described(settings), rows)


def _planners(asked: Asked, _data: Path | None) -> Result:
    from benches import planners, results

    settings = planners.Settings(cases=asked.runs or 100)
    return results.document("planners", asdict(settings), planners.run(settings))


def _simulation(asked: Asked, _data: Path | None) -> Result:
    from benches import results

    seeds = asked.runs or SEEDS
    rows = _with_peers(
        "benches.simulation_speed", str(seeds),
        failed="a seed failed (see above), so its speed means nothing",
    )  # fmt: skip
    return results.document("simulation", {"seeds": seeds}, rows)


def _nexmark(asked: Asked, data: Path | None) -> Result:
    """The jobs are used as users do, by commands and the status."""
    from benches import results

    records, runs = asked.records or NEXMARK_RECORDS, asked.runs or NEXMARK_RUNS
    with tempfile.TemporaryDirectory(prefix="perseid-nexmark-") as scratch:
        rows = _with_peers(
            "benches.nexmark_run", str(records), str(runs), str(data or scratch),
            failed="a query failed or answered wrongly, see above",
        )  # fmt: skip
    return results.document("nexmark", {"events": records, "runs": runs}, rows)


def _with_peers(module: str, *arguments: str, failed: str) -> list[Result]:
    """The rows that a module measures, in a process of its own."""
    command = [sys.executable, "-m", module, *arguments]
    ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment())
    if ran.returncode != 0:
        raise RefusedError(failed)
    rows: list[Result] = json.loads(ran.stdout)
    return rows


_SPARKS = ("spark", "spark-rocksdb")
_PYTHON_PEERS = ("bytewax", "quix", "loop")
_SCALE = ("--keys", "--partitions", "--jobs", "--minutes", "--records", "--seconds", "--master",
          "--state-dir")  # fmt: skip
BENCHES = {
    "wordcount": Bench(_on_cluster(_wordcount), ("--lines",), _SPARKS),
    "running-sum": Bench(
        _on_cluster(_updates("running-sum", "balances")), ("--records",), _PYTHON_PEERS
    ),
    "map": Bench(_on_cluster(_updates("map", "enrich")), ("--records",), _PYTHON_PEERS),
    "latency": Bench(_on_cluster(_latency), ("--seconds",), (*_SPARKS, "quix")),
    "recovery": Bench(_on_cluster(_recovery), ("--state",), ("spark",)),
    "spread": Bench(_on_cluster(_spread), ("--lines",)),
    "promotion": Bench(_on_cluster(_promotion), ("--state", "--kills")),
    "audit": Bench(_on_cluster(_audit), ("--records", "--seconds")),
    "nexmark": Bench(_nexmark, ("--records",)),
    "checkpoint": Bench(_on_cluster(_checkpoint), ("--sizes", "--records", "--seconds")),
    "restore": Bench(_on_cluster(_restore), ("--sizes",)),
    "scale": Bench(_on_cluster(_scale), _SCALE),
    "coordinator": Bench(_on_cluster(_coordinator), ("--jobs", "--seconds")),
    "planners": Bench(_planners),
    "simulation": Bench(_simulation),
}
