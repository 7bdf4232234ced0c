"""The shape of job.yaml as pydantic models, one per block; names are those of the file.

Error messages use a field's description as what was expected, and its first example as what to
write instead. Rules between blocks (names, cycles, keys) are in `perseid.jobs.validation.checks`;
features that are documented but not built are in `perseid.jobs.validation.unbuilt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from perseid.errors import UsageError
from perseid.jobs.model import units
from perseid.topics.names import check_topic

NAME = r"^[a-z][a-z0-9-]{0,62}$"
NAME_EXPECTED = "a name of a-z, 0-9 and '-' that starts with a letter, 63 characters at most"
COLUMN = r"^[A-Za-z_][A-Za-z0-9_]{0,126}$"
PARALLELISM_MAX = 256  # a Spark stage has one task per partition; more is slower on all machines
SQL_CHARS_MAX = 20_000
BUDGET_EXPECTED = "all, or a number of operator partitions from 0 on"
_USE = re.compile(r"^([A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,5}|library):[A-Za-z_]\w{0,99}$")
_FILE = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,3}$")


def _between(read: Callable[[object], float], what: str, low: str, high: str) -> Any:
    """A value that `read` parses; the bounds are in the user's notation."""

    def check(value: object) -> float:
        found = read(value)
        if not read(low) <= found <= read(high):
            raise ValueError(f"{what} from {low} to {high}")
        return found

    return BeforeValidator(check)


_seconds = partial(_between, units.seconds, "a duration")
_bytes = partial(_between, units.size_bytes, "a size")


def _budget(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value != "all" and not is_number:
        raise ValueError(BUDGET_EXPECTED)
    return value


def _topic(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("the name of a Kafka topic")
    try:
        return check_topic(value)
    except UsageError:
        raise ValueError("1 to 249 of A-Z a-z 0-9 . _ - and no leading '__'") from None


def _start(value: object) -> str | dict[int, int]:
    if isinstance(value, dict):
        try:
            offsets = {int(k): v for k, v in value.items()}
        except ValueError:
            offsets = {-1: -1}
        if offsets and all(isinstance(v, int) and v >= 0 and k >= 0 for k, v in offsets.items()):
            return offsets
        raise ValueError("partition: offset pairs such as {0: 100, 1: 250}")
    if value in {"earliest", "latest"}:
        return str(value)
    try:
        return units.time(value).isoformat()
    except ValueError:
        raise ValueError(
            "earliest, latest, an ISO time (UTC unless it has an offset) or {partition: offset}"
        ) from None


def _columns(value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if (
        not isinstance(found, list) or not found or len(set(map(str, found))) != len(found)
        or not all(isinstance(c, str) and re.fullmatch(COLUMN, c) for c in found)
    ):  # fmt: skip
        raise ValueError("a column name or a list of different column names")
    return tuple(found)


def _matching(pattern: re.Pattern[str], expected: str) -> Any:
    def check(value: object) -> object:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(expected)
        return value

    return BeforeValidator(check)


def _file(value: object) -> object:
    if not isinstance(value, str) or not _FILE.fullmatch(value) or ".." in value.split("/"):
        raise ValueError("a path of a file inside the job's folder, such as schema.avsc")
    return value


def _registry(value: object) -> object:
    if isinstance(value, str) and "/" in value:
        raise ValueError(
            "the name of a schema registry of the deployment, no URL: a job reaches only what the "
            "list of its deployment names (`perseid up --schema-registries NAME=URL`)"
        )
    if not isinstance(value, str) or not re.fullmatch(NAME, value):
        raise ValueError("the name of a schema registry of the deployment")
    return value


Topic = Annotated[str, BeforeValidator(_topic)]
RegistryName = Annotated[str, BeforeValidator(_registry)]
File = Annotated[str, BeforeValidator(_file)]
Parallelism = Annotated[int, Field(ge=1, le=PARALLELISM_MAX)]
Order = Annotated[
    Literal["required", "free"], Field(description="required or free", examples=["required"])
]
Format = Annotated[
    Literal["text", "json", "avro", "bytes"],
    Field(description="text, json, avro or bytes", examples=["json"]),
]
PARALLELISM_EXPECTED = f"a whole number from 1 to {PARALLELISM_MAX}"


class Document(BaseModel):
    """Strict: a quoted number is no number, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EventTime(Document):
    """`eventTime:` of a source."""

    column: Annotated[str, Field(pattern=COLUMN)] = Field(
        description="a column of type timestamp or int64 (milliseconds since 1970)", examples=["ms"]
    )
    watermark: Annotated[float, _seconds("0s", "86400s")] = Field(
        default=0.0, description="a duration from 0s to 1d", examples=['"5s"']
    )
    late: Literal["drop", "dlq", "update"] = Field(
        default="drop", description="drop, dlq or update", examples=["drop"]
    )


class Source(Document):
    """One entry of `sources:`."""

    topic: Topic = Field(description="the name of a Kafka topic", examples=["lines"])
    format: Format
    columns: dict[str, str] | None = Field(
        default=None, description="columns with their types", examples=["{user: string, ms: int64}"]
    )
    schema_: File | None = Field(
        default=None, alias="schema", description="the path of an Avro schema next to job.yaml",
        examples=["schema.avsc"],
    )  # fmt: skip
    registry: RegistryName | None = Field(
        default=None, description="the name of a schema registry of the deployment",
        examples=["main"],
    )  # fmt: skip
    start: Annotated[str | dict[int, int], BeforeValidator(_start)] = Field(
        default="earliest", description="earliest, latest, an ISO time or {partition: offset}",
        examples=["earliest"],
    )  # fmt: skip
    eventTime: EventTime | None = Field(
        default=None, description="the column that has the event time",
        examples=['{column: ms, watermark: "5s"}'],
    )  # fmt: skip


class OperatorErrors(Document):
    """`errors:` of an operator."""

    operator: Literal["stop", "bisect"] = Field(
        default="stop", description="stop or bisect", examples=["stop"]
    )


class Operator(Document):
    """One entry of `operators:`."""

    input: str | None = Field(
        default=None, description="the name of a source or operator", examples=["lines"]
    )
    inputs: dict[str, Any] | None = Field(
        default=None, description="input names with sources or operators",
        examples=["{left: views, right: users}"],
    )  # fmt: skip
    sql: Annotated[str, Field(min_length=1, max_length=SQL_CHARS_MAX)] | None = Field(
        default=None, description=f"a SQL SELECT of 1 to {SQL_CHARS_MAX} characters",
        examples=['"SELECT value FROM input"'],
    )  # fmt: skip
    use: Annotated[str, _matching(_USE, "module:Class or library:Name")] | None = Field(
        default=None, description="module:Class next to job.yaml, or library:Name",
        examples=['"wordcount:Counts"'],
    )  # fmt: skip
    key: Annotated[tuple[str, ...], BeforeValidator(_columns)] | None = Field(
        default=None, description="a column name or a list of them", examples=["word"]
    )
    parallelism: Parallelism | None = Field(
        default=None, description=PARALLELISM_EXPECTED, examples=[4]
    )
    order: Order = "required"
    with_: dict[str, Any] = Field(
        default={}, alias="with", description="parameters as key: value", examples=["{limit: 10}"]
    )
    edge: Literal["one-to-one", "split", "merge", "full"] | None = Field(
        default=None, description="one-to-one, split, merge or full", examples=["full"]
    )
    memory: Annotated[int, BeforeValidator(units.size_bytes)] | None = Field(
        default=None, description=units.SIZE_EXPECTED, examples=['"512MiB"']
    )
    errors: OperatorErrors = Field(
        default=OperatorErrors(), description="{operator: stop}", examples=["{operator: stop}"]
    )


class Sink(Document):
    """One entry of `sinks:`."""

    input: str = Field(description="the name of a source or operator", examples=["counts"])
    topic: Topic = Field(description="the name of a Kafka topic", examples=["word-counts"])
    format: Format
    key: Annotated[str, Field(pattern=COLUMN)] | None = Field(
        default=None, description="the column that becomes the record's key", examples=["word"]
    )
    headers: bool = Field(default=False, description="true or false", examples=["true"])
    order: Order = "required"
    schema_: File | None = Field(
        default=None, alias="schema", description="the path of an Avro schema next to job.yaml",
        examples=["schema.avsc"],
    )  # fmt: skip
    registry: RegistryName | None = Field(
        default=None, description="the name of a schema registry of the deployment",
        examples=["main"],
    )  # fmt: skip
    register_: bool | None = Field(
        default=None, alias="register", description="true or false", examples=["true"]
    )
    partitions: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="a whole number from 1 to 1000", examples=[4]
    )


class Checkpoint(Document):
    """`faultTolerance.checkpoint:`."""

    period: Annotated[float, _seconds("1s", "86400s")] = Field(
        default=30.0, description="a duration from 1s to 1d", examples=['"30s"']
    )
    sizeTimed: bool = Field(default=False, description="true or false", examples=["true"])


class Approximate(Document):
    """Bounds of approximate mode; in exact mode they have no effect."""

    theta: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="a number above 0", examples=[100000], strict=False
    )
    l: Annotated[float, Field(gt=0)] | None = Field(  # noqa: E741 - the paper's and the file's name
        None, description="a number above 0", examples=[1000], strict=False
    )
    gamma: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="a number above 0", examples=[1000], strict=False
    )
    error: Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]+)?%$")] | None = Field(
        default=None, description="an allowed error such as 1%", examples=['"1%"']
    )


class Replicas(Document):
    """`faultTolerance.replicas:`."""

    budget: Annotated[int | Literal["all"], BeforeValidator(_budget)] = Field(
        default=0, description=BUDGET_EXPECTED, examples=["all"]
    )


class Recovery(Document):
    """`faultTolerance.recovery:`."""

    priority: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=1, description="a whole number from 0 to 1000", examples=[1]
    )
    adaptiveBufferingAfter: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=2, description="a whole number from 0 to 1000", examples=[2]
    )


class FaultTolerance(Document):
    """`faultTolerance:`."""

    mode: Literal["exact", "approximate", "none"] = Field(
        default="exact", description="exact, approximate or none", examples=["exact"]
    )
    checkpoint: Checkpoint = Field(
        default=Checkpoint(), description="when to checkpoint", examples=['{period: "30s"}']
    )
    approximate: Approximate | None = Field(
        default=None, description="bounds of the error", examples=['{error: "1%"}']
    )
    replicas: Replicas = Field(
        default=Replicas(), description="how many replicas", examples=["{budget: all}"]
    )
    recovery: Recovery = Field(
        default=Recovery(), description="how to recover", examples=["{priority: 1}"]
    )


class DeadLetterQueue(Document):
    """`errors.deadletterqueue:`."""

    topic: Topic = Field(description="the name of a Kafka topic", examples=["wordcount-dlq"])


class Errors(Document):
    """`errors:` of the job."""

    tolerance: Literal["none", "all"] = Field(
        default="none", description="none or all", examples=["none"]
    )
    deadletterqueue: DeadLetterQueue | None = Field(
        default=None, description="{topic: NAME}", examples=["{topic: wordcount-dlq}"]
    )


class Epoch(Document):
    """`epoch:`."""

    target: Annotated[float, _seconds("0.05s", "60s")] = Field(
        default=0.5, description="a duration from 50ms to 60s", examples=['"500ms"']
    )
    maxRecords: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=800_000, description="a whole number from 1 to 10000000", examples=[800000]
    )
    maxBytes: Annotated[int, _bytes("1MiB", "64GiB")] = Field(
        default=256 << 20, description="a size from 1MiB to 64GiB", examples=['"256MiB"']
    )
    timeout: Annotated[float, _seconds("10s", "24h")] = Field(
        default=3600.0, description="a duration from 10s to 24h", examples=['"1h"']
    )


class Placement(Document):
    """`placement:`."""

    spread: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="a whole number from 1 to 64", examples=[1]
    )
    bufferBytes: Annotated[int, _bytes("1MiB", "10000GiB")] = Field(
        default=10 << 30, description="a size from 1MiB to 10000GiB", examples=['"10GiB"']
    )


class Audit(Document):
    """`audit:`."""

    horizon: Annotated[float, _seconds("1m", "365d")] | None = Field(
        default=None, description="a duration from 1m to 365d", examples=['"7d"']
    )
    continuous: Annotated[float, BeforeValidator(units.share)] = Field(
        default=0.0, description=units.SHARE_EXPECTED, examples=['"1%"']
    )


class Top(Document):
    """The whole file; its blocks of named things are checked one by one."""

    name: Annotated[str, Field(pattern=NAME)] = Field(
        description=NAME_EXPECTED, examples=["wordcount"]
    )
    parallelism: Parallelism = Field(
        default=1, description=PARALLELISM_EXPECTED, examples=[4]
    )
    sources: dict[str, Any] = Field(
        min_length=1, description="at least one named source",
        examples=["{lines: {topic: lines, format: text}}"],
    )  # fmt: skip
    operators: dict[str, Any] = Field(
        default={}, description="operators by name",
        examples=['{words: {input: lines, sql: "..."}}'],
    )  # fmt: skip
    sinks: dict[str, Any] = Field(
        min_length=1, description="at least one named sink",
        examples=["{out: {input: lines, topic: copy, format: text}}"],
    )  # fmt: skip
    faultTolerance: FaultTolerance = Field(
        default=FaultTolerance(), description="a block of settings", examples=["{mode: exact}"]
    )
    errors: Errors = Field(
        default=Errors(), description="a block of settings", examples=["{tolerance: none}"]
    )
    epoch: Epoch = Field(
        default=Epoch(), description="a block of settings", examples=['{target: "500ms"}']
    )
    placement: Placement = Field(
        default=Placement(), description="a block of settings", examples=["{spread: 1}"]
    )
    audit: Audit = Field(
        default=Audit(), description="a block of settings", examples=['{horizon: "7d"}']
    )
