"""A query's input in Spark's parsed plan: the frame itself replaces the view's name.

No view is made: it would belong to the session and show all columns alike. Here the metadata
columns are hidden, as the file source's `_metadata` is: a query gets one by naming it, and `*`
leaves them out. A declared column of the same name takes precedence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from perseid.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HIDDEN = '{"__metadata_col": true}'  # Spark's own mark of a hidden column


def ask(
    frame: DataFrame, parsed: Any, view: str, operator: str, hidden: Collection[str]
) -> DataFrame:
    """The frame of the query `parsed` over `frame`, which the query calls `view`; runs nothing.

    Raises BadInputError when it reads anything else, AnalysisException when it cannot be resolved.
    """
    from pyspark.sql import DataFrame as Frame

    jvm = frame.sparkSession._jvm
    assert jvm is not None, "the session is open"
    reader = _Reader(jvm, frame, view, operator, hidden)
    plan = reader.over(parsed, frozenset())
    session = frame.sparkSession._jsparkSession
    found = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
    return Frame(found, frame.sparkSession)


def nodes(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, including those of common table expressions and subqueries."""
    yield plan
    for below in (plan.children(), plan.innerChildren()):
        for child in items(below):
            yield from nodes(child)


def items(found: Any) -> Iterator[Any]:
    """The members of a Scala Seq."""
    for index in range(found.size()):
        yield found.apply(index)


class _Reader:
    """Replaces every relation with the view's name by a frame."""

    def __init__(
        self, jvm: Any, frame: DataFrame, view: str, operator: str, hidden: Collection[str]
    ) -> None:
        self._jvm, self._view, self._operator, self._hidden = jvm, view, operator, set(hidden)
        self._frame, self._plan = frame, frame._jdf.queryExecution().analyzed()
        self._logical = jvm.org.apache.spark.sql.catalyst.plans.logical

    def over(self, node: Any, known: frozenset[str]) -> Any:
        """`node` with the frame in it; `known`: the common table expressions in scope."""
        name = node.nodeName()
        if name == "UnresolvedRelation":
            return self._relation(node, known, None)
        if name == "SubqueryAlias" and node.child().nodeName() == "UnresolvedRelation":
            # The columns carry the alias: under an alias node Spark would not find hidden columns.
            return self._relation(node.child(), known, node)
        if name == "UnresolvedWith":
            return self._with(node, known)
        children = [self.over(child, known) for child in items(node.children())]
        return node.withNewChildren(self._seq(children))

    def _with(self, node: Any, known: frozenset[str]) -> Any:
        relations = []
        for relation in items(node.cteRelations()):
            body = self.over(relation._2(), known)
            relations.append(self._jvm.scala.Tuple3(relation._1(), body, relation._3()))
            known |= {relation._1().lower()}
        child = self.over(node.child(), known)
        return self._logical.UnresolvedWith(child, self._seq(relations), node.allowRecursion())

    def _relation(self, relation: Any, known: frozenset[str], alias: Any) -> Any:
        name = relation.multipartIdentifier().apply(0)
        if name.lower() in known:
            return relation if alias is None else alias
        if name.lower() != self._view.lower():
            raise BadInputError(
                f"SQL of operator {self._operator}: it reads {name!r}, expected its input; write "
                f"`FROM {self._view}`"
            )
        return self._input(self._view if alias is None else alias.alias())

    def _input(self, name: str) -> Any:
        if not self._hidden:
            return self._frame.alias(name)._jdf.queryExecution().analyzed()
        qualifier = self._seq([name])
        mark = self._jvm.org.apache.spark.sql.types.Metadata.fromJson(_HIDDEN)
        shown, hidden = [], []
        for column in items(self._plan.output()):
            if column.name() in self._hidden:
                hidden.append(column.withQualifier(qualifier).withMetadata(mark))
            else:
                shown.append(column.withQualifier(qualifier))
        found = self._logical.Project(self._seq(shown), self._plan)
        found.setTagValue(self._logical.Project.hiddenOutputTag(), self._seq(hidden))
        return found

    def _seq(self, members: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(members)
