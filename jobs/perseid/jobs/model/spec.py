"""A validated job, normalised: all other parts of perseid read it instead of job.yaml.

Only `perseid.jobs.validation.parse` creates these. All of it is data: equal specs mean equal jobs,
and `jobs show --json` prints the JSON form.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SourceFormat = Literal["text", "json", "avro", "bytes"]
ColumnType = Literal["string", "int64", "float64", "bool", "binary", "timestamp"]
COLUMN_TYPES: tuple[ColumnType, ...] = (
    "string", "int64", "float64", "bool", "binary", "timestamp",
)  # fmt: skip


MAIN = "output"  # the output that is read by its operator's name alone
OUTPUT_NAME = r"^[a-z][a-z0-9_]{0,62}$"  # of the others
RECORD_TIME = "timestamp"  # the metadata column of every source that has the Kafka record's time


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EventTimeSpec(_Frozen):
    """The event time of a source's rows, and the handling of late ones.

    `column`: one of the source, else RECORD_TIME. The watermark is the largest event time minus
    `delay_ms`. A row below the token's watermark is late: it is dropped, becomes a dead letter
    ("dlq"), or is processed all the same ("update").
    """

    column: str
    delay_ms: int = 0
    late: Literal["drop", "dlq", "update"] = "drop"


class SourceSpec(_Frozen):
    """One Kafka topic that is read. `columns` of json only; text and bytes have `value`.

    `registry`: the schema registry by which its values of the Confluent wire format are read.
    `start`: "earliest", "latest", an ISO time in UTC, or the first offset of each partition.
    """

    topic: str
    format: SourceFormat
    columns: dict[str, ColumnType] = {}
    schema_file: str | None = None
    registry: str | None = None
    start: str | dict[int, int] = "earliest"
    event_time: EventTimeSpec | None = None


MEMORY_NEAR = 0.8  # of `memory_bytes`: from here on users are warned and epochs get smaller


class OperatorSpec(_Frozen):
    """One operator: either `sql` or `use`. Keyed (`key`) operators may hold state.

    `inputs` maps the name inside the operator to a source or operator; one unnamed input is called
    "input". `operator.name` is a further output of an operator (a *stream* is that or the main
    one). Every input must have the columns of `key`. `with_` are the operator's parameters. Inputs
    named in `feedback` get what their operator emitted in the previous epoch. `errors`: whether a
    row on which it raises stops the job or becomes a dead letter. `memory_bytes`: of the state of
    all its partitions, each of which has an even share.
    """

    inputs: dict[str, str]
    sql: str | None = None
    use: str | None = None
    key: tuple[str, ...] = ()
    parallelism: int
    order: Literal["required", "free"] = "required"
    with_: dict[str, Any] = {}
    memory_bytes: int | None = None
    errors: Literal["stop", "bisect"] = "stop"
    feedback: tuple[str, ...] = ()

    @property
    def forward(self) -> dict[str, str]:
        """The inputs whose rows are of the same epoch."""
        return {name: node for name, node in self.inputs.items() if name not in self.feedback}


class SinkSpec(_Frozen):
    """One Kafka topic that is written. `partitions` is for its creation only.

    With a `registry` its values are of the Confluent wire format. `registers`: applying registers
    the schema of `schema_file`; else the registry must have it.
    """

    input: str
    topic: str
    format: SourceFormat
    key: str | None = None
    headers: bool = False
    order: Literal["required", "free"] = "required"
    schema_file: str | None = None
    registry: str | None = None
    registers: bool = False
    partitions: int | None = None


class CheckpointSpec(_Frozen):
    """When checkpoints are taken. `size_timed`: at a moment of small state within the period."""

    period_s: float = 30.0
    size_timed: bool = False


class FaultToleranceSpec(_Frozen):
    """How the job tolerates failures. Only exact mode is built.

    `replicas`: how many operator partitions also run, muted, on another worker.
    """

    mode: Literal["exact"] = "exact"
    checkpoint: CheckpointSpec = CheckpointSpec()
    replicas: Literal[0, "all"] = 0


class ErrorsSpec(_Frozen):
    """What happens to records that cannot be decoded: stop the job, or a dead-letter topic.

    `deadletter_topic` is set whenever there may be dead letters.
    """

    tolerance: Literal["none", "all"] = "none"
    deadletter_topic: str | None = None


class EpochSpec(_Frozen):
    """Upper bounds of one epoch. `max_bytes`: of the values it reads, estimated from the last ones.

    `timeout_s`: after this time the job fails.
    """

    target_s: float = 0.5
    max_records: int = 800_000
    max_bytes: int = 256 << 20
    timeout_s: float = 3600.0


class PlacementSpec(_Frozen):
    """On how many workers the job runs at most. With 1 it is one fragment.

    `buffer_bytes`: the bound of each buffer topic, which only a job of several fragments has.
    """

    spread: int = 1
    buffer_bytes: int = 10 << 30


class AuditSpec(_Frozen):
    """What audits need of the job, and what is audited without a request.

    `horizon_s`: its past that is kept; None: none of it. `continuous`: the share of epochs, 0 to 1.
    """

    horizon_s: float | None = None
    continuous: float = 0.0


class JobSpec(_Frozen):
    """One job. Sources and operators share one name space; sinks have their own."""

    name: str
    parallelism: int
    sources: dict[str, SourceSpec]
    operators: dict[str, OperatorSpec]
    sinks: dict[str, SinkSpec]
    fault_tolerance: FaultToleranceSpec = FaultToleranceSpec()
    errors: ErrorsSpec = ErrorsSpec()
    epoch: EpochSpec = EpochSpec()
    placement: PlacementSpec = PlacementSpec()
    audit: AuditSpec = AuditSpec()

    @property
    def written_topics(self) -> dict[str, int]:
        """The topics that this job writes for its user, with the partitions for their creation."""
        found = {s.topic: s.partitions or self.parallelism for s in self.sinks.values()}
        if self.may_have_letters and self.errors.deadletter_topic is not None:
            found.setdefault(self.errors.deadletter_topic, 1)
        return found

    @property
    def may_have_letters(self) -> bool:
        """Whether a source refuses records, or an operator bisects."""
        bisects = any(operator.errors == "bisect" for operator in self.operators.values())
        return bisects or self.dead_letters is not None

    @property
    def dead_letters(self) -> str | None:
        """The topic of records that sources and operators without a key refuse, or None.

        A keyed operator writes its dead letters itself, with its output.
        """
        late = any(s.event_time and s.event_time.late == "dlq" for s in self.sources.values())
        loose = any(o.errors == "bisect" and not o.key for o in self.operators.values())
        wanted = late or loose or self.errors.tolerance == "all"
        return self.errors.deadletter_topic if wanted else None

    @property
    def event_times(self) -> dict[str, EventTimeSpec]:
        """The sources with event time."""
        return {n: s.event_time for n, s in self.sources.items() if s.event_time is not None}


def producer(stream: str) -> str:
    """The source or operator that produces `stream`, which is `node` or `node.output`."""
    return stream.partition(".")[0]


def output_of(stream: str) -> str:
    """Which of its producer's outputs `stream` is."""
    return stream.partition(".")[2] or MAIN


def source_columns(source: SourceSpec) -> dict[str, str] | None:
    """The columns that a source yields, or None when only its Avro schema defines them."""
    if source.format == "json":
        return dict(source.columns)
    if source.format == "avro":
        return None
    return {"value": "string" if source.format == "text" else "binary"}


def pinned_file(kind: str, name: str) -> str:
    """Where `apply` puts the newest schema of a source or sink that has a registry and no file."""
    return f"pinned-schemas/{kind}.{name}.json"
