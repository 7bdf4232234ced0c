"""Computes net deltas and whole states from the files of a state log, without any operator.

    net(schema, [d1, d2, d3])      one delta with the effect of the three in sequence
    whole(schema, base, [d1, d2])  the snapshot of a primitive with `base` after `apply_all`

All keep the promise of deltas (`primitives`): the order of rows is the same. They work on columns
and build no index of the state, so a snapshot costs one pass over its rows. A primitive is known by
its declared schema, which a checkpoint's part contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from perseid.errors import DamagedFile
from perseid.state.durability.blob import Sections
from perseid.state.primitives import deltas as keyed
from perseid.state.primitives.arrow import ipc_bytes, ipc_chunks, ipc_table
from perseid.state.primitives.columns import conform, numbers
from perseid.state.primitives.dense import INDEX, VALUE
from perseid.state.primitives.pool import BEFORE
from perseid.state.primitives.undo import Values

STATE = "state."  # prefix of a primitive's section name
OUT = "out"  # the operator's output of the epoch; "out.late" for its output named late
SCHEMA = "schema"  # the schemas of all primitives as JSON

Schema = Mapping[str, Any]


def net_sections(schemas: Schema, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The state sections of the net delta of log entries, in their order."""
    deltas = list(entries)
    found: dict[str, Any] = {}
    for name, schema in schemas.items():
        tables = [ipc_table(d[STATE + name]) for d in deltas if STATE + name in d]
        if tables:
            found[STATE + name] = ipc_bytes(net(schema, tables, may_join=True))
    return found


def whole_sections(
    schemas: Schema, base: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The state sections of a snapshot: those of `base` with the deltas of log entries applied.

    A primitive without base and delta is empty and gets no section. Changed sections are lists of
    chunks that share memory with `base` (`arrow.ipc_chunks`).
    """
    deltas = list(entries)
    found: dict[str, Any] = {}
    for name, schema in schemas.items():
        section = base.get(STATE + name)
        tables = [ipc_table(d[STATE + name]) for d in deltas if STATE + name in d]
        if tables:
            table = ipc_table(section) if section is not None else None
            section = ipc_chunks(whole(schema, table, tables))
        if section is not None:
            found[STATE + name] = section
    return found


def emitted(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `sections` that hold outputs."""
    return {name: s for name, s in sections.items() if name.partition(".")[0] == OUT}


def schemas_of(sections: Sections, where: str) -> Schema:
    """The schemas in a part."""
    if SCHEMA not in sections:
        raise DamagedFile(f"{where} does not name what its state is: no section {SCHEMA!r}")
    found: Schema = orjson.loads(sections[SCHEMA])
    return found


def net(schema: Schema, deltas: Sequence[pa.Table], *, may_join: bool = False) -> pa.Table:
    """The net delta of `deltas`, at least one; `may_join`: see `deltas.net`."""
    kind = schema["kind"]
    if kind not in ("value", "pool", "vector", "matrix"):
        return keyed.net(list(schema["key"]), deltas, may_join=may_join)
    if kind == "value" or len(deltas) == 1:
        return deltas[-1]
    return _pool_net(schema, deltas) if kind == "pool" else _dense_net(deltas)


def whole(schema: Schema, base: pa.Table | None, deltas: Sequence[pa.Table]) -> pa.Table:
    """The snapshot after `deltas`, at least one; a `base` of None is an empty primitive."""
    kind = schema["kind"]
    if kind not in ("value", "pool", "vector", "matrix"):
        return keyed.whole(list(schema["key"]), base, deltas)
    delta = net(schema, deltas)
    if kind == "value":
        return delta
    return (_pool_whole if kind == "pool" else _dense_whole)(schema, base, delta)


# Vector, Matrix ---------------------------------------------------------------------------------


def _dense_net(deltas: Sequence[pa.Table]) -> pa.Table:
    full = max((i for i, d in enumerate(deltas) if INDEX not in d.schema.names), default=-1)
    if full >= 0:
        return _overwritten(deltas[full], deltas[full + 1 :])
    rows = pa.concat_tables(deltas).combine_chunks()
    cells: Values = rows[INDEX].to_numpy()[::-1]
    _, last = np.unique(cells, return_index=True)  # sorted by cell, the last row of each
    return rows.take(pa.array(len(cells) - 1 - last))


def _dense_whole(schema: Schema, base: pa.Table | None, delta: pa.Table) -> pa.Table:
    if INDEX not in delta.schema.names:
        return delta
    if base is None:
        size = schema["size"] if "size" in schema else schema["rows"] * schema["columns"]
        kind = delta.schema.field(VALUE).type
        base = pa.table({VALUE: pa.array(np.zeros(size, kind.to_pandas_dtype()), kind)})
    return _overwritten(base, [delta])


def _overwritten(full: pa.Table, deltas: Sequence[pa.Table]) -> pa.Table:
    values = full[VALUE].to_numpy().copy()
    for delta in deltas:
        values[delta[INDEX].to_numpy()] = delta[VALUE].to_numpy()
    return pa.table({VALUE: pa.array(values, full.schema.field(VALUE).type)})


# Pool -------------------------------------------------------------------------------------------


def _pool_net(schema: Schema, deltas: Sequence[pa.Table]) -> pa.Table:
    """The added rows that no later bound removed, with the highest bound."""
    came: list[pa.Table] = []
    for delta in deltas:
        came = [_since(schema, rows, _bound(delta)) for rows in came]
        came.append(delta.replace_schema_metadata(None))
    bounds = [bound for bound in map(_bound, deltas) if bound is not None]
    metadata = {BEFORE: str(max(bounds))} if bounds else {}
    return pa.concat_tables(came).replace_schema_metadata(metadata)


def _pool_whole(schema: Schema, base: pa.Table | None, delta: pa.Table) -> pa.Table:
    came = delta.replace_schema_metadata(None)
    if base is None:
        return came
    return pa.concat_tables([_since(schema, base, _bound(delta)), came])


def _since(schema: Schema, rows: pa.Table, bound: int | None) -> pa.Table:
    if bound is None or not len(rows):
        return rows
    time = rows[schema["time"]]
    times = numbers(conform(time, time.type, schema["time"])).astype(np.int64)
    return rows.filter(pa.array(times >= bound))


def _bound(delta: pa.Table) -> int | None:
    bound = (delta.schema.metadata or {}).get(BEFORE)
    return None if bound is None else int(bound)
