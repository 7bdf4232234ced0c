"""An operator's SQL: a query of its input, row by row, and the same answer every time.

An aggregate, DISTINCT, a join or rand() would give another result when an epoch is cut into other
tasks or run again, and replay would no longer be exact. And SQL can do more than ask: Spark runs
ADD JAR, SET or INSERT at once when it is given them, and looks into a file that a query names. So
it is given only what has been parsed and found to be a query of the operator's input.

All is judged by Spark's plan, never by the text: in a literal or a comment anything may stand.
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
_FRAMES = {"MapInArrow", "LogicalRDD"}  # what perseid itself gives to a query
_SPECIAL = {"now", "today", "tomorrow", "yesterday"}  # a cast of these reads the clock
_SPECIAL_LITERAL = re.compile(rf"\w+\s*'\s*({'|'.join(_SPECIAL)})\b", re.IGNORECASE)
_KEPT = 256
_checked: set[tuple[str, str, str]] = set()  # what passed, with the columns


def answer(
    frame: DataFrame, sql: str, view: str, operator: str, hidden: Collection[str] = ()
) -> tuple[DataFrame, pa.Schema]:
    """What `sql` makes of `frame`, which it knows as `view`, and its columns.

    `hidden`: columns of the frame that a query gets by name only, as metadata columns are: `*` does
    not stand for them.

    Raises BadInputError when it is no query, or one of something else than its input, is not
    row-wise and deterministic, or has columns that cannot leave Spark. No data is read.
    """
    spark = frame.sparkSession
    try:
        parsed = _parsed(spark._jvm, sql, operator)
        found = sql_input.ask(frame, parsed, view, operator, hidden)
    except PySparkException as error:  # nothing was read, so it is the query
        raise sql_errors.of_query(operator, str(error)) from None
    known = (sql, view, frame.schema.json())
    if known not in _checked:
        _check_row_wise(found, operator)
        if len(_checked) >= _KEPT:
            _checked.clear()
        _checked.add(known)
    return found, spark_types.out_of(found.schema, f"SQL of operator {operator}")


def names(spark: SparkSession, sql: str, operator: str) -> frozenset[str]:
    """The column names that a query writes out, in lower case; raises as `answer` does.

    Some may be of its own making, none of its literals, comments or functions.
    """
    try:
        leaves = list(_leaves(_parsed(spark._jvm, sql, operator)))
    except PySparkException as error:
        raise sql_errors.of_query(operator, str(error)) from None
    parts = [leaf.nameParts() for leaf in leaves if leaf.nodeName() == "UnresolvedAttribute"]
    return frozenset(part.lower() for found in parts for part in sql_input.items(found))


@lru_cache(maxsize=_KEPT)  # a plan that serves one epoch only is built anew for each
def _parsed(jvm: Any, sql: str, operator: str) -> Any:
    """Spark's parsed plan; BadInputError unless it is a query. Nothing is run or looked up."""
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
    """The constant texts that the plan casts, as the cast reads them."""
    for node in sql_input.nodes(plan):
        waiting = list(sql_input.items(node.expressions()))
        while waiting:
            expression = waiting.pop()
            below = list(sql_input.items(expression.children()))
            waiting += below
            if expression.nodeName() in {"Cast", "TryCast"} and below[0].foldable():
                yield str(below[0].eval(None)).strip().lower()


def _leaves(plan: Any) -> Iterator[Any]:
    """The leaves of all expressions of a plan: columns, literals, functions of nothing."""
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
    """Class names of a logical plan's nodes, down to the frames that perseid made itself."""
    yield plan.nodeName()
    if plan.nodeName() not in _FRAMES:
        for child in sql_input.items(plan.children()):
            yield from _nodes(child)
