"""Entries as JSON with a format version and a CRC-32, at most 256 KiB.

The CRC covers the kind and the canonical JSON of the body, so a node that was edited by hand, cut
off or replaced by another kind is detected.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from perseid.errors import DamagedFile, PermanentError
from perseid.records import Plan
from perseid.registry import plan_form

FORMAT = 1

# ZooKeeper refuses about 1 MiB by closing the connection, which looks like a network fault and
# would suspend the leader. No entry comes near this limit.
ENTRY_BYTES_MAX = 256 * 1024

Entry = TypeVar("Entry")
_adapters: dict[Any, TypeAdapter[Any]] = {}  # making one takes a millisecond


def encode(entry: object) -> bytes:
    """The node's content for a dataclass of `perseid.records`."""
    kind = type(entry).__name__
    body = _adapter(type(entry)).dump_python(entry, mode="json")
    if isinstance(entry, Plan):
        body = plan_form.written(body)
    data = orjson.dumps({"format": FORMAT, "kind": kind, "crc": _crc(kind, body), "body": body})
    if len(data) > ENTRY_BYTES_MAX:
        raise PermanentError(
            f"a {kind} of {len(data)} bytes is larger than the {ENTRY_BYTES_MAX} bytes that an "
            "entry may have; large content belongs into the checkpoint store or a topic"
        )
    return data


def decode(data: bytes, kind: type[Entry], path: str) -> Entry:
    """The entry in `data`, or DamagedFile naming `path` when it is not a valid `kind`."""
    asked: Any = kind
    entry: Entry = _decoded(data, asked, path)
    return entry


@lru_cache(maxsize=64)  # workers read the same few entries several times a second
def _decoded(data: bytes, kind: type[Any], path: str) -> Any:
    try:
        document = orjson.loads(data)
        if document["format"] != FORMAT:
            raise DamagedFile(
                f"{path} has format {document['format']}, this version reads {FORMAT}"
            )
        body = document["body"]
        if document["kind"] != kind.__name__ or document["crc"] != _crc(kind.__name__, body):
            raise DamagedFile(f"{path} does not hold a {kind.__name__} with a right checksum")
        return _adapter(kind).validate_python(plan_form.read(body) if kind is Plan else body)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
        raise DamagedFile(f"{path} does not hold a {kind.__name__}: {error}") from error


def _crc(kind: str, body: Any) -> int:
    return zlib.crc32(orjson.dumps(body, option=orjson.OPT_SORT_KEYS), zlib.crc32(kind.encode()))


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]
