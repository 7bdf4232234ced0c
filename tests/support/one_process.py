"""A job's past in this process: topics in memory, epochs of their records, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from perseid.engine.agreement import RestoreOrder
from perseid.engine.order import EpochOrder
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.spec import MAIN
from perseid.jobs.validation import parse
from perseid.replay.explaining import Lineage
from perseid.replay.one_process import OneProcess
from perseid.replay.reruns import EpochReruns
from perseid.replay.running import apart
from perseid.topics.columns import Records
from perseid.topics.records import SourceRange, Token
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.spark import restoring
from support.fragment_contexts import DEPLOYMENT

Rows = Sequence[Mapping[str, Any]]
Place = tuple[str, int]


@dataclass
class MemoryTopics:
    """`perseid.worker.dataflow.source.Ranges` over rows as JSON."""

    rows: dict[Place, list[Mapping[str, Any]]] = field(default_factory=dict)

    def prepare(self, _starts: Mapping[Place, int]) -> None: ...

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        some = self.rows[topic, partition][start:end]
        yield Records.of(
            partition, [(start + i, 0, None, orjson.dumps(row)) for i, row in enumerate(some)]
        )

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")


class Past:
    """Runs epochs of a job folder; `lineage` explains the last one. `splits`: of each epoch."""

    def __init__(
        self, folder: Path, scratch: Path, splits: int = 2,
        more: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.spec = parse.load(folder)
        deployment = DEPLOYMENT.model_copy(update={"store": str(scratch / "store")})
        context = FragmentContext(
            deployment=apart(deployment, self.spec.name, scratch, 1), job=self.spec.name,
            job_uuid="u", generation=1, incarnation="audit-1", revision="r", archive="a",
            folder=str(folder), base_epoch=0, lanes=1, one_task_each=False,
            layout=layouts.build(self.spec, 1), rescaled=False,
        )  # fmt: skip
        self.topics, self.splits, self.epoch_number = MemoryTopics(), splits, 0
        self.runner, self.layout = OneProcess(context, self.topics), context.layout
        self._more = more
        restoring.fence(self.runner)  # type: ignore[arg-type]
        order = RestoreOrder({}, 0, 0, (), 0, 1, 1)
        for task in self.layout.stateful_tasks:
            restoring.restore_one(context, self.runner.partitions, order, task)
        self.runner.prepare()

    def epoch(self, rows: Mapping[str, Mapping[int, Rows]]) -> None:
        """Runs an epoch that reads these new rows, by source and partition."""
        ranges = []
        for source, by_partition in rows.items():
            topic = self.spec.sources[source].topic
            for partition, some in by_partition.items():
                known = self.topics.rows.setdefault((topic, partition), [])
                start = len(known)
                known += some
                ranges.append(SourceRange(source, topic, "id", partition, start, len(known)))
        splits = tuple(tuple(ranges[at :: self.splits]) for at in range(self.splits))
        number = self.epoch_number + 1
        token = Token(1, "u", number, number, "r", 1, splits, 1_000 * number)
        order = EpochOrder(token, number + 1, None, generation=1, muted=True)
        self.runner.run(order, b"")
        self.epoch_number = number

    def lineage(self) -> Lineage:
        trace = self.runner.executor.trace
        return Lineage(trace, self.spec, self.layout, self.reruns(), lambda: self._more)

    def reruns(self) -> EpochReruns:
        return EpochReruns(self.runner)

    def written(self, name: str) -> Iterator[tuple[Any, int, Mapping[str, Any]]]:
        """Task, row number and columns of all that the sink of this name writes."""
        sink = self.spec.sinks[name]
        for task in self.layout.of(sink.input):
            table = self.runner.executor.trace.outputs[task.gid][MAIN]
            for row, columns in enumerate(table.to_pylist()):
                yield task, row, columns


def offsets_of(lineage: Lineage) -> set[tuple[str, int, int]]:
    """The input records that were found, as topic, partition and offset."""
    return {(r.topic, r.partition, int(offset)) for r in lineage.records() for offset in r.offsets}
