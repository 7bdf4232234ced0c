"""Deletes an epoch's shuffle files as soon as the epoch has ended.

Spark deletes them only after its JVM has collected the objects that refer to them, which takes a
full collection (every 10 minutes). Until then the files of every epoch would remain, usually on a
tmpfs.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCHANGE, _CACHED = "ShuffleExchangeExec", "InMemoryTableScanExec"

# Child indices from the root of a plan; INTO_CACHED leads from a persisted frame to its plan.
Path = tuple[int, ...]
INTO_CACHED = -1


def paths(plan: Any, *, cached: bool) -> list[Path]:
    """Paths of the shuffles in a physical plan; the same in each clone of it.

    `cached`: include the plans of frames that are persisted for this one epoch.
    """
    found: list[Path] = []

    def look(node: Any, path: Path) -> None:
        kind = node.getClass().getSimpleName()
        if kind == _EXCHANGE:
            found.append(path)
        into = [INTO_CACHED] if cached and kind == _CACHED else range(node.children().size())
        for i in into:
            look(_child(node, i), (*path, i))

    look(plan, ())
    return found


def delete(spark: SparkSession, plan: Any, where: list[Path]) -> None:
    """Deletes the files of the shuffles at `where` in a plan that has run; does not wait."""
    cleaner = spark.sparkContext._jsc.sc().cleaner().get()
    for path in where:
        cleaner.doCleanupShuffle(reduce(_child, path, plan).shuffleId(), False)


def _child(node: Any, i: int) -> Any:
    return node.relation().cachedPlan() if i == INTO_CACHED else node.children().apply(i)
