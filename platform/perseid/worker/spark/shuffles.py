"""Shuffle files of an epoch that has ended: deleted at once.

Spark keeps them until its JVM has collected the objects that name them. Those outlive the few
small collections of an epoch and are then looked at by a full one, each ten minutes: meanwhile the
files of every epoch stay, on a tmpfs as a rule.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCHANGE, _CACHED = "ShuffleExchangeExec", "InMemoryTableScanExec"

# Of child indices, from the root of a plan; from a persisted frame on to its plan: INTO_CACHED.
Path = tuple[int, ...]
INTO_CACHED = -1


def paths(plan: Any, *, cached: bool) -> list[Path]:
    """Where the shuffles of a physical plan are; the same in each clone of it.

    `cached`: also in the plans of frames that are persisted for this one epoch.
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
    """Deletes the files of the shuffles at `where` in a plan that has run; does not wait for it."""
    cleaner = spark.sparkContext._jsc.sc().cleaner().get()
    for path in where:
        cleaner.doCleanupShuffle(reduce(_child, path, plan).shuffleId(), False)


def _child(node: Any, i: int) -> Any:
    return node.relation().cachedPlan() if i == INTO_CACHED else node.children().apply(i)
