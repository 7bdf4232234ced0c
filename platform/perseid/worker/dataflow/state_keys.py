"""Parses a key as typed by the user into typed key columns, and finds its partition.

    ann            for a key with one column
    user=ann,day=2026-11-22
    {"user": "ann", "day": "2026-11-22"}

Types are those of the state. Columns may be left out: then all rows that match are meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import PermanentError, UsageError
from perseid.worker.dataflow.partition import partitions

Key = dict[str, pa.Scalar]
Types = Mapping[str, pa.DataType]


def parse(text: str, types: Types) -> Key:
    """The columns that `text` names; UsageError, which describes the key, if it does not fit."""
    given = _given(text, list(types))
    unknown = [name for name in given if name not in types]
    if unknown:
        raise UsageError(f"--key {text[:80]!r}: no key column {unknown[0]!r}; {_like(types)}")
    return {name: _typed(name, value, types[name]) for name, value in given.items()}


def partition_of(key: Key, columns: tuple[str, ...], count: int) -> int | None:
    """The partition of `key`; None when its columns do not determine it.

    `columns` are those by which the job distributes rows. A state key of one column corresponds to
    an operator key of one column, whatever their names.
    """
    named = dict(key)
    if len(columns) == 1 and len(key) == 1:
        named = {columns[0]: next(iter(key.values()))}
    if not set(columns) <= named.keys():
        return None
    row = pa.table({name: pa.array([named[name].as_py()], named[name].type) for name in columns})
    try:
        return int(partitions(row, columns, count)[0])
    except PermanentError:  # rows are not distributed by this type, so it is another key
        return None


def rows_with(key: Key, rows: pa.Table) -> pa.Table:
    """The rows of a snapshot that match `key`."""
    mask = np.ones(rows.num_rows, bool)
    for name, value in key.items():
        mask &= pc.equal(rows[name], value).to_numpy()
    return rows.filter(pa.array(mask))


def _given(text: str, names: list[str]) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise UsageError(f"--key {text[:80]!r} is not valid JSON: {error}") from None
        return dict(found)
    parts = [part.partition("=") for part in text.split(",")]
    if all(mark and name in names for name, mark, _ in parts):
        return {name: value for name, _, value in parts}
    if len(names) == 1:
        return {names[0]: text}
    return {name: value for name, _, value in parts}


def _typed(name: str, value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        if isinstance(value, str):
            return pa.array([value], pa.string()).cast(kind)[0]
        return pa.array([value], kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UsageError(
            f"--key: key column {name!r} is of type {kind}, found {value!r}: {error}"
        ) from None


def _like(types: Types) -> str:
    shown = ", ".join(f"{name} ({kind})" for name, kind in types.items())
    example = ",".join(f"{name}=..." for name in types)
    return f"the key has {shown}; write `--key {'VALUE' if len(types) == 1 else example}`"
