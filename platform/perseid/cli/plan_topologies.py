"""`perseid plan recovery` with topologies instead of a file of partitions and queries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.errors import UsageError

if TYPE_CHECKING:
    from perseid.cli.plan_files import RecoveryFile
    from perseid.coordinator.planners.topology import Topology

HELP = "JSON or YAML file, - for stdin, or a job's folder or job.yaml."
Rates = Annotated[
    str | None,
    typer.Option("--rates", help="With a job: records/s out of each partition, by operator."),
]
Loads = Annotated[
    str | None,
    typer.Option(help="Cores of each partition, by operator; else by rows, the busiest 1 core."),
]
Failed = Annotated[str | None, typer.Option(help='JSON, e.g. [["src", 0]].', show_default=False)]
Free = Annotated[float | None, typer.Option(help="Cores.", show_default=False)]
Priorities = Annotated[
    str | None, typer.Option(help='JSON, e.g. {"top": 3, "all": [1, 2]}; 1 unless given.')
]
Replicated = Annotated[
    str | None, typer.Option(help="Failed partitions with a replica, as --failed.")
]
Shared = Annotated[
    list[str] | None, typer.Option(help="With several jobs: an operator that they share.")
]


def recovery_file(
    input_file: str | None, paths: Sequence[str], given: Mapping[str, Any]
) -> RecoveryFile:
    """The given file, or the equivalent for one topology or several jobs (then `job/operator`).

    `given`: the options that go with topologies, by name. UsageError for invalid combinations.
    """
    from perseid.cli import plan_files

    if (input_file is None) == (not paths):
        raise UsageError("give --input FILE, or --topology FILE with --failed and --free")
    needless = [name for name, value in given.items() if value is not None]
    if input_file is not None:
        if needless:
            raise UsageError(f"{needless[0]} goes with --topology; {input_file} has its own")
        return plan_files.read(input_file, plan_files.RecoveryFile)
    return _of_topologies(paths, given)


def _of_topologies(paths: Sequence[str], given: Mapping[str, Any]) -> RecoveryFile:
    from perseid.cli import plan_files
    from perseid.coordinator.planners import measured_rates
    from perseid.coordinator.planners.recovery_problems import parts

    for name in ("--failed", "--free"):
        if given[name] is None:
            raise UsageError(f"{name} is missing: with --topology it is needed")
    topology = _topology(paths, given["--rates"], given["--shared"] or [])
    loads = (
        measured_rates.loads(topology)
        if given["--loads"] is None
        else plan_files.read(given["--loads"], plan_files.RatesFile).root
    )
    priorities = _parsed(
        "--priorities", given["--priorities"] or "{}", dict[str, int | list[int]], '{"top": 3}'
    )
    members, queries = parts(topology, loads, priorities)
    named = {
        option: [members[topology.number(*one)].id for one in partitions(option, text or "[]")]
        for option, text in given.items()
        if option in ("--failed", "--replicated")
    }
    return plan_files.RecoveryFile(
        partitions=[
            plan_files.PartitionEntry(id=p.id, cost=p.cost, upstream=list(p.upstream))
            for p in members
        ],
        queries=[
            plan_files.QueryEntry(id=q.id, priority=q.priority, partitions=list(q.partitions))
            for q in queries
        ],
        failed=named["--failed"],
        free=given["--free"],
        replicated=named["--replicated"],
    )


def partitions(option: str, text: str) -> list[tuple[str, int]]:
    """The operator partitions that an option names."""
    example = '[["src", 0], ["join", 1]]'
    found: list[tuple[str, int]] = _parsed(option, text, list[tuple[str, int]], example)
    return found


def _topology(paths: Sequence[str], rates: str | None, shared: Sequence[str]) -> Topology:
    from perseid.cli import plan_files
    from perseid.coordinator.planners.recovery_problems import together

    if len(paths) == 1:
        if shared:
            raise UsageError(f"--shared {shared[0]}: there is one --topology; give two at least")
        return plan_files.topology(paths[0], rates)
    if rates is not None:
        raise UsageError(f"--rates {rates}: goes with one --topology, found {len(paths)}")
    (name, times), *_ = Counter(map(_job, paths)).most_common(1)
    if times > 1:
        raise UsageError(f"--topology: {times} are called {name}; rename a file, or its folder")
    return together({_job(path): plan_files.topology(path) for path in paths}, shared)


def _job(path: str) -> str:
    """A job's name: its folder, or a file without its ending."""
    from perseid.jobs.validation.parse import JOB_FILE

    found = Path(path).resolve()
    if found.name == JOB_FILE:
        found = found.parent
    return found.name if found.is_dir() else found.stem


def _parsed(option: str, text: str, shape: Any, example: str) -> Any:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(shape).validate_python(json.loads(text))
    except ValueError as error:  # pydantic's is one too
        raise UsageError(f"{option} {text!r}: expected JSON like {example}") from error
