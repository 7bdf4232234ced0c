"""Revisions of the planted job that differ in one place, with what an audit must find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from support.planted import Edits


def rows(expression: str) -> Edits:
    """What `planted` returns in the place of `rows`."""
    return [("    return rows\n", f"    return {expression}\n")]


@dataclass(frozen=True)
class Case:
    """`edits`: with {at}, {end}, ... of `PlantedJob.places`.

    `kind`, `fields`: of a cause in the first epoch that differs, which is the one of the row that
    `row` names. `shown`: whether a sample of that cause has the row.
    """

    name: str
    edits: Edits
    kind: str = ""
    fields: tuple[str, ...] = ()
    row: str = "at"
    shown: bool = True
    operator: str = "sums"
    verdict: str = "diverged"
    tolerances: tuple[str, ...] = ()

    def edits_of(self, places: Mapping[str, int]) -> Edits:
        return [(old, new.format(**places)) for old, new in self.edits]


NEXT_FLOAT = rows(
    '[r | {{"total": math.nextafter(r["total"], math.inf)}} if r["i"] == {at} else r for r in rows]'
)
ALWAYS = [
    Case("value", rows('[r | {{"n": r["n"] + (r["i"] == {at})}} for r in rows]'), "value", ("n",)),
    Case("value among foreign records",
         rows('[r | {{"n": r["n"] + (r["i"] == {foreign})}} for r in rows]'), "value", ("n",),
         row="foreign"),
]  # fmt: skip
FURTHER = [
    Case("missing", rows('[r for r in rows if r["i"] != {at}]'), "missing"),
    Case("doubled", rows('[r for r in rows for _ in range(1 + (r["i"] == {at}))]'), "added"),
    Case("reordered",
         rows('sorted(rows, key=lambda r: {{{at}: {next}, {next}: {at}}}.get(r["i"], r["i"]))'),
         "order"),
    Case("late row", [("late: drop", "late: update")], "added", row="late"),
    Case("last place of a float", NEXT_FLOAT, "value", ("total",)),
    Case("last place within a tolerance", NEXT_FLOAT, verdict="equal", tolerances=("total=ulp:2",)),
    Case("another revision", [("VERSION = 1", "VERSION = 2")], "value", ("version",), row="first",
         shown=False),
    Case("dead letter instead of a row",
         [("    return rows\n",
           '    if any(r["i"] == {end} for r in rows):\n        raise ValueError("planted")\n'
           "    return rows\n")], "missing", row="end"),
    Case("wrong watermark",
         [("    return watermark\n",
           "    return watermark and watermark - 2000 * (watermark == {mark})\n")],
         "missing", row="mark", shown=False, operator="panes"),
    Case("a retry that emitted twice",
         rows('rows * (1 + any(r["i"] == {at} for r in rows))'), "added", shown=False),
]  # fmt: skip
