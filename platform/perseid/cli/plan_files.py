"""The files of `perseid plan`: JSON or YAML, `-` for standard input, each key checked.

The shapes are those of "Planner files" in the contracts: what a topology, a recovery problem, a
placement or a list of sizes must have, and a BadInputError with file and key where it has not.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perseid.errors import BadInputError

if TYPE_CHECKING:
    from perseid.coordinator.planners.recovery import RecoveryProblem
    from perseid.coordinator.planners.state_sizes import Sizes
    from perseid.coordinator.planners.topology import Topology

COLUMNS = ("time_s", "operator", "bytes")


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


class RecoveryFile(_Document):
    """What there is, what has failed and what is free."""

    partitions: list[PartitionEntry]
    queries: list[QueryEntry]
    failed: list[str]
    free: float
    replicated: list[str] = []


class PlanFile(_Document):
    """What `plan replication --json` or `plan adapt --json` printed; only these two are needed."""

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


_AnyDocument = TypeVar("_AnyDocument", bound=_Document)


def topology(path: str) -> Topology:
    """The topology in a file. TopologyError names the element that cannot be."""
    from perseid.coordinator.planners.graph import Node, Stream, TopologyError
    from perseid.coordinator.planners.topology import Topology

    found = read(path, TopologyFile)
    nodes = []
    for entry in found.operators:
        rates = None if entry.output_rates is None else tuple(entry.output_rates)
        nodes.append(Node(entry.name, entry.parallelism, entry.input, rates))
    streams = [Stream(e.source, e.target, tuple(e.substreams), e.feedback) for e in found.edges]
    made = Topology(nodes, streams)
    for edge, stream in zip(found.edges, streams, strict=True):
        if edge.kind not in (None, stream.kind):
            raise TopologyError(
                f"stream {stream.name} is said to be {edge.kind}, its substreams are {stream.kind}"
            )
    return made


def recovery(path: str) -> RecoveryProblem:
    """The recovery problem in a file."""
    from perseid.coordinator.planners.recovery import Partition, Query, RecoveryProblem

    found = read(path, RecoveryFile)
    return RecoveryProblem(
        [Partition(p.id, p.cost, tuple(p.upstream)) for p in found.partitions],
        [Query(q.id, q.priority, tuple(q.partitions)) for q in found.queries],
        found.failed,
        found.free,
        found.replicated,
    )


def sizes(path: str) -> Sizes:
    """State sizes from a CSV file with the columns time_s, operator, bytes."""
    from perseid.coordinator.planners.state_sizes import Point, Sizes

    operators: dict[str, list[Point]] = {}
    rows = csv.DictReader(_text(path).splitlines())
    if set(rows.fieldnames or ()) != set(COLUMNS):
        raise BadInputError(f"{path}: columns {rows.fieldnames}, expected {', '.join(COLUMNS)}")
    for line, row in enumerate(rows, start=2):
        try:
            point = Point(float(row["time_s"]), float(row["bytes"]))
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{path}, line {line}: {error}") from error
        operators.setdefault(row["operator"], []).append(point)
    return Sizes(operators)


def read(path: str, shape: type[_AnyDocument]) -> _AnyDocument:
    """The document in a file, checked."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value: Any = YAML(typ="safe").load(_text(path))  # JSON is YAML
    except YAMLError as error:
        raise BadInputError(f"{path}: neither JSON nor YAML: {error}") from error
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise BadInputError("\n".join(_told(path, error))) from error


def _told(path: str, error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"]) or "the document"
        yield f"{path}: {place}: {problem['msg']}"


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: {error}") from error
