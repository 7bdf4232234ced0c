"""Records to rows: all at once; if that fails each half, down to single records. Pure.

A bad record costs its batch about two more readings, not one per record. The result of a record
must not depend on its neighbours: `whole` may accept several records only if it would accept each
of them alone with the same row.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def rows(
    count: int,
    whole: Callable[[int, int], pa.Table | None],
    alone: Callable[[int], pa.Table | str],
    schema: pa.Schema,
) -> tuple[pa.Table, dict[int, str]]:
    """The rows of `count` records, and for each other record why it has none.

    `whole(start, end)`: a row for each of these records, None when one of them must be read alone;
    `alone(index)`: the row of one record, or why it is refused.
    """
    tables = [schema.empty_table()]
    refused: dict[int, str] = {}
    waiting = [(0, count)] if count else []
    while waiting:
        start, end = waiting.pop()
        table = whole(start, end) if end - start > 1 else None
        if table is None and end - start > 1:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
            continue
        found = alone(start) if table is None else table
        if isinstance(found, str):
            refused[start] = found
        else:
            tables.append(found)
    return (tables[1] if len(tables) == 2 else pa.concat_tables(tables).combine_chunks()), refused
