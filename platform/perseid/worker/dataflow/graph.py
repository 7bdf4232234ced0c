"""Where each node's output goes within an epoch: pure, from the job and its layout.

A *node* is a source or an operator, a *stream* one of its outputs: `node` is the main one,
`node.output` another. A stream goes, by edge, to the operator partitions of keyed operators and
writers (through a shuffle), into stateless Python operators (in the same task), and into SQL
operators (through Spark SQL, in the same stage).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from perseid.jobs.model.layout import (
    DEAD_LETTERS,
    Layout,
    has_letters,
    is_keyed,
    node_levels,
    writers,
    written_streams,
)
from perseid.jobs.model.spec import JobSpec, output_of, producer
from perseid.worker.dataflow.edges import Route
from perseid.worker.dataflow.source import METADATA

SQL_BASE = -1  # target -1 - i: rows for the i-th SQL operator of the graph


@dataclass(frozen=True)
class Outlets:
    """The edges of one stream. `shuffles`: (consumer, route)."""

    shuffles: tuple[tuple[str, Route], ...]
    python: tuple[str, ...]
    sql: tuple[str, ...]


@dataclass(frozen=True)
class Feedback:
    """An edge whose rows are from the previous epoch."""

    stream: str
    route: Route


@dataclass(frozen=True)
class Graph:
    """The edges of one job by stream, its nodes' levels and the numbers of its SQL operators.

    Every node has its main stream here, and its other streams that have a consumer. Dead letters of
    level 0 go to their writer; without one, to a keyed operator that bisects, which writes its own
    (`own_letters`) with its output.
    """

    outlets: dict[str, Outlets]
    levels: dict[str, int]
    sql_targets: dict[str, int]
    dead_letters: Route | None
    own_letters: dict[str, Route]
    feedback: tuple[Feedback, ...]

    @property
    def letters_of_sources(self) -> Route | None:
        """None for a job without dead letters."""
        own = sorted(self.own_letters.values(), key=lambda route: route.targets)
        return self.dead_letters or next(iter(own), None)

    def feeds_back(self, operator: str) -> tuple[str, ...]:
        """The outputs of `operator` that the next epoch reads."""
        streams = dict.fromkeys(edge.stream for edge in self.feedback)
        return tuple(output_of(s) for s in streams if producer(s) == operator)

    def streams(self, node: str) -> tuple[str, ...]:
        """The streams that `node` emits."""
        return tuple(stream for stream in self.outlets if producer(stream) == node)

    @property
    def has_late_sql(self) -> bool:
        """Whether an SQL operator reads the output of a stateful stage."""
        return any(self.levels[name] > 0 for name in self.sql_targets)


def build(spec: JobSpec, layout: Layout) -> Graph:
    """The graph of `spec`; ports of multi-input operators are numbered in job.yaml's order."""
    read = [s.input for s in spec.sinks.values()]
    read += [stream for o in spec.operators.values() for stream in o.forward.values()]
    streams = dict.fromkeys((*spec.sources, *spec.operators, *read))
    sql = [name for name, operator in spec.operators.items() if operator.sql is not None]
    letters = layout.of(DEAD_LETTERS)
    return Graph(
        outlets={stream: _outlets(stream, spec, layout) for stream in streams},
        levels=node_levels(spec),
        sql_targets={name: SQL_BASE - index for index, name in enumerate(sql)},
        dead_letters=Route(tuple(t.gid for t in letters), 0, ()) if letters else None,
        own_letters={
            name: Route((layout.of(name)[0].gid,), len(operator.inputs), ())
            for name, operator in spec.operators.items() if has_letters(operator)
        },
        feedback=tuple(_feedback(spec, layout)),
    )  # fmt: skip


def _feedback(spec: JobSpec, layout: Layout) -> Iterator[Feedback]:
    for name, operator in spec.operators.items():
        for port, (input_, stream) in enumerate(operator.inputs.items()):
            if input_ in operator.feedback:
                targets = tuple(t.gid for t in layout.of(name))
                yield Feedback(stream, Route(targets, port, operator.key))


def _outlets(stream: str, spec: JobSpec, layout: Layout) -> Outlets:
    shuffles: list[tuple[str, Route]] = []
    python: list[str] = []
    sql: list[str] = []
    for name, operator in spec.operators.items():
        for port, (input_, upstream) in enumerate(operator.inputs.items()):
            if upstream != stream or input_ in operator.feedback:
                continue
            if is_keyed(operator):
                targets = tuple(t.gid for t in layout.of(name))
                shuffles.append((name, Route(targets, port, operator.key)))
            else:
                (python if operator.sql is None else sql).append(name)
    node = producer(stream)
    written = written_streams(spec, node)
    if node in writers(spec) and stream in written:
        targets = tuple(t.gid for t in layout.of(node))
        shuffles.append((node, Route(targets, written.index(stream), ())))
    return Outlets(tuple(shuffles), tuple(python), tuple(sql))


def stage_slots(layout: Layout, level: int, width: int) -> dict[int, int]:
    """The task index of every gid of `level` in a stage of `width` tasks."""
    return {task.gid: index % width for index, task in enumerate(layout.level(level))}


def metadata_columns(
    source: str, spec: JobSpec, own: Collection[str], declared: Callable[[str], Collection[str]]
) -> tuple[str, ...]:
    """The metadata columns of `source` that have a reader; its `own` columns take precedence.

    `declared`: what an operator names, SQL in its query and Python in its class. They cost a
    quarter of the reading speed or more, so a source without a reader of them goes without.
    """
    found: set[str] = set()
    for name, operator in spec.operators.items():
        if source in operator.inputs.values():
            found |= {*declared(name), *operator.key}
    return tuple(column for column in METADATA if column in found and column not in own)
