"""Net deltas and whole states out of the files of a state log, without any operator.

    net(schema, [d1, d2, d3])      one delta that does what the three do, one after the other
    whole(schema, base, delta)     the snapshot of a primitive with `base` after `apply(delta)`
    joined(schema, [d1, d2, d3])   the three as they are, where a net delta would hardly be smaller

All keep the promise of deltas (`primitives`): the order of rows is what it would have been. They
work on columns alone and build no index of the state, so a snapshot costs a pass over its rows. A
primitive is known by the schema that it declares; a checkpoint's part carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from perseid.errors import DamagedFile
from perseid.state.arrow import ipc_bytes, ipc_table
from perseid.state.blob import Sections
from perseid.state.columns import numbers
from perseid.state.dense import INDEX, VALUE
from perseid.state.keyed import DELETED
from perseid.state.keys import codes
from perseid.state.pairs import groups, indexes
from perseid.state.pool import BEFORE
from perseid.state.undo import Values

STATE = "state."  # in front of a primitive's name: its section
OUT = "out"  # what the operator emitted in the epoch; "out.late" to its output named late
SCHEMA = "schema"  # the schemas of all primitives as JSON

JOINED = b"joined"  # in a delta's metadata: how many are in it, one behind the other
JOINED_ROWS = 50_000  # fewer are merged in no time
JOINED_SHARE = 2 / 3  # of different keys among the rows: a net delta would save a third at most
SAMPLE = 1_024

Schema = Mapping[str, Any]


def net_sections(schemas: Schema, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The state sections of the net delta of log entries, in their order."""
    deltas = list(entries)
    found: dict[str, Any] = {}
    for name, schema in schemas.items():
        tables = [ipc_table(d[STATE + name]) for d in deltas if STATE + name in d]
        if tables:
            change = joined(schema, tables)
            found[STATE + name] = ipc_bytes(net(schema, tables) if change is None else change)
    return found


def whole_sections(
    schemas: Schema, base: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The state sections of a snapshot: those of `base` with the deltas of log entries applied.

    A primitive that has neither is empty and gets no section.
    """
    deltas = list(entries)
    found: dict[str, Any] = {}
    for name, schema in schemas.items():
        section = base.get(STATE + name)
        tables = [ipc_table(d[STATE + name]) for d in deltas if STATE + name in d]
        if tables:
            table = ipc_table(section) if section is not None else None
            section = ipc_bytes(whole(schema, table, net(schema, tables)))
        if section is not None:
            found[STATE + name] = section
    return found


def emitted(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `sections` that have outputs."""
    return {name: s for name, s in sections.items() if name.partition(".")[0] == OUT}


def schemas_of(sections: Sections, where: str) -> Schema:
    """The schemas that a part carries."""
    if SCHEMA not in sections:
        raise DamagedFile(f"{where} does not say what its state is: no section {SCHEMA!r}")
    found: Schema = orjson.loads(sections[SCHEMA])
    return found


def net(schema: Schema, deltas: Sequence[pa.Table]) -> pa.Table:
    """The net delta of `deltas`, of which there is at least one; some may be joined ones."""
    if len(deltas) == 1 and not _is_joined(deltas[0]):
        return deltas[0]
    kind = schema["kind"]
    if kind == "value":
        return deltas[-1]
    if kind == "pool":
        return _pool_net(schema, deltas)
    if kind in ("vector", "matrix"):
        return _dense_net(deltas)
    return _keyed_net(list(schema["key"]), deltas)


def whole(schema: Schema, base: pa.Table | None, delta: pa.Table) -> pa.Table:
    """The snapshot after `delta`; a `base` of None is an empty primitive."""
    kind = schema["kind"]
    if kind == "value":
        return delta
    if kind == "pool":
        return _pool_whole(schema, base, delta)
    if kind in ("vector", "matrix"):
        return _dense_whole(schema, base, delta)
    return _keyed_whole(list(schema["key"]), base, delta)


def joined(schema: Schema, deltas: Sequence[pa.Table]) -> pa.Table | None:
    """All rows of `deltas`, one delta behind the other, to be read by `net` and `whole` alone.

    None when net deltas are to be made: of other kinds than rows by one key, or when most keys
    come again and again. To find that out takes at most a fifth of the time of a net delta.
    """
    keys = list(schema.get("key", ()))
    if len(deltas) < 2 or len(keys) != 1 or schema["kind"] == "pool":
        return None
    rows = pa.concat_tables(deltas)
    if len(rows) < JOINED_ROWS or _distinct_share(rows[keys[0]]) < JOINED_SHARE:
        return None
    return rows.replace_schema_metadata({JOINED: str(len(deltas))})


def _is_joined(delta: pa.Table) -> bool:
    return JOINED in (delta.schema.metadata or {})


def _distinct_share(keys: pa.ChunkedArray) -> float:
    """Different keys among all rows, estimated: the mean of 1/n of rows whose key comes n times."""
    chosen = keys.take(pa.array(np.linspace(0, len(keys) - 1, SAMPLE).astype(np.int64)))
    sample = _array(chosen).unique()
    places = indexes(keys, sample)
    times = np.bincount(places[places >= 0], minlength=len(sample))
    return float(np.mean(1.0 / times[indexes(chosen, sample)]))


# Table, Set, Timers -----------------------------------------------------------------------------


def _keyed_net(keys: list[str], deltas: Sequence[pa.Table]) -> pa.Table:
    """Of each key its last row, behind a deletion if any delta has one.

    A key has its place since its first row after its last deletion; what was there before all
    deltas and was not deleted keeps its own place anyway.
    """
    rows = pa.concat_tables([d.replace_schema_metadata(None) for d in deltas]).combine_chunks()
    deleted = _deleted(rows)
    key_of, count = codes(tuple(_array(rows[name]) for name in keys))
    gone = _last(key_of, np.flatnonzero(deleted), count)
    written = _last(key_of, np.flatnonzero(~deleted), count)
    kept = np.flatnonzero(written > gone)
    since = np.flatnonzero(~deleted & (np.arange(len(rows)) > gone[key_of]))
    first = np.full(count, -1)
    first[key_of[since[::-1]]] = since[::-1]
    order = kept[np.argsort(first[kept], kind="stable")]
    return rows.take(pa.array(np.concatenate([gone[gone >= 0], written[order]])))


def _keyed_whole(keys: list[str], base: pa.Table | None, delta: pa.Table) -> pa.Table:
    rows, gone = delta, delta.slice(0, 0)
    if DELETED in delta.schema.names:
        deleted = _deleted(delta)
        rows, gone = delta.filter(pa.array(~deleted)), delta.filter(pa.array(deleted))
        rows = rows.drop_columns([DELETED])
    rows = rows.combine_chunks()
    if base is None or not len(base):
        return rows
    base = base.combine_chunks()
    new = _rows_of(keys, rows, base)  # for each row of the base its new one, -1 if it has none
    stays = _rows_of(keys, gone, base) < 0
    known = np.zeros(len(rows), bool)
    known[new[stays & (new >= 0)]] = True
    more = np.flatnonzero(~known)
    changed = np.where(new >= 0, new + len(base), np.arange(len(base)))[stays]
    # Keys, which are most of the bytes, are copied only where some of them go.
    kept = base.select(keys) if stays.all() else base.select(keys).filter(pa.array(stays))
    found = pa.concat_tables([kept, rows.select(keys).take(pa.array(more))])
    values = [name for name in base.schema.names if name not in keys]
    both = pa.concat_tables([base.select(values), rows.select(values)]).combine_chunks()
    taken = both.take(pa.array(np.concatenate([changed, more + len(base)])))
    return pa.table([*found.columns, *taken.columns], names=[*keys, *values]).select(
        base.schema.names
    )


def _rows_of(keys: list[str], rows: pa.Table, base: pa.Table) -> Values:
    """For each row of `base`, which of `rows` (different keys) has its key, or -1."""
    if not len(rows):
        return np.full(len(base), -1)
    return groups(tuple(_array(rows[name]) for name in keys), [_array(base[n]) for n in keys])


def _deleted(rows: pa.Table) -> Values:
    if DELETED not in rows.schema.names:
        return np.zeros(len(rows), bool)
    flags: Values = rows[DELETED].to_numpy()
    return flags.astype(bool)


def _last(key_of: Values, rows: Values, count: int) -> Values:
    """The last of `rows` (rising) for each key, -1 without one."""
    last = np.full(count, -1)
    last[key_of[rows]] = rows  # of a repeated index the last value stays
    return last


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


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
    """The rows that came and no later bound took out, with the highest bound."""
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
    times = numbers(_array(rows[schema["time"]])).astype(np.int64)
    return rows.filter(pa.array(times >= bound))


def _bound(delta: pa.Table) -> int | None:
    bound = (delta.schema.metadata or {}).get(BEFORE)
    return None if bound is None else int(bound)
