"""Checks a job's sources and sinks against the deployment's schema registries when it is applied.

1. A registry that is not on the deployment's list is refused, with file and line.
2. A source or sink with a registry and no schema file gets the newest schema of the topic's
   subject. It is put into the job's archive: the columns of a revision never change, so replays
   agree, and applying again takes the then newest schema.
3. The registry must accept a sink's schema, or have it (`register: false`).
4. Schemas are registered only when all jobs may be applied; workers only look them up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perseid.errors import RefusedError
from perseid.jobs.model import avro_types
from perseid.jobs.model.problems import JobFileRefused, Problem, listed, nearest, shown
from perseid.jobs.model.spec import SinkSpec, SourceSpec, pinned_file
from perseid.jobs.model.trees import JOB_FILE, check_files
from perseid.jobs.validation import event_time, yamlfile
from perseid.topics.schema_registry import KINDS, Schema, SchemaRegistry, subject_of

if TYPE_CHECKING:
    from perseid.jobs.repository.job_folders import Validated

Registries = Mapping[str, SchemaRegistry]
Files = Mapping[str, bytes]
Block = SourceSpec | SinkSpec
NO_RECORD = "is of no record, so it has no columns"


def check_names(jobs: Sequence[Validated], names: Sequence[str]) -> None:
    """Raises JobFileRefused for registries that are none of `names`."""
    problems = [problem for job in jobs for problem in _strangers(job, names)]
    if problems:
        raise JobFileRefused(problems)


def _strangers(job: Validated, names: Sequence[str]) -> Iterator[Problem]:
    root = yamlfile.read(job.tree.files[JOB_FILE].decode("utf-8"))
    for kind, name, block in _with_registry(job):
        if block.registry in names:
            continue
        close = nearest(block.registry or "", names)
        write = f"write `registry: {close}`, or " if close else ""
        text = (
            f"{kind}.{name}.registry: found {shown(block.registry)}, which is not on the list of "
            f"this deployment ({listed(names)}); {write}add it with `perseid up "
            f"--schema-registries {block.registry}=URL`"
        )
        line = root.line_of((kind, name, "registry"))
        yield Problem(f"{job.tree.name}/{JOB_FILE}", line, text, refused=True)


def pinned(job: Validated, registries: Registries) -> Validated:
    """The job with the newest schemas of sources and sinks that name no file.

    Raises:
        RefusedError: a subject has no schema, or one of another kind.
        RetryableError: a registry does not answer.
    """
    files = dict(job.tree.files)
    for kind, name, block in _with_registry(job):
        place = pinned_file(kind, name)
        if block.schema_file == place:
            found = _newest(f"{job.spec.name}: {kind[:-1]} {name}", block, registries)
            if isinstance(block, SourceSpec) and block.format == "avro":
                _check_columns(job.spec.name, name, block, found)
            files[place] = found
    check_files(job.tree.name, files)
    return replace(job, tree=replace(job.tree, files=files))


def _check_columns(job: str, name: str, source: SourceSpec, schema: bytes) -> None:
    """Raises RefusedError for unreadable fields, and for an event time column without times."""
    avro = json.loads(schema)
    text = avro_types.refusal(avro) if isinstance(avro, dict) and "fields" in avro else NO_RECORD
    if text is not None:
        raise RefusedError(
            f"{job}: source {name}: the newest schema of subject {subject_of(source.topic)} in "
            f"schema registry {source.registry} {text}; write `schema: FILE` with an Avro schema "
            "next to job.yaml that has the other fields only: the rest of a record is skipped"
        )
    if source.event_time is not None:
        columns = event_time.avro_columns(avro)
        for _, text in event_time.check(("sources", name), source.event_time.column, columns):
            raise RefusedError(f"{job}: {text}")


def _newest(who: str, block: Block, registries: Registries) -> bytes:
    assert block.registry is not None, "only blocks with a registry are pinned"
    subject, wanted = subject_of(block.topic), KINDS[block.format]
    found = registries[block.registry].newest(subject)
    if found is None:
        raise RefusedError(
            f"{who}: schema registry {block.registry} has no subject {subject}; register a schema, "
            "or write `schema: FILE` with one next to job.yaml"
        )
    if found.kind != wanted:
        raise RefusedError(
            f"{who}: the newest schema of subject {subject} in schema registry {block.registry} is "
            f"{found.kind}, expected {wanted}; write the format that the topic has"
        )
    return found.text.encode()


def refusals(job: Validated, registries: Registries) -> Iterator[str]:
    """Why the registries would not accept the schemas of the job's sinks."""
    for name, sink in job.spec.sinks.items():
        if sink.registry is None:
            continue
        registry, subject = registries[sink.registry], subject_of(sink.topic)
        schema = _schema(sink, job.tree.files)
        if sink.registers:
            reasons = registry.objections(subject, schema)
            if reasons:
                yield (
                    f"sink {name}: schema registry {sink.registry} refuses {sink.schema_file} for "
                    f"subject {subject}: {'; '.join(reasons)}; change the schema so that it is "
                    "compatible, or write to another topic"
                )
        elif registry.id_of(subject, schema) is None:
            yield (
                f"sink {name}: {sink.schema_file} is not registered under subject {subject} of "
                f"schema registry {sink.registry}; register it there, or write `register: true`"
            )


def register(sinks: Mapping[str, SinkSpec], files: Files, registries: Registries) -> None:
    """Registers the sinks' schemas; existing registrations stay unchanged."""
    for sink in sinks.values():
        if sink.registers and sink.registry is not None:
            registries[sink.registry].register(subject_of(sink.topic), _schema(sink, files))


def _schema(sink: SinkSpec, files: Files) -> Schema:
    return Schema(KINDS[sink.format], files[str(sink.schema_file)].decode("utf-8"))


def _with_registry(job: Validated) -> Iterator[tuple[str, str, Block]]:
    sections: tuple[tuple[str, Mapping[str, Block]], ...] = (
        ("sources", job.spec.sources), ("sinks", job.spec.sinks),
    )  # fmt: skip
    for kind, section in sections:
        yield from ((kind, name, block) for name, block in section.items() if block.registry)
