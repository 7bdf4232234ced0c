"""Checks what crosses buffer topics, without the decisions of those who send and read.

- A task of a spread job runs with the sets of all that send to it, and of no others; each set is
  one attempt, with all its chunks.
- No record is trimmed while a kept checkpoint is before its token, unless that is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perseid.engine.order import EpochOrder
from perseid.jobs.model.layout import Layout, Task, is_keyed
from perseid.jobs.model.spec import JobSpec, producer
from perseid.jobs.model.spread import spread_of
from perseid.registry import Registry
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect
from perseid.topics import codec, names
from perseid.topics.admin import Partition
from perseid.topics.buffers import unpacked
from perseid.topics.records import BufferRecord

if TYPE_CHECKING:
    from perseid.worker.dataflow.edges import Row

Attempt = tuple[int, int]  # generation and number


@dataclass
class _Seen:
    """One partition of a buffer. `sent`: its records by place of the set, attempt and chunk."""

    read: int = 0
    start: int = 0
    tokens: dict[int, int] = field(default_factory=dict)  # by offset, of records not trimmed
    sent: dict[tuple[int, int, int], dict[Attempt, dict[int, BufferRecord]]] = field(
        default_factory=dict
    )


@dataclass
class Edges:
    """Checks one job's buffer topics. `taken_back`: the offsets of tokens that were rolled back."""

    kafka: ModelKafka
    registry: Registry
    taken_back: Callable[[], set[int]]
    hit: Callable[[str], None]
    _known: dict[str, bool] = field(default_factory=dict)  # topics: whether it is a buffer
    _seen: dict[Partition, _Seen] = field(default_factory=dict)

    def look(self) -> None:
        """Checks the new records and trims. Raises Defect."""
        topics = self.kafka.topics
        if self._known.keys() != topics.keys():
            self._known = {name: names.of_buffer(job.JOB, name) is not None for name in topics}
        for topic in [name for name, is_buffer in self._known.items() if is_buffer]:
            for partition, log in enumerate(topics[topic].logs):
                seen = self._seen.setdefault((topic, partition), _Seen())
                if log.end != seen.read:
                    self._read(seen, topic, partition)
                if log.start > seen.start:
                    self._trimmed(seen, topic, partition, log.start)

    def _read(self, seen: _Seen, topic: str, partition: int) -> None:
        log = self.kafka.log(topic, partition)
        seen.read = min(seen.read, log.end)  # the broker may have lost records
        for record in log.between(seen.read, log.end):
            one = codec.decode_buffer((topic, partition), record.offset, record.value or b"")
            place = one.token_offset, one.input, one.origin
            attempts = seen.sent.setdefault(place, {})
            if attempts and (one.generation, one.attempt) not in attempts:
                self.hit("sent again")
            attempts.setdefault((one.generation, one.attempt), {})[one.chunk] = one
            seen.tokens[record.offset] = one.token_offset
        seen.read = log.end

    def _trimmed(self, seen: _Seen, topic: str, partition: int, start: int) -> None:
        gone = {seen.tokens.pop(offset) for offset in list(seen.tokens) if offset < start}
        seen.start = start
        self.hit("buffer trimmed")
        found = self.registry.pointers(job.JOB)
        oldest = min((p.token_offset for p in found.pointers), default=-1) if found else -1
        lost = sorted(token for token in gone - self.taken_back() if token > oldest)
        if lost:
            raise Defect(
                f"{topic}[{partition}] is trimmed to {start}, and the oldest kept checkpoint, of "
                f"the token at {oldest}, needs the sets of the tokens at {lost}"
            )

    def sent_bytes(self, token_offset: int) -> Counter[str]:
        """The bytes of the token's sets, each in its smallest attempt, by the operator that reads.

        Only of records that are not trimmed.
        """
        self.look()
        found: Counter[str] = Counter()
        for (topic, _), seen in self._seen.items():
            of = names.of_buffer(job.JOB, topic)
            if of is None or token_offset not in seen.tokens.values():
                continue
            for (token, _, _), attempts in seen.sent.items():
                sizes = [_size(a) for a in attempts.values() if _is_whole(a)]
                if token == token_offset and sizes:
                    found[of[0]] += min(sizes)
        return found

    def look_at(
        self, spec: JobSpec, layout: Layout, task: Task, order: EpochOrder, rows: Sequence[Row]
    ) -> None:
        """Checks the rows with which a task runs an epoch; `layout`: of the whole job."""
        self.look()
        where = f"{task.label}, epoch {order.token.epoch}"
        found: dict[tuple[int, int], dict[int, bytes]] = {}
        for row in rows:
            found.setdefault((row.input, row.origin), {})[row.chunk] = bytes(row.blob)
        wanted = set(_senders(spec, layout, task))
        if found.keys() != wanted:
            raise Defect(f"{where} runs with the sets {sorted(found)}, expected {sorted(wanted)}")
        seen = self._seen.get((names.buffer(job.JOB, task.operator, layout.number), task.partition))
        for place, chunks in found.items():
            blobs = [chunks[number] for number in sorted(chunks)]
            sent = seen.sent.get((order.token_offset, *place), {}) if seen is not None else {}
            if blobs not in list(_whole(sent.values())):
                raise Defect(f"{where} runs with a set {place} that no attempt has sent so")


def _size(records: Mapping[int, BufferRecord]) -> int:
    return sum(len(codec.encode(record)) for record in records.values())


def _whole(attempts: Iterable[Mapping[int, BufferRecord]]) -> Iterator[list[bytes]]:
    """The blobs of each attempt that is complete."""
    for records in attempts:
        if _is_whole(records):
            pieces = [records[chunk].data for chunk in sorted(records)]
            yield [bytes(blob) for blob in unpacked(pieces)]


def _is_whole(records: Mapping[int, BufferRecord]) -> bool:
    return len(records) == next(iter(records.values())).chunks


def _senders(spec: JobSpec, layout: Layout, task: Task) -> Iterator[tuple[int, int]]:
    """Input and origin of every set that the task needs in every epoch."""
    spread = spread_of(spec, layout)
    assert spread is not None, "a spread job"
    operator = spec.operators.get(task.operator)
    keyed = operator is not None and is_keyed(operator)
    streams = list(operator.inputs.values()) if keyed and operator is not None else [task.operator]
    for number, stream in enumerate(streams):
        node = producer(stream)
        while node in spec.operators and not is_keyed(spec.operators[node]):
            node = producer(*spec.operators[node].inputs.values())  # it runs in the source's task
        origins = (
            [at for at, share in enumerate(spread.shares) if node in share.among]
            if node in spec.sources else [one.gid for one in layout.of(node)]
        )  # fmt: skip
        yield from ((number, origin) for origin in origins)
