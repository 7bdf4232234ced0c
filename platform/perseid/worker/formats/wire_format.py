"""The Confluent wire format: a 0 byte, the schema's id (4 bytes, big-endian), the payload.

A batch is grouped by schema id, and each group is decoded at once with its writer's schema; the
rows come out in the order of the records. Records that do not fit are refused one by one with a
reason, as in every other format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.clocks import Clock, SystemClock
from perseid.topics.schema_registry import Schema, SchemaRegistry

Values: TypeAlias = pa.BinaryArray
Refusals = dict[int, str]
Decode = Callable[[Values], tuple[pa.Table, Refusals]]
DecoderOf = Callable[[Schema, int], Decode]  # from the writer's schema and its id

HEAD_BYTES = 5
_HEAD = np.dtype([("magic", "u1"), ("id", ">u4")])
_NONE = b"\xff\x00\x00\x00\x00"  # replaces the head of a value that has none
LAG_S = 0.5  # delay after which a replica of the registry knows a new id
FORGET_S = 30.0  # an unknown id is requested again after this time


def frame(number: int, payloads: pa.BinaryArray) -> pa.BinaryArray:
    """The payloads, each after the head with this schema id."""
    head = pa.scalar(b"\x00" + number.to_bytes(4, "big"), pa.binary())
    return pc.binary_join_element_wise(head, payloads, b"")


class KnownSchemas:
    """Schemas by id, each fetched once; unknown ids are requested twice, then not for FORGET_S."""

    def __init__(self, registry: SchemaRegistry, clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock: Clock = clock or SystemClock()
        self._known: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}  # until when each id counts as unknown

    def among(self, numbers: Iterable[int]) -> dict[int, Schema]:
        """The schemas of `numbers` that the registry knows; RetryableError without an answer."""
        now_s = self._clock.monotonic_s()
        numbers = set(numbers)
        missing = {n for n in numbers - self._known.keys() if self._unknown.get(n, now_s) <= now_s}
        missing = self._fetch(missing)
        if missing:
            self._clock.sleep(LAG_S)
            missing = self._fetch(missing)
        self._unknown.update(dict.fromkeys(missing, self._clock.monotonic_s() + FORGET_S))
        return {n: self._known[n] for n in numbers & self._known.keys()}

    def _fetch(self, numbers: set[int]) -> set[int]:
        """Fetches the schemas; returns the ids that are unknown."""
        found = {number: self._registry.by_id(number) for number in sorted(numbers)}
        self._known.update({number: schema for number, schema in found.items() if schema})
        return {number for number, schema in found.items() if schema is None}


class Framed:
    """Decodes values of the wire format into columns of `schema`."""

    def __init__(self, schemas: KnownSchemas, decoder_of: DecoderOf, schema: pa.Schema) -> None:
        self._schemas, self._decoder_of, self._schema = schemas, decoder_of, schema
        self._decoders: dict[int, Decode] = {}

    def decode(self, values: Values) -> tuple[pa.Table, Refusals]:
        """The rows that fit, and for each other row the reason.

        Raises:
            RetryableError: the registry does not answer.
        """
        plain = values.to_pylist()
        numbers, refused = _heads(plain)
        fitting = np.setdiff1d(np.arange(len(values)), list(refused))
        known = self._schemas.among(np.unique(numbers[fitting]).tolist())
        tables, places = [], []
        for number in np.unique(numbers[fitting]).tolist():
            rows = fitting[numbers[fitting] == number]
            if number not in known:
                reason = f"schema id {number} is not known to the registry"
                refused.update(dict.fromkeys(rows.tolist(), reason))
                continue
            payloads = [(plain[row] or b"")[HEAD_BYTES:] for row in rows.tolist()]
            table, bad = self._decoder(number, known[number])(pa.array(payloads, pa.binary()))
            refused.update({int(rows[index]): reason for index, reason in bad.items()})
            tables.append(table)
            places.append(np.delete(rows, list(bad)))
        return self._ordered(tables, places), refused

    def _decoder(self, number: int, schema: Schema) -> Decode:
        if number not in self._decoders:
            self._decoders[number] = self._decoder_of(schema, number)
        return self._decoders[number]

    def _ordered(self, tables: list[pa.Table], places: list[np.ndarray]) -> pa.Table:
        if not tables:
            return self._schema.empty_table()
        table = pa.concat_tables(tables)
        return table if len(tables) == 1 else table.take(np.argsort(np.concatenate(places)))


def _heads(values: Sequence[bytes | None]) -> tuple[np.ndarray, Refusals]:
    """The id of each value, and which values do not have the wire format."""
    cut = (v[:HEAD_BYTES] if v is not None and len(v) >= HEAD_BYTES else _NONE for v in values)
    heads = np.frombuffer(b"".join(cut), _HEAD)
    refused = {i: _reason(values[i]) for i in np.flatnonzero(heads["magic"]).tolist()}
    return heads["id"].astype(np.int64), refused


def _reason(value: bytes | None) -> str:
    expected = "expected the Confluent wire format (a 0 byte and a schema id of 4 bytes)"
    if value is None:
        return f"the value is null (a tombstone): {expected}"
    if len(value) < HEAD_BYTES:
        return f"the value has {len(value)} bytes: {expected}"
    return (
        f"the value begins with byte {value[0]}: {expected}; if the topic has no such ids, leave "
        "`registry` out of the source"
    )


def refuse_all(reason: str, schema: pa.Schema) -> Decode:
    """A decoder for an id whose schema can read no record."""
    return lambda values: (schema.empty_table(), dict.fromkeys(range(len(values)), reason))
