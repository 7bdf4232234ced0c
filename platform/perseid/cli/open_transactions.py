"""Which transactions hold readers back, and their possible owners. Pure.

The client cannot list a broker's transactions (KIP-664 is not in librdkafka). It can only see where
readers have to wait: a partition whose last stable offset is below its high watermark has an open
transaction. A ledger partition belongs to one transactional id, so there the id is known; elsewhere
it is one of the few ids that write the topic, or that of a foreign producer.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.errors import RefusedError, UsageError
from perseid.jobs.model import layout
from perseid.jobs.model.assignments import tasks_of
from perseid.jobs.model.spec import producer
from perseid.topics import names
from perseid.topics.admin import Partition
from perseid.topics.clients import TRANSACTION_TIMEOUT_MS

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import Plan

# The broker aborts transactions older than their timeout, and checks that every 10 s.
SLOW_S = 10.0
STUCK_S = TRANSACTION_TIMEOUT_MS / 1000 + 15.0


@dataclass(frozen=True, slots=True)
class Writer:
    """A transactional id and where it may write: topics, and one ledger partition of its own."""

    job: str
    transactional_id: str
    topics: frozenset[str]
    own: Partition | None = None

    def may_hold(self, place: Partition) -> bool:
        return place == self.own or place[0] in self.topics


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that readers cannot read to its end.

    `ids`: the possible owners; none when no job of perseid writes there. `certain`: the owner is
    known. `since_ms`: the time of the first record after the last stable offset, by its producer's
    clock; None when it could not be read.
    """

    topic: str
    partition: int
    stable: int
    end: int
    ids: tuple[str, ...]
    certain: bool = False
    since_ms: int | None = None

    @property
    def place(self) -> Partition:
        return self.topic, self.partition

    def age_s(self, now_ms: int) -> float | None:
        return None if self.since_ms is None else max(0.0, (now_ms - self.since_ms) / 1000)

    def stuck(self, now_ms: int) -> bool:
        """Whether it is older than the broker allows a transaction of perseid to become."""
        age_s = self.age_s(now_ms)
        return age_s is not None and age_s > STUCK_S

    def slow(self, now_ms: int) -> bool:
        """Whether it has no owner here and is unusually old: its timeout may be long."""
        age_s = self.age_s(now_ms)
        return not self.ids and age_s is not None and age_s > SLOW_S


def writers(spec: JobSpec, built: Layout, *, redriven: bool) -> Iterator[Writer]:
    """The ids of a job under its present layout, and that of `dlq redrive` if it was ever run."""
    for task in built.ledger_tasks:
        assert task.ledger is not None, "ledger tasks have a ledger partition"
        topics = {s.topic for s in spec.sinks.values() if producer(s.input) == task.operator}
        if _writes_letters(spec, task.operator) and spec.errors.deadletter_topic is not None:
            topics.add(spec.errors.deadletter_topic)
        yield Writer(
            spec.name,
            names.transactional_id(spec.name, built.number, task.operator, task.partition),
            frozenset(topics),
            (names.ledger(spec.name), task.ledger),
        )
    if redriven:
        origins = frozenset(s.topic for s in spec.sources.values())
        yield Writer(
            spec.name, names.redrive_id(spec.name), origins, (names.redriven(spec.name), 0)
        )


def _writes_letters(spec: JobSpec, operator: str) -> bool:
    found = spec.operators.get(operator)
    return operator == layout.DEAD_LETTERS or (found is not None and layout.has_letters(found))


def topics_of(spec: JobSpec) -> set[str]:
    """Topics whose transactions may hold back this job, or readers of its output."""
    own = {names.ledger(spec.name), names.redriven(spec.name)}
    return own | {s.topic for s in spec.sources.values()} | set(spec.written_topics)


def held_back(
    ends: Mapping[Partition, int], stable: Mapping[Partition, int], known: Sequence[Writer]
) -> list[Held]:
    """The partitions of `ends` that are held back; `since_ms` is still to be found.

    `ends`: high watermarks, read first; so a transaction committed between the reads is not held.
    """
    found = []
    for place, end in sorted(ends.items()):
        if stable[place] < end:
            ids = tuple(w.transactional_id for w in known if w.may_hold(place))
            certain = any(w.own == place for w in known)
            found.append(Held(*place, stable[place], end, ids, certain))
    return found


def to_abort(job: str, held: Iterable[Held], asked: Sequence[str]) -> tuple[str, ...]:
    """The ids to be ended: those `asked` for, else all of the job that may hold readers back."""
    for name in asked:
        _check_id(job, name)
    if asked:
        return tuple(dict.fromkeys(asked))
    own = {name for one in held for name in one.ids if _is_of(job, name)}
    return tuple(sorted(own))


def owners(plan: Plan, built: Layout, living: Container[str]) -> dict[str, str]:
    """By transactional id, the live worker that has it under the plan, whose layout is `built`.

    Ids of an earlier layout, or of `dlq redrive`, have no owner.
    """
    return {
        names.transactional_id(plan.job, plan.layout, task.operator, task.partition): own.owner
        for own in plan.primaries if own.owner is not None and own.owner in living
        for task in tasks_of(own, built)
    }  # fmt: skip


def check_owner(job: str, ids: Sequence[str], known: Mapping[str, str], *, force: bool) -> None:
    """RefusedError when one of `ids` has a live owner, which ends its transactions itself.

    `known`: see `owners`.
    """
    found = sorted({known[name] for name in ids if name in known})
    if force or not found:
        return
    where = f"worker {found[0]}, which" if len(found) == 1 else f"{' and '.join(found)}: each"
    raise RefusedError(
        f"{job} runs on {where} commits or ends what it began within "
        f"{TRANSACTION_TIMEOUT_MS // 1000} s: look again with `perseid txn list {job}`. Ended now, "
        f"the worker has to write its epoch once more: type `perseid jobs stop {job}` first, or "
        f"`perseid txn abort {job} --force`"
    )


def left_text(left: Sequence[Held]) -> str:
    """What to do about partitions that are still held back when all ids were ended."""
    shown = ", ".join(f"{one.topic}[{one.partition}] at {one.stable}" for one in left[:5])
    return (
        f"still held back: {shown}. It is not one of these ids: either of an earlier layout of the "
        "job (`--id perseid.JOB.LAYOUT.OPERATOR.PARTITION` ends one), or of a producer that is not "
        "perseid's: find it with `kafka-transactions.sh find-hanging`"
    )


def _is_of(job: str, name: str) -> bool:
    part = r"[A-Za-z0-9_-]+"
    own = re.escape(f"perseid.{job}.")
    return name == names.redrive_id(job) or bool(re.fullmatch(rf"{own}\d+\.{part}\.\d+", name))


def _check_id(job: str, name: str) -> None:
    """Acquiring an id fences its owner, so only ids of the job may be named."""
    if not _is_of(job, name):
        raise UsageError(
            f"--id {name[:120]!r} is no transactional id of {job}: expected "
            f"perseid.{job}.LAYOUT.OPERATOR.PARTITION or {names.redrive_id(job)}, as "
            f"`perseid txn list {job}` prints them"
        )
