"""job.yaml to a JobSpec, or all its mistakes at once.

Each block is checked by itself (`shape`), then the well-formed blocks against each other
(`checks`), then against the files next to job.yaml. Mistakes raise JobFileErrors. Only a file
without mistakes is checked for features that are not built, or not together; these raise
JobFileRefused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from perseid.jobs.model.problems import JobFileErrors, JobFileRefused, Problem, shown
from perseid.jobs.model.spec import (
    AuditSpec,
    CheckpointSpec,
    EpochSpec,
    ErrorsSpec,
    EventTimeSpec,
    FaultToleranceSpec,
    JobSpec,
    OperatorSpec,
    PlacementSpec,
    SinkSpec,
    SourceSpec,
    pinned_file,
)
from perseid.jobs.validation import checks, feedback, files, shape, spreading, unbuilt
from perseid.jobs.validation import document as doc
from perseid.jobs.validation.yamlfile import FILE_BYTES_MAX, Node, YamlError, read

JOB_FILE = "job.yaml"
M = TypeVar("M", bound=BaseModel)


def load(folder: Path, label: str | None = None) -> JobSpec:
    """The job in `folder`. `label` names job.yaml in messages.

    Raises JobFileErrors with every mistake, or JobFileRefused.
    """
    label = label or JOB_FILE
    return _parse(_text(folder / JOB_FILE, label), label, folder)


def loads(text: str, label: str = JOB_FILE) -> JobSpec:
    """The same from text alone; the files next to it are not checked."""
    return _parse(text, label, None)


def _text(path: Path, label: str) -> str:
    def wrong(text: str) -> JobFileErrors:
        return JobFileErrors([Problem(label, 1, f"{label} {text}")])

    if path.is_symlink() or not path.is_file():
        raise wrong("is missing, expected a job's folder; type `perseid init DIR` for a first one")
    if path.stat().st_size > FILE_BYTES_MAX:
        raise wrong(f"is larger than {FILE_BYTES_MAX} bytes; make the job smaller")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong(f"is no UTF-8 (byte {error.start}); save it as UTF-8") from None


def _parse(text: str, label: str, folder: Path | None) -> JobSpec:
    try:
        root = read(text)
    except YamlError as error:
        raise JobFileErrors([Problem(label, error.line, f"{label} {error.text}")]) from None
    file = _File(root, label)
    top = file.block(doc.Top, root, "")
    draft = checks.Draft(
        top.name if top else str(file.at("name") or ""),
        file.section("sources", doc.Source),
        file.section("operators", doc.Operator),
        file.section("sinks", doc.Sink),
        top.errors if top else None,
        dict(file.reads()),
    )
    file.problems += [file.problem(path, text) for path, text in checks.all_of(draft)]
    if folder is not None:
        file.problems += [file.problem(path, text) for path, text in files.all_of(draft, folder)]
    if file.problems or top is None:
        raise JobFileErrors(file.problems)
    spec = _spec(top, draft)
    refusals = [*_refusals(top, draft), *spreading.all_of(spec)]
    if refusals:
        raise JobFileRefused(file.problem(path, text, refused=True) for path, text in refusals)
    return spec


class _File:
    """The nodes of one file and the problems found so far."""

    def __init__(self, root: Node, label: str) -> None:
        self.root, self.label = root, label
        self.problems: list[Problem] = []

    def at(self, key: str) -> Any:
        node = self.root.value.get(key) if isinstance(self.root.value, dict) else None
        return node.value if node else None

    def problem(self, path: tuple[str, ...], text: str, *, refused: bool = False) -> Problem:
        return Problem(self.label, self.root.line_of(path), text, refused)

    def block(self, model: type[M], node: Node, where: str) -> M | None:
        found, wrong = shape.check(model, node, where)
        self.problems += [Problem(self.label, line, text) for line, text in wrong]
        return found

    def section(self, kind: str, model: type[M]) -> dict[str, M | None]:
        """The named blocks of a section; those that are malformed are None."""
        section = self.at(kind)
        if not isinstance(section, dict):
            return {}
        found: dict[str, M | None] = {}
        for name, node in section.items():
            found[name] = self.block(model, node, f"{kind}.{shown(name)[1:-1]}")
        return found

    def reads(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The path of every input with the name that it reads, malformed blocks included."""
        for kind in ("operators", "sinks"):
            section = self.at(kind)
            for name, node in section.items() if isinstance(section, dict) else ():
                block = node.plain()
                if not isinstance(block, dict):
                    continue
                if isinstance(block.get("input"), str):
                    yield (kind, name, "input"), block["input"]
                inputs = block.get("inputs")
                for key, target in inputs.items() if isinstance(inputs, dict) else ():
                    if isinstance(target, str):
                        yield (kind, name, "inputs", key), target


def _refusals(top: doc.Top, draft: checks.Draft) -> Iterator[tuple[tuple[str, ...], str]]:
    for path, text in unbuilt.fault_tolerance(top.faultTolerance):
        yield ("faultTolerance", *path), f"{'.'.join(('faultTolerance', *path))}: {text}"
    sections: tuple[tuple[str, dict[str, Any]], ...] = (
        ("sources", draft.sources), ("operators", draft.operators),
    )  # fmt: skip
    for kind, section in sections:
        for name, block in section.items():
            for path, text in unbuilt.all_of(kind, block):
                yield (kind, name, *path), f"{'.'.join((kind, name, *path))}: {text}"


def _spec(top: doc.Top, draft: checks.Draft) -> JobSpec:
    tolerance = top.errors.tolerance
    dlq = top.errors.deadletterqueue.topic if top.errors.deadletterqueue else None
    bisects = any(o is not None and o.errors.operator == "bisect" for o in draft.operators.values())
    sources = {n: _source(n, s) for n, s in draft.sources.items() if s is not None}
    late = any(s.event_time and s.event_time.late == "dlq" for s in sources.values())
    if (late or bisects or tolerance == "all") and dlq is None:
        dlq = f"perseid.{top.name}.dlq"
    checkpoint = top.faultTolerance.checkpoint
    replicas: Literal[0, "all"] = "all" if top.faultTolerance.replicas.budget == "all" else 0
    return JobSpec(
        name=top.name,
        parallelism=top.parallelism,
        sources=sources,
        operators={
            n: _operator(o, top.parallelism) for n, o in draft.operators.items() if o is not None
        },
        sinks={n: _sink(n, s) for n, s in draft.sinks.items() if s is not None},
        fault_tolerance=FaultToleranceSpec(
            checkpoint=CheckpointSpec(period_s=checkpoint.period, size_timed=checkpoint.sizeTimed),
            replicas=replicas,
        ),
        errors=ErrorsSpec(tolerance=tolerance, deadletter_topic=dlq),
        epoch=EpochSpec(
            target_s=top.epoch.target, max_records=top.epoch.maxRecords,
            max_bytes=top.epoch.maxBytes, timeout_s=top.epoch.timeout,
        ),
        placement=PlacementSpec(
            spread=top.placement.spread, buffer_bytes=top.placement.bufferBytes
        ),
        audit=AuditSpec(horizon_s=top.audit.horizon, continuous=top.audit.continuous),
    )


def _source(name: str, block: doc.Source) -> SourceSpec:
    columns: Any = block.columns or {}
    timed = block.eventTime
    schema = block.schema_
    if block.format == "avro" and block.registry is not None:
        schema = schema or pinned_file("sources", name)
    return SourceSpec(
        topic=block.topic, format=block.format, columns=columns, schema_file=schema,
        registry=block.registry, start=block.start,
        event_time=_event_time(timed) if timed is not None else None,
    )  # fmt: skip


def _event_time(block: doc.EventTime) -> EventTimeSpec:
    return EventTimeSpec(
        column=block.column, delay_ms=round(block.watermark * 1000), late=block.late
    )


def _operator(block: doc.Operator, parallelism: int) -> OperatorSpec:
    return OperatorSpec(
        inputs=checks.inputs_of(block), sql=block.sql, use=block.use, key=block.key or (),
        parallelism=block.parallelism or parallelism, order=block.order, with_=block.with_,
        memory_bytes=block.memory, errors=block.errors.operator,
        feedback=tuple(feedback.edges(block)),
    )  # fmt: skip


def _sink(name: str, block: doc.Sink) -> SinkSpec:
    schema = block.schema_
    if block.registry is not None:
        schema = schema or pinned_file("sinks", name)
    registers = block.registry is not None and block.register_ is not False and bool(block.schema_)
    return SinkSpec(
        input=block.input, topic=block.topic, format=block.format, key=block.key,
        headers=block.headers, order=block.order, schema_file=schema, registry=block.registry,
        registers=registers, partitions=block.partitions,
    )  # fmt: skip
