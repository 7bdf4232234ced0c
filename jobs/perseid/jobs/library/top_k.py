"""The heaviest items of each group: `TopK`.

    top: {input: sales, key: country, use: "library:TopK", with: {of: product, k: 10}}
    top: {input: sales, key: country, use: "library:TopK",
          with: {of: [product, size], k: 3, sum: amount, types: {size: int64}}}

Ranks the items `of` each group (the key) by their number of rows, or by the `sum` of an int64
column. Once per epoch it emits the whole ranking of each group whose ranking has changed: the
group, `rank` (1 is the heaviest), the item, and `n` or `sum`. Among equals the smaller item comes
first, so a ranking depends only on the totals, not on the order of rows or the ends of epochs.

For one ranking over everything give all rows one group, `SELECT word, 'all' AS scope FROM input`:
rows are added up before the shuffle, so that one partition gets each item once per split.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.rows import added_up, among, different, numbered
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.state import Table
from perseid.state.primitives.keys import KeyFields, first_rows

RANK, TOTAL = "rank", "n"
K_MAX = 10_000  # rows that one group may emit in every epoch
EXAMPLES = {"of": "word", "k": "10", "sum": "amount", "types": "{word: int64}"}


def top_k(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `of` and `k`, `sum` unless rows are counted, and `types`."""
    given = Parameters(spec, "TopK", EXAMPLES)
    items = given.columns("of")
    types = given.types("types", dict.fromkeys([*spec.key, *items], "string"))
    groups = list(spec.key)
    k = given.whole("k", None, 1, K_MAX)
    summed = given.column("sum") if "sum" in given else None
    total = "n" if summed is None else "sum"
    given.distinct(f"the key, the items, {RANK} and {total}", [*groups, *items, RANK, total])
    group_types, item_types = ({n: types[n] for n in names} for names in (groups, items))
    columns = [*groups, *items]
    fields = KeyFields(types)

    class TopK(Operator):
        """The k heaviest items of each group."""

        output = pa.schema(
            [*group_types.items(), (RANK, pa.int64()), *item_types.items(), (total, pa.int64())]
        )
        metadata = metadata_among([*items, summed])
        totals = Table(key=types, n=pa.int64())
        ranking = Table(key={**group_types, RANK: pa.int64()}, **item_types, n=pa.int64())

        def combine(self, batch: pa.Table) -> pa.Table:
            return added_up(batch, fields, summed)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            changed = self.totals.add(batch.select(columns), n=batch[TOTAL])
            touched = different(changed.select(groups))
            ranked = self._ranked(touched)
            likely = candidates(self.totals, changed, ranked, groups, columns)
            found = ranking_of(likely, groups, items, k)
            held = self.ranking.lookup(found.select([*groups, RANK]))
            same = held["found"].to_numpy(zero_copy_only=False)
            for name in (*items, TOTAL):
                equal = pc.fill_null(pc.equal(held[name], found[name]), False)
                same = same & equal.to_numpy()
            moved = found.filter(pa.array(~same))
            self.ranking.upsert(
                moved.select([*groups, RANK]), **{name: moved[name] for name in (*items, TOTAL)}
            )
            emitted = found.filter(pa.array(among(found.select(groups), moved.select(groups))))
            out.emit(emitted.select([*groups, RANK, *items, TOTAL]).rename_columns(
                [*groups, RANK, *items, total]
            ))  # fmt: skip

        def _ranked(self, touched: pa.Table) -> pa.Table:
            """The previous rankings of the groups `touched`."""
            places = pa.array(np.repeat(np.arange(touched.num_rows), k))
            ranks = pa.array(np.tile(np.arange(1, k + 1), touched.num_rows))
            rows = self.ranking.lookup(touched.take(places).append_column(RANK, ranks))
            return rows.filter(rows["found"])

    return TopK


def candidates(
    totals: Table, changed: pa.Table, ranked: pa.Table, groups: list[str], columns: list[str]
) -> pa.Table:
    """Rows with their totals that contain the new rankings.

    These are the changed and the ranked rows: no other item can have overtaken one of them. But
    where a ranked item has lost weight, every item of its group can.
    """
    now = totals.lookup(ranked.select(columns)).drop_columns(["found"])
    rows = pa.concat_tables([changed, now])
    fell = pc.less(now[TOTAL], ranked[TOTAL])
    if pc.any(fell).as_py():
        everything = totals.scan()
        open_groups = ranked.filter(fell).select(groups)
        inside = among(everything.select(groups), open_groups)
        rows = pa.concat_tables([rows, everything.filter(pa.array(inside))])
    return rows.take(pa.array(first_rows(*numbered(rows.select(columns)))))


def ranking_of(rows: pa.Table, groups: list[str], items: list[str], k: int) -> pa.Table:
    """The first `k` of each group with their `rank`, groups in input order."""
    number, _ = numbered(rows.select(groups))
    order = pc.sort_indices(
        rows.append_column("__group", pa.array(number)),
        [("__group", "ascending"), (TOTAL, "descending"), *((i, "ascending") for i in items)],
    )
    ordered = number[order.to_numpy()]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(starts, append=len(ordered))) + 1
    kept = rank <= k
    chosen = rows.take(order.filter(pa.array(kept)))
    return chosen.append_column(RANK, pa.array(rank[kept]))
