"""How a job with `placement: {spread: N}` is cut into fragments. Pure: the same for the same spec.

Parts of a job that exchange no rows (*components*) never share a fragment, so the death of one
part's worker does not delay another part. A component that gets several fragments is cut by ranges
of partitions: fragment i of n has the i-th n-th of each operator's partitions and of the source
partitions. A token of a spread job has one split for each fragment, in their order.

Every fragment of a component waits for the others of it, since each level is a full shuffle. The
writer of dead letters waits for all components: with several of them it is a fragment of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.jobs.model.layout import DEAD_LETTERS
from perseid.jobs.model.spec import producer

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout, Task
    from perseid.jobs.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Share:
    """One fragment: its operator partitions, and the sources that it reads a part of.

    Its place in `Spread.shares` is its name and the index of its split. `among`: by source, which
    part of the source's partitions it reads: (number, of how many). `component`: fragments with the
    same one wait for each other.
    """

    gids: tuple[int, ...]
    among: Mapping[str, tuple[int, int]]
    component: int


@dataclass(frozen=True, slots=True)
class Spread:
    """All fragments of a spread job."""

    shares: tuple[Share, ...]

    def splits_of(self, source: str) -> tuple[int, ...]:
        """The fragments that read the source."""
        return tuple(at for at, share in enumerate(self.shares) if source in share.among)

    def split_of(self, source: str, partition: int) -> int:
        """The fragment that reads this source partition."""
        readers = self.splits_of(source)
        return readers[partition % len(readers)]

    def waits_for(self, fragment: int) -> frozenset[int]:
        """The fragments without which this one cannot run an epoch, itself included."""
        own = self.shares[fragment]
        if own.component < 0:
            return frozenset(range(len(self.shares)))
        return frozenset(
            at for at, share in enumerate(self.shares) if share.component == own.component
        )


def spread_of(spec: JobSpec, layout: Layout) -> Spread | None:
    """The fragments of the job in this layout; None if the job is one fragment."""
    return None if spec.placement.spread == 1 else _cut(spec, layout)


def _cut(spec: JobSpec, layout: Layout) -> Spread:
    parts = _components(spec)
    number = {node: at for at, nodes in enumerate(parts) for node in nodes}
    own: list[list[Task]] = [[] for _ in parts]
    letters: list[Task] = []
    for task in layout.tasks:
        if task.operator != DEAD_LETTERS:
            own[number[task.operator]].append(task)
        elif len(parts) == 1:
            own[0].append(task)
        else:
            letters.append(task)
    shares = [
        Share(
            tuple(task.gid for task in tasks if _range_of(task, layout, count) == at),
            {source: (at, count) for source in sorted(spec.sources.keys() & nodes)},
            component,
        )
        for component, (nodes, tasks, count) in enumerate(
            zip(parts, own, _counts(spec.placement.spread, own), strict=True)
        )
        for at in range(count)
    ]
    if letters:
        shares.append(Share(tuple(task.gid for task in letters), {}, -1))
    return Spread(tuple(shares))


def _components(spec: JobSpec) -> list[frozenset[str]]:
    """Nodes that exchange rows, in the order of their first names."""
    if spec.may_have_letters and spec.dead_letters is None:
        return [frozenset((*spec.sources, *spec.operators))]  # a keyed operator writes all letters
    joined = {node: {node} for node in (*spec.sources, *spec.operators)}
    for name, operator in spec.operators.items():
        for stream in operator.inputs.values():
            both = joined[name] | joined[producer(stream)]
            for node in both:
                joined[node] = both
    return sorted({frozenset(nodes) for nodes in joined.values()}, key=min)


def _counts(wanted: int, own: list[list[Task]]) -> list[int]:
    """How many fragments each component gets: one, and more where most partitions share one."""
    most = [max((1, *_sizes(tasks).values())) for tasks in own]
    counts = [1] * len(own)
    while sum(counts) < wanted:
        open_ = [at for at, count in enumerate(counts) if count < most[at]]
        if not open_:
            break
        counts[max(open_, key=lambda at: (len(own[at]) / counts[at], -at))] += 1
    return counts


def _sizes(tasks: list[Task]) -> dict[str, int]:
    found: dict[str, int] = {}
    for task in tasks:
        found[task.operator] = found.get(task.operator, 0) + 1
    return found


def _range_of(task: Task, layout: Layout, count: int) -> int:
    """Which of `count` ranges of its operator's partitions has the task."""
    return task.partition * count // len(layout.of(task.operator))
