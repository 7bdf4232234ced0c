"""Which SQL an operator may use: row by row, and the same answer every time.

An aggregate, DISTINCT, a join or rand() would give another result when an epoch is cut into other
tasks or run again, and replay would no longer be exact.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perseid.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_WISE = {
    "Project", "Filter", "Generate", "SubqueryAlias", "View", "WithCTE", "CTERelationDef",
    "CTERelationRef", "MapInArrow", "Range", "LogicalRDD", "UnresolvedHint", "ResolvedHint",
}  # fmt: skip
_CLOCKS = re.compile(
    r"\b(current_timestamp|current_date|now|localtimestamp|curdate|unix_timestamp\(\)|"
    r"current_time)\b",
    re.IGNORECASE,
)


def check_row_wise(frame: DataFrame, operator: str) -> None:
    """Raises BadInputError when the SQL of `operator` is not row-wise and deterministic."""
    plan = frame._jdf.queryExecution().analyzed()
    for name in _nodes(plan):
        if name not in _ROW_WISE:
            raise BadInputError(_refusal(operator, f"it contains {name}"))
    clock = _CLOCKS.search(plan.toString())
    if clock is not None:
        raise BadInputError(_refusal(operator, f"it reads the clock ({clock.group(1)})"))
    if not plan.deterministic():
        raise BadInputError(_refusal(operator, "it is not deterministic"))


def _refusal(operator: str, why: str) -> str:
    return (
        f"SQL of operator {operator}: {why}; expected only row-wise, deterministic SQL (SELECT of "
        "expressions, WHERE, explode). Use a keyed operator (`use: module:Class` with `key:`) for "
        "aggregates and joins, and `self.now` or `self.random` of a Python operator for time and "
        "chance"
    )


def _nodes(plan: object) -> list[str]:
    """Class names of a logical plan's nodes, down to the frames that perseid made itself."""
    name = plan.nodeName()  # type: ignore[attr-defined]
    if name in {"MapInArrow", "LogicalRDD"}:
        return [name]
    children = plan.children()  # type: ignore[attr-defined]
    below = [_nodes(children.apply(i)) for i in range(children.size())]
    return [name, *(n for found in below for n in found)]
