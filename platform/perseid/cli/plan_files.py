"""The files of `perseid plan`: JSON or YAML, `-` for standard input, each key checked.

The shapes are those of "Planner files" in the contracts: topologies, recovery problems, placements
and lists of sizes. Errors are BadInputErrors with file and key. A job's own file (job.yaml, or the
folder that holds it) is a topology too.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from perseid.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from perseid.coordinator.planners.delta_timing import Changes
    from perseid.coordinator.planners.recovery import Partition, Query, RecoveryProblem
    from perseid.coordinator.planners.recovery_capacity import Worker
    from perseid.coordinator.planners.state_sizes import Point, Sizes
    from perseid.coordinator.planners.topology import Topology

COLUMNS = ("time_s", "operator", "bytes")
PARTITIONS = TypeAdapter(list[tuple[str, int]])
CHANGED = "changed_bytes"  # cumulative changed bytes of an operator, so they never fall


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class OperatorEntry(_Document):
    """One operator."""

    name: str
    parallelism: int
    input: Literal["independent", "correlated"] = "independent"
    output_rates: list[float] | None = None


class EdgeEntry(_Document):
    """One stream; `kind` is checked against the substreams."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    substreams: list[tuple[int, int, float]]
    kind: Literal["one-to-one", "split", "merge", "full"] | None = None
    feedback: bool = False


class TopologyFile(_Document):
    """Operators and edges."""

    operators: list[OperatorEntry]
    edges: list[EdgeEntry]


class RatesFile(RootModel[dict[str, list[float]]]):
    """By source or operator of a job, the records/s that leave each of its partitions."""


class PartitionEntry(_Document):
    """One operator partition with its share of a core."""

    id: str
    cost: float
    upstream: list[str] = []


class QueryEntry(_Document):
    """One query with all its partitions."""

    id: str
    priority: int = 1
    partitions: list[str]


class WorkerEntry(_Document):
    """One worker; `used` are the cores that other work takes."""

    id: str
    cores: float
    used: float = 0.0


class RecoveryFile(_Document):
    """All partitions, the failed ones, and what is free: a number of cores, or on which workers.

    `arrivals`: the workers that arrive after the first plan, after the second, and so on.
    """

    partitions: list[PartitionEntry]
    queries: list[QueryEntry]
    failed: list[str]
    free: float | None = None
    replicated: list[str] = []
    workers: list[WorkerEntry] | None = None
    arrivals: list[list[WorkerEntry]] = []

    @model_validator(mode="after")
    def _one_kind_of_capacity(self) -> RecoveryFile:
        if (self.free is None) == (self.workers is None):
            raise ValueError("give either free, a number of cores, or workers with theirs")
        if self.arrivals and self.workers is None:
            raise ValueError("arrivals need workers: those that are there already, or []")
        return self

    @property
    def members(self) -> tuple[list[Partition], list[Query]]:
        """The planners' form of the partitions and queries."""
        from perseid.coordinator.planners.recovery import Partition, Query

        return (
            [Partition(p.id, p.cost, tuple(p.upstream)) for p in self.partitions],
            [Query(q.id, q.priority, tuple(q.partitions)) for q in self.queries],
        )

    def problem(self, free: float) -> RecoveryProblem:
        """BadInputError names the invalid partition or query."""
        from perseid.coordinator.planners.recovery import RecoveryProblem

        return RecoveryProblem(*self.members, self.failed, free, self.replicated)

    @property
    def capacity(self) -> list[list[Worker]]:
        """The workers before each plan: the earlier ones and those that have arrived."""
        from perseid.coordinator.planners.recovery_capacity import Worker

        found: list[list[Worker]] = [[]]
        for some in (self.workers or [], *self.arrivals):
            found.append([*found[-1], *(Worker(w.id, w.cores, w.used) for w in some)])
        return found[1:]


class PlanFile(_Document):
    """The output of `plan replication --json` or `plan adapt --json`; only these two are needed."""

    model_config = ConfigDict(extra="ignore")

    budget: int
    replicate: list[tuple[str, int]]


class PlacementFile(_Document):
    """Workers with their failure domains, partitions with their workers."""

    workers: dict[str, str]
    primaries: list[tuple[str, int, str]]
    replicate: list[tuple[str, int]] = []
    replicas: list[tuple[str, int, str]] = []
    worker_mttf_s: float | None = None
    worker_mttr_s: float | None = None


_AnyDocument = TypeVar("_AnyDocument", bound=BaseModel)


def topology(path: str, rates: str | None = None) -> Topology:
    """The topology in a file, or that of a job with the rates in a file of their own.

    TopologyError names the invalid element; errors of `perseid.jobs` have the line.
    """
    from perseid.coordinator.planners.job_topology import job_topology
    from perseid.jobs.operations.classes import unions
    from perseid.jobs.validation import parse

    if path != "-" and Path(path).is_dir():
        path = str(Path(path) / parse.JOB_FILE)
    text = _text(path)
    value = _loaded(path, text)
    if isinstance(value, dict) and "sources" in value:
        spec = parse.loads(text, path)
        given = read(rates, RatesFile).root if rates is not None else None
        # A job on standard input has no classes: operators with several inputs count as joins.
        return job_topology(spec, given, () if path == "-" else unions(spec, Path(path).parent))
    if rates is not None:
        raise UsageError(f"--rates {rates}: {path} is no job, its substreams have their rates")
    return _topology(_checked(path, value, TopologyFile))


def _topology(found: TopologyFile) -> Topology:
    from perseid.coordinator.planners.graph import Node, Stream, TopologyError
    from perseid.coordinator.planners.topology import Topology

    nodes = []
    for entry in found.operators:
        rates = None if entry.output_rates is None else tuple(entry.output_rates)
        nodes.append(Node(entry.name, entry.parallelism, entry.input, rates))
    streams = [Stream(e.source, e.target, tuple(e.substreams), e.feedback) for e in found.edges]
    made = Topology(nodes, streams)
    for edge, stream in zip(found.edges, streams, strict=True):
        if edge.kind not in (None, stream.kind):
            raise TopologyError(
                f"stream {stream.name} is declared as {edge.kind}, its substreams are {stream.kind}"
            )
    return made


def placed(
    file: PlacementFile, which: Literal["primaries", "replicas"]
) -> dict[tuple[str, int], str]:
    """The worker of each primary, or of each replica. BadInputError for two, or an unknown one."""
    found: dict[tuple[str, int], str] = {}
    for name, number, worker in getattr(file, which):
        place = f"{which}: {name}[{number}] on {worker}"
        if number < 0:
            raise BadInputError(f"{place}: partitions are numbered from 0")
        if worker not in file.workers:
            raise BadInputError(f"{place}: workers has no {worker} with its failure domain")
        if (name, number) in found:
            raise BadInputError(f"{place}: it is on {found[name, number]} already")
        found[name, number] = worker
    return found


def sizes(path: str) -> Sizes:
    """State sizes from a CSV file with the columns time_s, operator, bytes."""
    from perseid.coordinator.planners.state_sizes import Sizes

    return Sizes(_points(path, COLUMNS)["bytes"])


def changes(path: str) -> Changes:
    """State sizes and changed bytes from a CSV file that has the column changed_bytes too."""
    from perseid.coordinator.planners.delta_timing import Changes
    from perseid.coordinator.planners.state_sizes import Sizes

    found = _points(path, (*COLUMNS, CHANGED))
    return Changes(Sizes(found["bytes"]), found[CHANGED])


def _points(path: str, columns: tuple[str, ...]) -> dict[str, dict[str, list[Point]]]:
    """By column of bytes and operator, the rows of a CSV file."""
    try:
        return _rows(path, csv.DictReader(_text(path).splitlines(), restkey="more"), columns)
    except csv.Error as error:
        raise BadInputError(f"{path}: no CSV: {error}") from error


def _rows(
    path: str, rows: csv.DictReader[str], columns: tuple[str, ...]
) -> dict[str, dict[str, list[Point]]]:
    from perseid.coordinator.planners.state_sizes import Point

    if not set(columns) <= set(rows.fieldnames or ()) <= {*COLUMNS, CHANGED}:
        raise BadInputError(f"{path}: columns {rows.fieldnames}, expected {', '.join(columns)}")
    found: dict[str, dict[str, list[Point]]] = {column: {} for column in columns[2:]}
    for line, row in enumerate(rows, start=2):
        if row["operator"] is None or "more" in row:
            raise BadInputError(f"{path}, line {line}: as many values as columns, {len(columns)}")
        for column, operators in found.items():
            try:
                point = Point(float(row["time_s"]), float(row[column]))
            except (TypeError, ValueError) as error:
                raise BadInputError(f"{path}, line {line}: {error}") from error
            operators.setdefault(row["operator"], []).append(point)
    return found


def read(path: str, shape: type[_AnyDocument]) -> _AnyDocument:
    """The document in a file, checked."""
    return _checked(path, _loaded(path, _text(path)), shape)


def _loaded(path: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    with suppress(ValueError, RecursionError):
        return json.loads(text)  # JSON is YAML, but parsing a large topology as YAML takes minutes
    try:
        return YAML(typ="safe").load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: neither JSON nor YAML: {error}") from error


def _checked(path: str, value: Any, shape: type[_AnyDocument]) -> _AnyDocument:
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise BadInputError("\n".join(_described(path, error))) from error


def _described(path: str, error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"]) or "the document"
        yield f"{path}: {place}: {problem['msg']}"


def _text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: {error}") from error
