"""Checks the drawn operator's results by an uninterrupted run over the job's tokens.

Where its case has a plain model, that has to make the same rows.

The run knows the input, the valid tokens and the numbers of partitions; it calls the operators over
live state, without logs, checkpoints, sinks or failures. Only a change of the parallelism is the
platform's own (`resplit`). Records with the same key are compared in their order; those of a
stateless operator, which have none, as a bag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from perseid.jobs.model.spec import MAIN, OperatorSpec, output_of, producer
from perseid.jobs.operator import Emitter, Operator, combines
from perseid.state.durability.merging import STATE
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.primitive import Primitive, bind
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation import job, operators
from perseid.testing.simulation.engine import Defect
from perseid.testing.simulation.operators import DRAWN, Case
from perseid.topics.records import Token
from perseid.worker.dataflow.operators import call, combine
from perseid.worker.dataflow.partition import partitions
from perseid.worker.recovery.resplit import Share, share_of

Place = tuple[str, int]  # a partition of a source
Results = dict[str, list[bytes]]  # values by key


class Run:
    """One operator, uninterrupted. `made`: what it emitted in the last epoch, by output."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec: OperatorSpec | None = None
        self._live: list[tuple[Operator, dict[str, Primitive]]] = []
        self.made: list[dict[str, pa.Table]] = []  # of each partition

    def use(self, spec: OperatorSpec, epoch: int) -> None:
        """Changes the number of partitions at the end of `epoch`."""
        if self.spec is not None and self.spec.parallelism == spec.parallelism:
            return
        kind = operators.class_of(spec)
        assert kind is not None, spec
        shares = [share_of(job.JOB, self.name, spec, kind, n) for n in range(spec.parallelism)]
        parts = [
            {STATE + name: ipc_bytes(primitive.snapshot()) for name, primitive in live.items()}
            for _, live in self._live
        ]
        self._live = [self._started(share, parts, epoch) for share in shares]
        self.spec = spec

    def _started(
        self, share: Share, parts: list[dict[str, bytes]], epoch: int
    ) -> tuple[Operator, dict[str, Primitive]]:
        operator = share.instance()
        live = bind(operator)
        found = share.of(parts, len(parts), epoch) if parts else {}
        for name, primitive in live.items():
            if STATE + name in found:
                primitive.restore(ipc_table(found[STATE + name]))
        return operator, live

    def epoch(self, token: Token, inputs: Mapping[str, list[pa.Table]]) -> None:
        """Runs one epoch; `inputs`: what each of their senders sends, in order."""
        assert self.spec is not None, "use"
        kind = type(self._live[0][0])
        if combines(kind):
            inputs = {name: [self._combined(token, t) for t in ts] for name, ts in inputs.items()}
        count = len(self._live)
        dealt = {
            name: [(t, partitions(t, self.spec.key, count)) for t in tables if t.num_columns]
            for name, tables in inputs.items()
        }
        self.made = []
        for number, (operator, live) in enumerate(self._live):
            mine = {
                name: _joined([t.filter(pa.array(owners == number)) for t, owners in tables])
                for name, tables in dealt.items()
            }
            out = Emitter(self.name, kind.output, kind.outputs)
            call(operator, token, mine, out, live)
            for primitive in live.values():
                primitive.commit()
            self.made.append(out.tables())

    def _combined(self, token: Token, table: pa.Table) -> pa.Table:
        operator = self._live[0][0]
        return combine(lambda: operator, token, table)[0]

    def rows(self, output: str) -> list[pa.Table]:
        """What the last epoch's partitions emitted to one output."""
        return [tables[output] for tables in self.made]


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})


@dataclass
class Judge:
    """Of one job. `parallelism`: of the totals, by layout, as workers found it in plans."""

    kafka: ModelKafka
    case: Case
    parallelism: dict[int, int] = field(default_factory=dict)
    _input: dict[Place, dict[int, tuple[str, int, int]]] = field(default_factory=dict)

    def produced(self, place: Place, word: str, amount: int) -> None:
        """The newest record of the input."""
        record = self.kafka.log(*place).records[-1]
        self._input.setdefault(place, {})[record.offset] = word, amount, record.time_ms

    def check(self, tokens: Iterable[Token], *, whole: bool) -> None:
        """Compares the sinks with what they should have after these tokens. Raises Defect.

        `whole`: they have all of it; else a part from the start.
        """
        expected = self.expected(tokens)
        for name in self.case.sinks:
            found = self._found(job.topic_of(name))
            _compare(name, expected[name], found, whole=whole, bag=self.case.stateless)

    def expected(self, tokens: Iterable[Token]) -> dict[str, Results]:
        """By operator what its sink should have."""
        results: dict[str, Results] = {name: {} for name in self.case.sinks}
        runs = {name: Run(name) for name in self.case.sinks}
        model = self.case.model() if self.case.model is not None else None
        for token in tokens:
            if token.layout not in self.parallelism:
                break  # no worker has begun with it
            splits = [self._read(split, token) for split in range(max(1, len(token.splits)))]
            sources = {name: [split[name] for split in splits] for name in job.SOURCES}
            made: dict[str, list[pa.Table]] = {}
            if not self.case.stateless:
                made = self._epoch(token, runs, sources)
            if model is not None:
                rows = [row for t in sources["left"] for row in t.to_pylist()]
                plain = list(model.epoch(rows, token.time_ms, token.watermark_ms))
                if made:
                    _same_rows(token, plain, [row for t in made[DRAWN] for row in t.to_pylist()],
                               self.case.key)  # fmt: skip
                made = {DRAWN: [pa.Table.from_pylist(plain)]} if self.case.stateless else made
            for name, tables in made.items():
                for key, value in _records(tables, self.case.sinks[name]):
                    results[name].setdefault(key, []).append(value)
        return results

    def _epoch(
        self, token: Token, runs: dict[str, Run], sources: Mapping[str, list[pa.Table]]
    ) -> dict[str, list[pa.Table]]:
        before = {name: run.made for name, run in runs.items()}
        specs = self.case.specs(self.parallelism[token.layout])
        for name, run in runs.items():
            run.use(specs[name], token.epoch - 1)
            inputs = {}
            for port, stream in specs[name].inputs.items():
                if stream in sources:
                    inputs[port] = sources[stream]
                elif port in specs[name].feedback:
                    inputs[port] = [m[output_of(stream)] for m in before[producer(stream)]]
                else:
                    inputs[port] = runs[producer(stream)].rows(output_of(stream))
            run.epoch(token, inputs)
        return {name: run.rows(MAIN) for name, run in runs.items()}

    def _read(self, split: int, token: Token) -> dict[str, pa.Table]:
        ranges = token.splits[split] if token.splits else ()
        found = {}
        for name in job.SOURCES:
            records = [
                self._input[r.topic, r.partition][offset]
                for r in ranges if r.source == name for offset in range(r.start, r.end)
            ]  # fmt: skip
            found[name] = job.table_of([r[:2] for r in records], [r[2] for r in records])
        return found

    def _found(self, topic: str) -> Results:
        found: Results = {}
        for log in self.kafka.topics[topic].logs:
            for record in log.between(0, log.end):
                transaction = record.transaction
                done = transaction is None or (
                    transaction.state == "committed" and not transaction.was_aborted
                )
                if done and not record.marker:
                    found.setdefault((record.key or b"").decode(), []).append(record.value or b"")
        return found


def _records(tables: list[pa.Table], key: str) -> Iterable[tuple[str, bytes]]:
    for table in tables:
        keys, values = job.encoded(table, key)
        yield from ((k.decode(), v) for k, v in zip(keys, values, strict=True) if k is not None)


def _same_rows(
    token: Token, plain: list[dict[str, object]], made: list[dict[str, object]], key: str
) -> None:
    """Compares the model with the uninterrupted run, in the order of each key."""
    if sorted(plain, key=lambda r: str(r[key])) != sorted(made, key=lambda r: str(r[key])):
        raise Defect(f"epoch {token.epoch}: the operator makes {made}, its model {plain}")


def _compare(name: str, expected: Results, found: Results, *, whole: bool, bag: bool) -> None:
    for key in sorted(expected.keys() | found.keys()):
        wanted, has = expected.get(key, []), found.get(key, [])
        if bag:
            wrong = bool(Counter(has) - Counter(wanted)) or (whole and len(has) != len(wanted))
        else:
            wrong = has != (wanted if whole else wanted[: len(has)])
        if wrong:
            at = next((n for n, (a, b) in enumerate(zip(has, wanted, strict=False)) if a != b), -1)
            raise Defect(
                f"sink of {name}, key {key}: {len(has)} records, expected {len(wanted)}; the first "
                f"other one is number {at}: {has[at : at + 1]}, expected {wanted[at : at + 1]}"
            )
