"""Reads the columns of records in sink topics, so that a difference names those that differ.

JSON is read as it is, all other formats as a source of that format reads them
(`worker.formats.decode`). Their only column is `value` in text and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from perseid.errors import PermanentError, RetryableError

if TYPE_CHECKING:
    from pathlib import Path

    from perseid.jobs.model.spec import JobSpec, SinkSpec
    from perseid.records import Deployment
    from perseid.replay.differences import Columns, Decode
    from perseid.worker.formats.decode import Format

_FRAME_BYTES = 5  # of the Confluent wire format; no JSON begins with its 0 byte


@dataclass(frozen=True, slots=True)
class Revision:
    """A job's spec, and the folder of its files."""

    spec: JobSpec
    folder: Path

    def readers(self, topic: str) -> set[tuple[str, str, str]]:
        """How the records of `topic` are read: format, schema file's text and registry."""
        return {
            (sink.format, self._text(sink), sink.registry or "")
            for sink in self.spec.sinks.values() if sink.topic == topic
        }  # fmt: skip

    def _text(self, sink: SinkSpec) -> str:
        return (self.folder / sink.schema_file).read_text("utf-8") if sink.schema_file else ""


@dataclass
class SinkColumns:
    """`audited`, `recorded`: the revisions that have made the records and committed them.

    `why`: by topic, why no more columns are named.
    """

    deployment: Deployment
    audited: Revision
    recorded: Revision | None = None
    why: dict[str, str] = field(default_factory=dict)

    def of(self, topic: str) -> Decode | None:
        """None where several formats are mixed, or both revisions have other ones."""
        readers = self.audited.readers(topic)
        if self.recorded is not None:
            readers |= self.recorded.readers(topic)
        if len(readers) != 1:
            return None
        made: list[Decode] = []  # not before a record is read: a registry is asked then

        def decode(key: bytes | None, value: bytes | None) -> Columns | None:
            if topic in self.why:
                return None
            try:
                if not made:
                    made.append(_decode(self.deployment, *next(iter(readers))))
                return made[0](key, value)
            except (RetryableError, PermanentError) as error:
                self.why[topic] = f"columns that differ are not named, {error}"
                return None

        return decode


def _decode(deployment: Deployment, name: str, schema: str, registry: str) -> Decode:
    from perseid.worker.formats import decode, schemas

    if name == "json":
        return _json
    known = schemas.known(schemas.address(deployment, registry)) if registry else None
    avro = json.loads(schema) if schema else None
    return partial(_row, decode.make(name, None, avro, known))


def _row(found: Format, _key: bytes | None, value: bytes | None) -> Columns | None:
    table, refused = found.decode(pa.array([value], pa.binary()))
    row: Columns | None = None if refused else table.to_pylist()[0]
    return row


def _json(_key: bytes | None, value: bytes | None) -> Columns | None:
    text = value or b""
    try:
        found = orjson.loads(text[_FRAME_BYTES:] if text[:1] == b"\0" else text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, Mapping) else None
