"""An operator's SQL: checks that it is a row-wise, deterministic query of its input.

An aggregate, DISTINCT, a join or rand() would give another result when an epoch is split into other
tasks or run again, and replay would no longer be exact. SQL can also have side effects: Spark
executes ADD JAR, SET or INSERT at once, and opens a file that a query names. So Spark gets only
text that was parsed and found to be a query of the operator's input.

All checks use Spark's plan, never the text: literals and comments may contain any words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from perseid.errors import BadInputError
from perseid.worker.spark import spark_types, sql_errors, sql_input

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

_ROW_WISE = {
    "Project", "Filter", "Generate", "SubqueryAlias", "WithCTE", "CTERelationDef",
    "CTERelationRef", "UnresolvedHint", "ResolvedHint",
}  # fmt: skip
_PARSED = _ROW_WISE | {
    "OneRowRelation", "UnresolvedRelation", "UnresolvedWith", "UnresolvedSubqueryColumnAliases",
    "UnresolvedTableValuedFunction", "UnresolvedTVFAliases",
}  # fmt: skip
_FRAMES = {"MapInArrow", "LogicalRDD"}  # nodes that perseid itself puts into a query
# casting one of these to a date or timestamp reads the clock
_SPECIAL = {"now", "today", "tomorrow", "yesterday"}
_SPECIAL_LITERAL = re.compile(rf"\w+\s*'\s*({'|'.join(_SPECIAL)})\b", re.IGNORECASE)
_KEPT = 256
_checked: set[tuple[str, str, str]] = set()  # checked queries, with the columns


def answer(
    frame: DataFrame, sql: str, view: str, operator: str, hidden: Collection[str] = ()
) -> tuple[DataFrame, pa.Schema]:
    """Runs `sql` over `frame`, which the query calls `view`: the result and its columns.

    `hidden`: columns that a query gets by name only, such as metadata columns; `*` leaves them out.
    Raises BadInputError when `sql` is not a query, reads anything but its input, is not row-wise
    and deterministic, or has columns that cannot leave Spark. Reads no data.
    """
    spark = frame.sparkSession
    try:
        parsed = _parsed(spark._jvm, sql, operator)
        found = sql_input.ask(frame, parsed, view, operator, hidden)
    except PySparkException as error:  # nothing was read, so the query is at fault
        raise sql_errors.of_query(operator, str(error)) from None
    known = (sql, view, frame.schema.json())
    if known not in _checked:
        _check_row_wise(found, operator)
        if len(_checked) >= _KEPT:
            _checked.clear()
        _checked.add(known)
    return found, spark_types.out_of(found.schema, f"SQL of operator {operator}")


def names(spark: SparkSession, sql: str, operator: str) -> frozenset[str]:
    """The column names that a query mentions, in lower case; raises as `answer` does.

    They may include names that the query defines, but no literals, comments or functions.
    """
    try:
        leaves = list(_leaves(_parsed(spark._jvm, sql, operator)))
    except PySparkException as error:
        raise sql_errors.of_query(operator, str(error)) from None
    parts = [leaf.nameParts() for leaf in leaves if leaf.nodeName() == "UnresolvedAttribute"]
    return frozenset(part.lower() for found in parts for part in sql_input.items(found))


@lru_cache(maxsize=_KEPT)  # a plan that serves one epoch only is built again for each
def _parsed(jvm: Any, sql: str, operator: str) -> Any:
    """Spark's parsed plan; BadInputError unless it is a query. Runs and resolves nothing."""
    plan = jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(sql)
    for node in sql_input.nodes(plan):
        if node.nodeName() not in _PARSED:
            raise BadInputError(_refusal(operator, f"it contains {node.nodeName()}"))
        if node.nodeName() == "UnresolvedRelation" and node.multipartIdentifier().size() != 1:
            raise BadInputError(_refusal(operator, f"it reads {node.tableName()}, no input"))
        if node.subqueries().size():
            raise BadInputError(_refusal(operator, "it contains a subquery in an expression"))
    for leaf in _leaves(plan) if any(word in sql.lower() for word in _SPECIAL) else ():
        place = leaf.origin()
        if leaf.nodeName() == "Literal" and place.startIndex().isDefined():
            written = sql[place.startIndex().get() : place.stopIndex().get() + 1]
            if _SPECIAL_LITERAL.match(written):
                raise BadInputError(_refusal(operator, f"it reads the clock ({written})"))
    return plan


def _check_row_wise(frame: DataFrame, operator: str) -> None:
    plan, jvm = frame._jdf.queryExecution().analyzed(), frame.sparkSession._jvm
    assert jvm is not None, "the session is open"
    for name in _nodes(plan):
        if name not in _ROW_WISE and name not in _FRAMES:
            raise BadInputError(_refusal(operator, f"it contains {name}"))
    catalyst = jvm.org.apache.spark.sql.catalyst
    if plan.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
        leaves = [leaf for leaf in _leaves(plan) if _is_current(leaf, catalyst)]
        found = sorted({leaf.prettyName() for leaf in leaves})
        raise BadInputError(
            _refusal(operator, f"it reads the clock, or who and where it runs ({', '.join(found)})")
        )
    if not catalyst.optimizer.SpecialDatetimeValues.apply(plan).fastEquals(plan):
        special = next((text for text in _cast_texts(plan) if text in _SPECIAL), None)
        if special is not None:
            raise BadInputError(_refusal(operator, f"it reads the clock ('{special}')"))
    if not plan.deterministic():
        raise BadInputError(_refusal(operator, "it is not deterministic"))


def _is_current(leaf: Any, catalyst: Any) -> bool:
    return bool(leaf.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()))


def _cast_texts(plan: Any) -> Iterator[str]:
    """The constant texts that the plan casts, trimmed and in lower case."""
    for node in sql_input.nodes(plan):
        waiting = list(sql_input.items(node.expressions()))
        while waiting:
            expression = waiting.pop()
            below = list(sql_input.items(expression.children()))
            waiting += below
            if expression.nodeName() in {"Cast", "TryCast"} and below[0].foldable():
                yield str(below[0].eval(None)).strip().lower()


def _leaves(plan: Any) -> Iterator[Any]:
    """The leaves of all expressions of a plan: columns, literals, functions without arguments."""
    for node in sql_input.nodes(plan):
        for expression in sql_input.items(node.expressions()):
            yield from sql_input.items(expression.collectLeaves())


def _refusal(operator: str, why: str) -> str:
    return (
        f"SQL of operator {operator}: {why}; expected only row-wise, deterministic SQL (SELECT of "
        "expressions, WHERE, explode). Use a keyed operator (`use: module:Class` with `key:`) for "
        "aggregates and joins, and `self.now` or `self.random` of a Python operator for time and "
        "chance"
    )


def _nodes(plan: Any) -> Iterator[str]:
    """Class names of a logical plan's nodes, down to the frames that perseid made."""
    yield plan.nodeName()
    if plan.nodeName() not in _FRAMES:
        for child in sql_input.items(plan.children()):
            yield from _nodes(child)
