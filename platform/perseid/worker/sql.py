"""Which SQL an operator may use: a query, row by row, and the same answer every time.

An aggregate, DISTINCT, a join or rand() would give another result when an epoch is cut into other
tasks or run again, and replay would no longer be exact. And SQL can do more than ask: Spark runs
ADD JAR, SET or INSERT at once when it is given them, and looks into a file that a query names. So
it is given only what has been parsed and found to be a query of the operator's input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perseid.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW_WISE = {
    "Project", "Filter", "Generate", "SubqueryAlias", "View", "WithCTE", "CTERelationDef",
    "CTERelationRef", "MapInArrow", "Range", "LogicalRDD", "UnresolvedHint", "ResolvedHint",
}  # fmt: skip
_PARSED = _ROW_WISE | {
    "OneRowRelation", "UnresolvedRelation", "UnresolvedWith", "UnresolvedSubqueryColumnAliases",
    "UnresolvedTableValuedFunction", "UnresolvedTVFAliases",
}  # fmt: skip
_queries: set[str] = set()  # those that have been found to be nothing else, in this process
_CLOCKS = re.compile(
    r"\b(current_timestamp|current_date|now|localtimestamp|curdate|unix_timestamp\(\)|"
    r"current_time)\b",
    re.IGNORECASE,
)


def check_query(spark: SparkSession, sql: str, operator: str) -> None:
    """Raises BadInputError when `sql` is no query, or one of something else than views.

    Nothing is run, and nothing is looked up.
    """
    if sql in _queries:
        return
    for node in _parsed(spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)):
        name = node.nodeName()
        if name not in _PARSED:
            raise BadInputError(_refusal(operator, f"it contains {name}"))
        if name == "UnresolvedRelation" and node.multipartIdentifier().size() != 1:
            raise BadInputError(_refusal(operator, f"it reads {node.tableName()}, no input"))
    _queries.add(sql)


def _parsed(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, with those of common table expressions and of subqueries."""
    yield plan
    for below in (plan.children(), plan.innerChildren()):
        for index in range(below.size()):
            yield from _parsed(below.apply(index))


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
