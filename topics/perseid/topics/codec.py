"""Control records as Avro, and back: single-object encoding with the schema's fingerprint.

    bytes = C3 01 | CRC-64-AVRO fingerprint, 8 bytes little-endian | Avro body

The schemas are in the folder `schemas`, one for each record. What only some records have are
further fields, in another schema of the same name: see `_MORE`. The folder `before` in it has those
of protocols whose data is taken over: they are read, never written. An unknown fingerprint was
written by another version of perseid: that is an error, never a guess.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from types import NoneType
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from perseid.errors import PermanentError
from perseid.records import WHOLE, PartFile
from perseid.topics import source_ranges
from perseid.topics.records import (
    Begin,
    BufferRecord,
    Claim,
    EpochDone,
    EpochsEqual,
    EventTime,
    EventTimes,
    FragmentState,
    InputCheck,
    LedgerRecord,
    OperatorState,
    PartDone,
    PartFailed,
    ProgressRecord,
    Redriven,
    RedrivenLetter,
    Rewind,
    SinkWindow,
    Token,
    TokenRecord,
)

Record = (
    Begin | Claim | Rewind | Token | EpochDone | EventTimes | PartDone | PartFailed
    | EpochsEqual | FragmentState | LedgerRecord | Redriven | BufferRecord
)  # fmt: skip

_MAGIC = b"\xc3\x01"
_HEADER_BYTES = 10
_CACHED_BYTES_MAX = 16_384  # of a record; a token of thousands of ranges is a megabyte in memory
_SIMPLE = (int, str, float, bytes, NoneType)
_TYPES: Mapping[str, type[Any]] = {
    t.__name__: t
    for t in (
        Begin, Claim, Rewind, Token, EpochDone, EventTimes, PartDone, PartFailed, FragmentState,
        LedgerRecord, Redriven, BufferRecord, EpochsEqual,
    )
}  # fmt: skip


_FRAGMENT = {"name": "fragment", "type": "string"}
_BUFFERED = {"name": "buffered", "type": {"type": "map", "values": "long"}}
_ENVIRONMENT = {"name": "environment", "type": {"type": "map", "values": "string"}}
# By record, the fields that follow where `_has_more`.
_MORE: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    EpochDone.__name__: (_FRAGMENT, _BUFFERED),
    EventTimes.__name__: (_FRAGMENT,),
    FragmentState.__name__: (_FRAGMENT,),
    LedgerRecord.__name__: (_ENVIRONMENT,),
    Token.__name__: ({"name": "whole", "type": "boolean"},),
}


class _Schema(NamedTuple):
    name: str
    parsed: Any
    header: bytes
    has_more: bool


def encode(record: Record) -> bytes:
    """The record as it is stored in a topic."""
    schema = _by_name()[type(record).__name__, _has_more(record)]
    out = io.BytesIO()
    out.write(schema.header)
    fastavro.schemaless_writer(out, schema.parsed, _plain(record))
    return out.getvalue()


def _has_more(record: Record) -> bool:
    """Whether a record is of a part of a job, or a token of what only such a job is asked for.

    Of a ledger: whether it names an environment.
    """
    if isinstance(record, Token):
        return record.whole
    if isinstance(record, LedgerRecord):
        return bool(record.environment)
    return getattr(record, "fragment", WHOLE) != WHOLE


def decode(data: bytes) -> Record:
    """The record in `data`; PermanentError when its schema is unknown or the bytes are damaged."""
    return _cached(data) if len(data) <= _CACHED_BYTES_MAX else _decoded(data)


def decode_token(topic: str, offset: int, data: bytes) -> TokenRecord:
    """A record of a token log; the PermanentError names the place."""
    record = _decoded_at((topic, 0), offset, data)
    if not isinstance(record, TokenRecord):
        raise _of_another_kind((topic, 0), offset, record, "a token log")
    return record


def decode_progress(topic: str, offset: int, data: bytes) -> ProgressRecord:
    """A record of a progress topic; the PermanentError names the place."""
    record = _decoded_at((topic, 0), offset, data)
    if not isinstance(record, ProgressRecord):
        raise _of_another_kind((topic, 0), offset, record, "a progress topic")
    return record


def decode_ledger(place: tuple[str, int], offset: int, data: bytes) -> LedgerRecord:
    """A record of a ledger partition; the PermanentError names the place."""
    record = _decoded_at(place, offset, data)
    if not isinstance(record, LedgerRecord):
        raise _of_another_kind(place, offset, record, "a ledger")
    return record


def decode_buffer(place: tuple[str, int], offset: int, data: bytes) -> BufferRecord:
    """A record of a buffer partition; the PermanentError names the place."""
    record = _decoded_at(place, offset, data)
    if not isinstance(record, BufferRecord):
        raise _of_another_kind(place, offset, record, "a buffer")
    return record


def _decoded_at(place: tuple[str, int], offset: int, data: bytes) -> Record:
    try:
        return decode(data)
    except PermanentError as error:
        raise PermanentError(f"{place[0]}[{place[1]}] at offset {offset}: {error}") from error


def _of_another_kind(
    place: tuple[str, int], offset: int, record: Record, topic: str
) -> PermanentError:
    return PermanentError(
        f"{place[0]}[{place[1]}] at offset {offset}: {type(record).__name__} is no record of "
        f"{topic}; was something else written to this topic?"
    )


@lru_cache(maxsize=256)  # a process has several readers of the same few records
def _cached(data: bytes) -> Record:
    return _decoded(data)


def _decoded(data: bytes) -> Record:
    schema = _by_header().get(data[:_HEADER_BYTES])
    if schema is None:
        raise PermanentError(
            f"control record starts with {data[:_HEADER_BYTES].hex()!r}, which names no schema of "
            "this version: it was written by another version of perseid, or it is no control "
            "record; run the version that wrote it"
        )
    body = io.BytesIO(data)
    body.seek(_HEADER_BYTES)
    try:
        values: Any = fastavro.schemaless_reader(body, schema.parsed, None)
    except (EOFError, IndexError, ValueError, OverflowError) as error:
        raise PermanentError(f"{schema.name} of {len(data)} bytes is damaged: {error!r}") from error
    if body.tell() != len(data):
        raise PermanentError(f"{schema.name} of {len(data)} bytes ends at {body.tell()}")
    if "reads" in values:
        values["splits"] = source_ranges.unpacked(values.pop("topics"), values.pop("reads"))
    elif "splits" in values:
        values["splits"] = source_ranges.of_protocol_3(values["splits"])
    values.update({k: f(values[k]) for k, f in _FROM_AVRO.items() if k in values})
    record: Record = _TYPES[schema.name](**values)
    return record


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, to any depth; the checksum as its eight bytes."""
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    names = getattr(value, "__dataclass_fields__", None)
    if names is None:
        return value
    packed = source_ranges.packed(value.splits) if isinstance(value, Token) else {}
    plain = {n: _plain(getattr(value, n)) for n in names if not (packed and n == "splits")} | packed
    if isinstance(value, SinkWindow):
        plain["checksum"] = value.checksum.to_bytes(8, "big")
    return plain


def _window(values: dict[str, Any]) -> SinkWindow:
    return SinkWindow(**{**values, "checksum": int.from_bytes(values["checksum"], "big")})


_FROM_AVRO: Mapping[str, Callable[[Any], Any]] = {
    "checks": lambda checks: tuple(InputCheck(**c) for c in checks),
    "states": lambda states: tuple(OperatorState(**s) for s in states),
    "outputs": lambda windows: tuple(_window(w) for w in windows),
    "chain": lambda files: tuple(PartFile(**f) for f in files),
    "times": lambda times: tuple(EventTime(**t) for t in times),
    "letters": lambda letters: tuple(RedrivenLetter(**one) for one in letters),
    "events": tuple,
}


@cache
def _schemas() -> tuple[_Schema, ...]:
    found = []
    for raw in _raw("schemas"):
        found.append(_schema(raw, has_more=False))
        if raw["name"] in _MORE:
            more = {**raw, "fields": [*raw["fields"], *_MORE[raw["name"]]]}
            found.append(_schema(more, has_more=True))
    return tuple(found)


def _raw(*folder: str) -> Iterator[dict[str, Any]]:
    for file in resources.files("perseid.topics").joinpath(*folder).iterdir():
        if file.is_file():
            yield json.loads(file.read_text())


def _schema(raw: dict[str, Any], *, has_more: bool) -> _Schema:
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO"))
    parsed = fastavro.parse_schema(raw, named_schemas={})
    return _Schema(raw["name"], parsed, _MAGIC + mark, has_more)


@cache
def _by_name() -> dict[tuple[str, bool], _Schema]:
    return {(s.name, s.has_more): s for s in _schemas()}


@cache
def _by_header() -> dict[bytes, _Schema]:
    before = [_schema(raw, has_more=False) for raw in _raw("schemas", "before")]
    return {s.header: s for s in (*_schemas(), *before)}
