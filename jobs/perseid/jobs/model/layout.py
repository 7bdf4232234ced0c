"""From a job to its operator partitions: ids, levels, state and ledger partitions.

A *level* is the number of shuffles before an operator partition. Sources and the stateless
operators after them run at level 0, inside the source tasks. A keyed operator is one level above
its highest input (feedback, which is of the previous epoch, does not count); a stateless operator
runs where its input runs. A sink that reads a source or a stateless operator gets *writer*
partitions one level up: they hold no state, but a ledger. All outputs of an operator go through the
same writers, in one transaction.
All partitions of one level are one Spark stage: gid - base(level) is the task's index in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from perseid.jobs.model.spec import producer

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec, OperatorSpec

DEAD_LETTERS = "dead-letters"  # the operator name of the partition that writes refused records


@dataclass(frozen=True, slots=True)
class Task:
    """One operator partition. `ledger` is its partition of the ledger topic, None without sinks."""

    gid: int
    operator: str
    partition: int
    level: int
    stateful: bool
    ledger: int | None

    @property
    def label(self) -> str:
        return f"{self.operator}-{self.partition}"


@dataclass(frozen=True)
class Layout:
    """The operator partitions of one job under one layout number, ordered by gid.

    A fragment's layout has its own partitions only (`part`).
    """

    number: int
    tasks: tuple[Task, ...]

    @cached_property
    def stateful_tasks(self) -> tuple[Task, ...]:
        return tuple(t for t in self.tasks if t.stateful)

    @cached_property
    def ledger_tasks(self) -> tuple[Task, ...]:
        """The tasks that commit every epoch, including the writer of dead letters.

        Resuming after an epoch requires that its dead letters were committed as well.
        """
        return tuple(t for t in self.tasks if t.ledger is not None)

    @property
    def ledger_partitions(self) -> int:
        return len(self.ledger_tasks)

    @property
    def levels(self) -> int:
        """The highest level; level 0 has no tasks of its own, the splits do its work."""
        return max((t.level for t in self.tasks), default=0)

    def part(self, gids: Collection[int] | None) -> Layout:
        """With these partitions only; None: all."""
        if gids is None:
            return self
        wanted = set(gids)
        return Layout(self.number, tuple(t for t in self.tasks if t.gid in wanted))

    @cached_property
    def _by_gid(self) -> dict[int, Task]:
        return {task.gid: task for task in self.tasks}

    def task(self, gid: int) -> Task:
        return self._by_gid[gid]

    def level(self, number: int) -> tuple[Task, ...]:
        return tuple(t for t in self.tasks if t.level == number)

    @cached_property
    def _by_operator(self) -> dict[str, tuple[Task, ...]]:
        found: dict[str, list[Task]] = {}
        for task in self.tasks:
            found.setdefault(task.operator, []).append(task)
        return {operator: tuple(tasks) for operator, tasks in found.items()}

    def of(self, operator: str) -> tuple[Task, ...]:
        return self._by_operator.get(operator, ())


def is_keyed(operator: OperatorSpec) -> bool:
    """A keyed operator is shuffled by its key and may hold state; the others are stateless."""
    return bool(operator.key)


def upstream(spec: JobSpec, names: Iterable[str], *, keyed: bool = True) -> dict[str, OperatorSpec]:
    """The operators among `names`, and all upstream operators within the same epoch.

    `keyed` false stops before operators with a key.
    """
    found: dict[str, OperatorSpec] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        operator = spec.operators.get(name)
        if operator is not None and name not in found and (keyed or not is_keyed(operator)):
            found[name] = operator
            waiting += [producer(stream) for stream in operator.forward.values()]
    return found


def has_letters(operator: OperatorSpec) -> bool:
    """Whether its partitions write dead letters of their own, in their own transactions."""
    return is_keyed(operator) and operator.errors == "bisect"


def node_levels(spec: JobSpec) -> dict[str, int]:
    """The level at which each source and operator produces its output."""
    levels = dict.fromkeys(spec.sources, 0)
    waiting = dict(spec.operators)
    while waiting:
        ready = [
            name for name, operator in waiting.items()
            if all(producer(stream) in levels for stream in operator.forward.values())
        ]  # fmt: skip
        if not ready:
            raise ValueError(f"operators {sorted(waiting)} read each other or an unknown input")
        for name in ready:
            operator = waiting.pop(name)
            above = max(levels[producer(stream)] for stream in operator.forward.values())
            levels[name] = above + 1 if is_keyed(operator) else above
    return levels


def writers(spec: JobSpec) -> dict[str, int]:
    """Sources and stateless operators that feed a sink, with the number of writer partitions."""
    found: dict[str, int] = {}
    for sink in spec.sinks.values():
        node = producer(sink.input)
        operator = spec.operators.get(node)
        if operator is None:
            found[node] = spec.parallelism
        elif not is_keyed(operator):
            found[node] = operator.parallelism
    return found


def host(spec: JobSpec, stream: str) -> str:
    """The source or keyed operator in whose tasks a node, or a stream's producer, runs."""
    name = producer(stream)
    while name in spec.operators and not is_keyed(spec.operators[name]):
        (stream,) = spec.operators[name].inputs.values()
        name = producer(stream)
    return name


def written_streams(spec: JobSpec, node: str) -> tuple[str, ...]:
    """The outputs of `node` that sinks read; a writer has them as its inputs, in this order."""
    return tuple(sorted({s.input for s in spec.sinks.values() if producer(s.input) == node}))


def _letters_level(spec: JobSpec, levels: dict[str, int]) -> int:
    """The level after all senders of letters: that stage exists, since their rows go there too."""
    loose = [n for n, o in spec.operators.items() if o.errors == "bisect" and not is_keyed(o)]
    return 1 + max((levels[name] for name in loose), default=0)


def build(spec: JobSpec, number: int) -> Layout:
    """The layout of `spec`. The same spec always gives the same gids and ledger partitions."""
    levels = node_levels(spec)
    feeding = {producer(sink.input) for sink in spec.sinks.values()}
    groups = [  # (level, name, partitions, stateful, writes)
        (levels[name], name, operator.parallelism, True, name in feeding or has_letters(operator))
        for name, operator in spec.operators.items()
        if is_keyed(operator)
    ]
    groups += [(levels[name] + 1, name, n, False, True) for name, n in writers(spec).items()]
    if spec.dead_letters is not None:
        groups.append((_letters_level(spec, levels), DEAD_LETTERS, 1, False, True))
    tasks: list[Task] = []
    ledger = 0
    for level, name, partitions, stateful, writes in sorted(groups):
        for partition in range(partitions):
            tasks.append(
                Task(len(tasks), name, partition, level, stateful, ledger if writes else None)
            )
            ledger += writes
    return Layout(number, tuple(tasks))
