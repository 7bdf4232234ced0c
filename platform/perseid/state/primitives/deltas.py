"""Deltas of rows by key (`Table`, `Set`, `Timers`): their two forms, and net deltas.

    by key   key columns, columns, `__deleted`: deleted keys, then changed rows
    by row   key columns, columns, `__row`: changed rows by their index in the order of rows; new
             rows follow all existing ones, and only they have their keys

Rows have an order, which deltas keep (`primitives`), so an index names an existing row as well as
its key does. By row, the keys of existing rows are neither written nor searched: with long keys
they would be most of a delta, and merging needs no hashing. An epoch without deletions, of rows
without holes (`rows`), is written by row; all others by key. Neighbouring deltas of one form merge
into one of that form. Where the forms change, the parts are concatenated ("joined"); so are deltas
by key with mostly different keys, since a net delta would hardly be smaller
(`merging.net_sections`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa

from perseid.errors import DamagedFile
from perseid.state.primitives.columns import conform
from perseid.state.primitives.keys import codes
from perseid.state.primitives.pairs import groups, indexes
from perseid.state.primitives.undo import Slots, Values

DELETED = "__deleted"
ROW = "__row"

COUNT = b"rows"  # metadata of a delta by row: the number of rows before it
JOINED = b"joined"  # metadata: keys may repeat, or both forms occur
JOINED_ROWS = 50_000  # merging fewer takes almost no time
JOINED_SHARE = 2 / 3  # of different keys among the rows: a net delta would save a third at most
SAMPLE = 1_024


def by_key(gone: pa.Table, rows: pa.Table) -> pa.Table:
    """Deleted keys (key columns alone) and changed rows; a key that came back is in both."""
    parts = [_flagged(rows.slice(0, 0), False), _flagged(gone, True), _flagged(rows, False)]
    return pa.concat_tables(parts, promote_options="default")  # the empty one orders columns


def by_row(
    keys: Mapping[str, pa.Array], columns: Mapping[str, pa.Array], places: Slots, count: int
) -> pa.Table:
    """Changed rows at `places`, ascending, of `count` before; `keys`: of the new rows."""
    found = {name: _after_nulls(array, len(places)) for name, array in keys.items()}
    rows = pa.table({**found, **columns, ROW: pa.array(places.astype(np.uint32))})
    return rows.replace_schema_metadata({COUNT: b"%d" % count})


def is_by_row(delta: pa.Table) -> bool:
    """The form of a delta that has only one (`runs`)."""
    return ROW in delta.schema.names


def placed(delta: pa.Table, count: int) -> tuple[Slots, int]:
    """The places of a delta by row, and how many of them are among the `count` rows before.

    DamagedFile when it was made for another number of rows.
    """
    places = delta[ROW].to_numpy().astype(np.int64)
    known = int(np.searchsorted(places, count))
    before = int((delta.schema.metadata or {}).get(COUNT, count))
    if before != count or not np.array_equal(
        places[known:], np.arange(count, count + len(places) - known)
    ):
        raise DamagedFile(
            f"a delta for {before} rows with new ones at {places[known : known + 1]} was found for "
            f"a state of {count} rows: it was made for another one"
        )
    return places, known


def runs(
    keys: Sequence[str], deltas: Sequence[pa.Table], *, may_join: bool = False
) -> list[pa.Table]:
    """`deltas` merged into deltas of one form, each key once, in order.

    `may_join`: as in `net`; keys may then repeat in those by key.
    """
    parts = [part for delta in deltas for part in _forms(delta)]
    return [_net(keys, list(run), may_join=may_join) for _, run in groupby(parts, is_by_row)]


def net(keys: Sequence[str], deltas: Sequence[pa.Table], *, may_join: bool = False) -> pa.Table:
    """One delta with the effect of `deltas`, at least one, in sequence.

    `may_join`: those by key may stay unmerged if most keys occur once. Testing this takes at most a
    fifth of the time of a net delta.
    """
    nets = runs(keys, deltas, may_join=may_join)
    return nets[0] if len(nets) == 1 else _joined(nets)


def whole(keys: Sequence[str], base: pa.Table | None, deltas: Sequence[pa.Table]) -> pa.Table:
    """The snapshot `base`, None being empty, after `deltas`, at least one."""
    for run in runs(keys, deltas):
        base = (_whole_by_row if is_by_row(run) else _whole_by_key)(keys, base, run)
    assert base is not None, "a delta has a row at least"
    return base.replace_schema_metadata(None)


def _forms(delta: pa.Table) -> Iterator[pa.Table]:
    """The parts of one form that were concatenated."""
    if ROW not in delta.schema.names or DELETED not in delta.schema.names:
        yield delta
        return
    keyed = delta[ROW].is_null().to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(keyed)) + 1), len(keyed)]
    for start, stop in pairwise(edges):
        unused = ROW if keyed[start] else DELETED
        yield delta.slice(start, stop - start).drop_columns([unused])


def _net(keys: Sequence[str], parts: list[pa.Table], *, may_join: bool) -> pa.Table:
    """The net delta of parts of one form."""
    if len(parts) == 1 and JOINED not in (parts[0].schema.metadata or {}):
        return parts[0]
    rows = pa.concat_tables([part.replace_schema_metadata(None) for part in parts])
    if is_by_row(rows):
        return _net_by_row(keys, rows.combine_chunks(), parts[0].schema.metadata)
    if may_join and len(rows) >= JOINED_ROWS and len(keys) == 1:
        if _distinct_share(rows[keys[0]]) >= JOINED_SHARE:
            return _joined([rows])
    return _net_by_key(keys, rows.combine_chunks())


def _joined(parts: list[pa.Table]) -> pa.Table:
    found = pa.concat_tables(
        [part.replace_schema_metadata(None) for part in parts], promote_options="default"
    )
    return found.replace_schema_metadata({JOINED: b""})


def _distinct_share(keys: pa.ChunkedArray) -> float:
    """The estimated share of different keys: the mean of 1/n over rows whose key occurs n times."""
    chosen = keys.take(pa.array(np.linspace(0, len(keys) - 1, SAMPLE).astype(np.int64)))
    sample = _array(chosen).unique()
    places = indexes(keys, sample)
    times = np.bincount(places[places >= 0], minlength=len(sample))
    return float(np.mean(1.0 / times[indexes(chosen, sample)]))


# By row -----------------------------------------------------------------------------------------


def _net_by_row(
    keys: Sequence[str], rows: pa.Table, metadata: Mapping[bytes, bytes] | None
) -> pa.Table:
    """Of each place its last row, with the key of its first if it was new."""
    places = rows[ROW].to_numpy().astype(np.int64)
    last = np.full(int(places.max(initial=-1)) + 1, -1)
    last[places] = np.arange(len(places))  # of a repeated index the last value stays
    kept = np.flatnonzero(last >= 0)
    new = rows[keys[0]].is_valid()
    added = places[new.to_numpy()]
    if not np.array_equal(added, kept[len(kept) - len(added) :]):
        raise DamagedFile("deltas by row that add the same row: they are not of one state")
    columns = rows.drop_columns([*keys, ROW]).take(pa.array(last[kept]))
    found = {name: _after_nulls(_array(rows[name].filter(new)), len(kept)) for name in keys}
    found.update((name, columns[name]) for name in columns.schema.names)
    places = pa.array(kept.astype(np.uint32))
    return pa.table({**found, ROW: places}).replace_schema_metadata(metadata)


def _whole_by_row(keys: Sequence[str], base: pa.Table | None, delta: pa.Table) -> pa.Table:
    count = 0 if base is None else len(base)
    places, known = placed(delta, count)
    rows = delta.drop_columns([ROW])
    if base is None or not count:
        return rows
    index = np.arange(count + len(places) - known)
    index[places] = np.arange(len(places)) + count
    new = rows.slice(known)
    return _replaced(keys, base.select(keys), new.select(keys), base, rows, index)


def _after_nulls(array: pa.Array, count: int) -> pa.Array:
    if len(array) == count:
        return array
    return pa.concat_arrays([pa.nulls(count - len(array), array.type), array])


# By key -----------------------------------------------------------------------------------------


def _net_by_key(keys: Sequence[str], rows: pa.Table) -> pa.Table:
    """Of each key its last row, after a deletion if any delta has one.

    A key's place is that of its first row after its last deletion; a key that existed before all
    deltas and was not deleted keeps its old place.
    """
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


def _whole_by_key(keys: Sequence[str], base: pa.Table | None, delta: pa.Table) -> pa.Table:
    deleted = _deleted(delta)
    names = [name for name in delta.schema.names if name != DELETED]
    rows = delta.select(names).filter(pa.array(~deleted)).combine_chunks()
    if base is None or not len(base):
        return rows
    new = _rows_of(keys, rows, base)  # for each row of the base the index of its new row, or -1
    stays = _rows_of(keys, delta.filter(pa.array(deleted)), base) < 0
    known = np.zeros(len(rows), bool)
    known[new[stays & (new >= 0)]] = True
    more = np.flatnonzero(~known)
    changed = np.where(new >= 0, new + len(base), np.arange(len(base)))[stays]
    # Keys, which are most of the bytes, are copied only if some of them are removed.
    kept = base.select(keys) if stays.all() else base.select(keys).filter(pa.array(stays))
    added = rows.select(keys).take(pa.array(more))
    index = np.concatenate([changed, more + len(base)])
    return _replaced(keys, kept, added, base, rows, index)


def _replaced(
    keys: Sequence[str], kept: pa.Table, added: pa.Table,
    base: pa.Table, rows: pa.Table, index: Slots,
) -> pa.Table:  # fmt: skip
    """The keys `kept` and `added`; the columns at `index` in those of `base` and then `rows`."""
    found = pa.concat_tables([kept, added])
    values = [name for name in base.schema.names if name not in keys]
    both = pa.concat_tables([base.select(values), rows.select(values)]).combine_chunks()
    taken = both.take(pa.array(index))
    return pa.table([*found.columns, *taken.columns], names=[*keys, *values]).select(
        base.schema.names
    )


def _rows_of(keys: Sequence[str], rows: pa.Table, base: pa.Table) -> Values:
    """For each row of `base`, which of `rows` (different keys) has its key, or -1."""
    if not len(rows):
        return np.full(len(base), -1)
    return groups(tuple(_array(rows[name]) for name in keys), [base[n] for n in keys])


def _flagged(rows: pa.Table, deleted: bool) -> pa.Table:
    return rows.append_column(DELETED, pa.array(np.full(len(rows), deleted)))


def _deleted(rows: pa.Table) -> Values:
    if DELETED not in rows.schema.names:  # a primitive that never deletes omits it
        return np.zeros(len(rows), bool)
    flags: Values = rows[DELETED].to_numpy()
    return flags.astype(bool)


def _last(key_of: Values, rows: Values, count: int) -> Values:
    """The last of `rows` (ascending) for each key, -1 without one."""
    last = np.full(count, -1)
    last[key_of[rows]] = rows  # of a repeated index the last value stays
    return last


def _array(column: pa.ChunkedArray) -> pa.Array:
    return conform(column, column.type, "a key")
