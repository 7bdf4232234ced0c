"""Shuffle files of an epoch that has ended: deleted at once.

Spark keeps them until its JVM has collected the objects that name them. Those outlive the few
small collections of an epoch and are then looked at by a full one, each ten minutes: meanwhile the
files of every epoch stay, on a tmpfs as a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCHANGE, _CACHED = "ShuffleExchangeExec", "InMemoryTableScanExec"

Path = tuple[int, ...]  # of child indices, from the root of a plan


def paths(plan: Any, *, cached: bool) -> list[Path]:
    """Where the shuffles of a physical plan are; the same in each clone of it.

    `cached`: also in the plans of frames that are persisted for this one epoch.
    """
    found: list[Path] = []

    def look(node: Any, path: Path) -> None:
        kind = node.getClass().getSimpleName()
        if kind == _EXCHANGE:
            found.append(path)
        for i, child in enumerate(_children(node, cached=cached)):
            look(child, (*path, i))

    look(plan, ())
    return found


def delete(spark: SparkSession, plan: Any, where: list[Path], *, cached: bool) -> None:
    """Deletes the files of the shuffles at `where` in a plan that has run; does not wait for it."""
    cleaner = spark.sparkContext._jsc.sc().cleaner().get()
    for path in where:
        node = plan
        for i in path:
            node = _children(node, cached=cached)[i]
        cleaner.doCleanupShuffle(node.shuffleId(), False)


def _children(node: Any, *, cached: bool) -> list[Any]:
    if cached and node.getClass().getSimpleName() == _CACHED:
        return [node.relation().cachedPlan()]
    children = node.children()
    return [children.apply(i) for i in range(children.size())]
