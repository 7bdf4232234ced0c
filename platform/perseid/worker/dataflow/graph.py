"""Where each node's output goes within an epoch: pure, from the job and its layout.

A *node* is a source or an operator, a *stream* one of its outputs: `node` is the main one,
`node.output` another. A stream goes, by edge, to the operator partitions of keyed operators and
writers (through a shuffle), into stateless Python operators (in the same task), and into SQL
operators (through Spark SQL, in the same stage).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from perseid.jobs.model.layout import (
    DEAD_LETTERS,
    Layout,
    has_letters,
    host,
    is_keyed,
    node_levels,
    upstream,
    writers,
    written_streams,
)
from perseid.jobs.model.spec import JobSpec, output_of, producer
from perseid.jobs.model.spread import spread_of
from perseid.worker.dataflow.edges import Route
from perseid.worker.dataflow.source import METADATA
from perseid.worker.dead_letters import null_keys

SQL_BASE = -1  # target -1 - i: rows for the i-th SQL operator of the graph
INDEX_BITS = 20  # of an origin; the others are the sender's number


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
class Sender:
    """What sends one set to each target of `route` in every epoch, from each of its tasks.

    `name`: a stream; of dead letters, the source or operator that refuses (`letters_of_keyed`).
    `gids`: its tasks are these operator partitions; None: the token's splits, of a spread job
    `splits` of them. `framed`: its rows come out of Spark SQL, and Spark numbers the tasks.
    `number`: differs between the senders of dead letters, which share an input.
    """

    name: str
    route: Route
    gids: tuple[int, ...] | None
    framed: bool
    splits: tuple[int, ...] | None = None
    number: int = 0

    def origin(self, index: int) -> int:
        """The origin of the set that task `index` (split, gid or number by Spark) sends."""
        return self.number << INDEX_BITS | index


@dataclass(frozen=True)
class Graph:
    """The edges of one job by stream, its nodes' levels and the numbers of its SQL operators.

    Every node has its main stream here, and its other streams that have a consumer. `letters`: who
    sends dead letters, by name. Those of level 0 go to their writer; without one, to a keyed
    operator that bisects, which writes its own with its output. `senders`: all of them.
    """

    outlets: dict[str, Outlets]
    levels: dict[str, int]
    sql_targets: dict[str, int]
    letters: dict[str, Sender]
    feedback: tuple[Feedback, ...]
    senders: tuple[Sender, ...]

    @cached_property
    def senders_to(self) -> dict[int, tuple[Sender, ...]]:
        """The senders by target."""
        targets = sorted({gid for sender in self.senders for gid in sender.route.targets})
        return {t: tuple(s for s in self.senders if t in s.route.targets) for t in targets}

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
    outlets = {stream: _outlets(stream, spec, layout) for stream in streams}
    feedback = tuple(_feedback(spec, layout))
    senders = [Sender(s, r, *_tasks(s, spec, layout)) for s, o in outlets.items()
               for _, r in o.shuffles]  # fmt: skip
    senders += [Sender(f.stream, f.route, *_tasks(f.stream, spec, layout)) for f in feedback]
    letters = {
        name: Sender(name, route, *_tasks(stream, spec, layout), number=number)
        for number, (name, stream, route) in enumerate(_letters(spec, layout, outlets))
    }
    return Graph(
        outlets=outlets,
        levels=node_levels(spec),
        sql_targets={name: SQL_BASE - index for index, name in enumerate(sql)},
        letters=letters,
        feedback=feedback,
        senders=(*senders, *letters.values()),
    )


def letters_of_keyed(stream: str, consumer: str) -> str:
    """The name of the sender of dead letters for rows of `stream` that were to reach `consumer`."""
    return f"{stream} to {consumer}"


def _letters(
    spec: JobSpec, layout: Layout, outlets: dict[str, Outlets]
) -> Iterator[tuple[str, str, Route]]:
    """The senders of dead letters: name, the stream in whose tasks they are made, and route."""
    levels, tolerant = node_levels(spec), spec.errors.tolerance == "all"
    own = {
        name: Route((layout.of(name)[0].gid,), len(operator.inputs), ())
        for name, operator in spec.operators.items() if has_letters(operator)
    }  # fmt: skip
    written = [Route((task.gid,), 0, ()) for task in layout.of(DEAD_LETTERS)]
    first = next(iter((*written, *sorted(own.values(), key=lambda route: route.targets))), None)
    if first is None:
        return
    for name, source in spec.sources.items():
        late = source.event_time is not None and source.event_time.late == "dlq"
        if late or tolerant or any(r.tolerates for r in null_keys.readers(spec, name)):
            yield name, name, first
    for name, operator in spec.operators.items():
        if operator.errors == "bisect" and not is_keyed(operator):
            yield name, name, first
    for stream, out in outlets.items():
        for name, _ in out.shuffles:
            begins = levels[producer(stream)] == 0
            without_key = tolerant and begins and producer(stream) in spec.operators
            if name in own or (name in spec.operators and without_key):
                route = first if begins else own[name]
                yield letters_of_keyed(stream, name), stream, route


def _tasks(
    stream: str, spec: JobSpec, layout: Layout
) -> tuple[tuple[int, ...] | None, bool, tuple[int, ...] | None]:
    """`gids`, `framed` and `splits` of the sender of a stream."""
    node = host(spec, stream)
    above = upstream(spec, [producer(stream)], keyed=False).values()
    framed = any(operator.sql is not None for operator in above)
    if node in spec.sources:  # a query of the source makes its rows a frame for all readers
        reads = [o for o in spec.operators.values() if node in o.inputs.values()]
        framed = framed or any(operator.sql is not None for operator in reads)
        spread = spread_of(spec, layout)
        return None, framed, None if spread is None else spread.splits_of(node)
    return tuple(task.gid for task in layout.of(node)), framed, None


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
        for port, (input_, read) in enumerate(operator.inputs.items()):
            if read != stream or input_ in operator.feedback:
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
