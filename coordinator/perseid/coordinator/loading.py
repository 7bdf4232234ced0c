"""Reads everything about a job from ZooKeeper, Kafka and the store, after a claim in the token log.

1. The plan names the program if it is this job UUID's; otherwise the entry does.
2. The control topics are created, the ledger with a partition for each task that commits, and the
   buffer topics of a spread job.
3. A claim is appended to the token log, unless it already holds a record of this leader: from there
   on, appends of an older leader are void.
4. The chain is read up to there, from the newest checkpoint's token or the Begin.
5. The ledgers are claimed if tokens will be rolled back: no earlier owner can commit after that.
6. Progress is read before the ledger: every epoch reported as done must be in the ledger.
7. The first offsets are looked up of sources that no token names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from queue import Empty, PriorityQueue

from perseid.clocks import Clock, SystemClock
from perseid.coordinator import (
    corrections,
    foreign,
    ledger_checks,
    ledger_claims,
    own_topics,
    sources,
)
from perseid.coordinator.actions import LoadProgram, TrimLogs
from perseid.coordinator.events import JobLoaded, ProgramLoaded, SourceTopic
from perseid.coordinator.job.chain import Issued, Tip
from perseid.coordinator.job.positions import Position
from perseid.coordinator.job.program import Program
from perseid.coordinator.token_time import Time
from perseid.errors import PermanentError, ReplayDataLost, lost_by_broker
from perseid.jobs.model import assignments
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.spread import spread_of
from perseid.jobs.model.trees import fetch_archive, read_folder
from perseid.jobs.operations import change
from perseid.jobs.validation import parse
from perseid.records import CheckpointPointers, JobEntry, Plan
from perseid.registry import Registry
from perseid.state.durability.store import Store
from perseid.topics import codec, names
from perseid.topics.admin import Partition, TopicReader
from perseid.topics.chain import Base, Chain, counted, valid_tokens
from perseid.topics.ledger import LedgerReader
from perseid.topics.log import Entry, LogReader, LogWriter
from perseid.topics.records import (
    Begin,
    Claim,
    LedgerRecord,
    ProgressRecord,
    Token,
    TokenRecord,
)
from perseid.topics.transactions import Transactions

PROGRESS_TAIL = 2000  # records; a checkpoint of a thousand parts and its epochs fit in
TOKENS_TAIL = 1000  # records searched for the highest epoch of an earlier job UUID
READ_TIMEOUT_S = 20.0
PATIENCE_S = 1.0  # until an append gets its own producer: one usually takes milliseconds


class HigherClaim(Exception):
    """The token log holds a claim above this leader's epoch, so it must lead with a higher one."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(epoch)


class SharedWriter:
    """A LogWriter that several threads may use: a producer takes half a second to get ready.

    The threads share one producer unless an append takes long: a job's append must not wait for a
    broker that refuses another job's. `make` is called at most once for each thread.
    """

    def __init__(self, make: Callable[[], LogWriter], patience_s: float = PATIENCE_S) -> None:
        self._make, self._patience_s, self._made = make, patience_s, count()
        # Free writers, by failures in a row: a writer that failed must get ready again.
        self._free: PriorityQueue[tuple[int, int, LogWriter]] = PriorityQueue()
        self._free.put((0, next(self._made), make()))

    def append(self, topic: str, partition: int, value: bytes) -> int:
        try:
            failures, number, writer = self._free.get(timeout=self._patience_s)
        except Empty:
            failures, number, writer = 0, next(self._made), self._make()
        try:
            offset = writer.append(topic, partition, value)
        except BaseException:
            self._free.put((failures + 1, number, writer))
            raise
        self._free.put((0, number, writer))
        return offset

    def close(self) -> None:
        while not self._free.empty():
            self._free.get()[-1].close()


@dataclass(frozen=True, slots=True)
class Clients:
    """What loading needs; all ports, so that it also runs in memory. `writer` is shared."""

    registry: Registry
    topics: own_topics.Topics
    reader: LogReader
    writer: LogWriter
    ledger: LedgerReader
    transactions: Transactions
    store: Store
    cache: Path
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class _Read:
    """What the token log holds: the valid tokens, the highest epoch, and `ever`.

    `ever`: all tokens that were valid at some time, also those that a Rewind rolled back.
    `generation`: the highest of any token. `log_time`: the claim's.
    """

    tokens: tuple[Issued, ...]
    epoch: int
    ever: list[Token]
    generation: int
    log_time: Time


@dataclass(frozen=True, slots=True)
class Known:
    """What one leader knows of its jobs before they are loaded.

    `claims`: the broker's time when it stamped this leader's, by name. `others`: see `foreign`, by
    the UUID here. `tidied`: UUID, layout and base epoch of plans without unneeded buffers.
    """

    claims: dict[str, Time] = field(default_factory=dict)
    others: dict[str, foreign.Watched] = field(default_factory=dict)
    tidied: set[tuple[str, int, int]] = field(default_factory=set)


class Loader:
    """Loads jobs for one leader. Not thread-safe: each thread needs its own."""

    def __init__(
        self, clients: Clients, coordinator_epoch: int, leader: str, known: Known | None = None
    ) -> None:
        """`known`: what all loaders of this leader have in common."""
        self._clients = self.clients = clients
        self._known = known if known is not None else Known()
        self._epoch, self._leader = coordinator_epoch, leader

    def load(self, entry: JobEntry) -> JobLoaded:
        """Raises RetryableError, PermanentError, or HigherClaim."""
        try:
            return self._load(entry)
        finally:
            self._clients.reader.close()  # its positions in this job's logs, each a client

    def _load(self, entry: JobEntry) -> JobLoaded:
        registry, job = self._clients.registry, entry.name
        found = registry.plan(job)
        plan = found if found is not None and found.job_uuid == entry.uuid else None
        pointers = registry.pointers(job)
        revision, archive = (plan or entry).revision, (plan or entry).archive
        program = Program(revision, archive, self._spec(archive))
        if plan is not None:
            layout = build(program.spec, plan.layout)
            assignments.check(plan, layout)
            assignments.check_cut(plan, spread_of(program.spec, layout))
        number = plan.layout if plan is not None else 1
        in_force = plan is not None
        own_topics.make(self._clients.topics, job, program.spec, number, in_force=in_force)
        changed = plan is not None and entry.archive != plan.archive
        topics = self._source_topics(program.spec, strict=not changed)  # the entry's may differ
        base = base_of(plan, pointers) if plan is not None else None
        read = self._claim_and_read(entry, base)
        tokens, ever = read.tokens, read.ever
        status = registry.status(job)
        generation = self._generation(job, read.generation)
        if plan is not None and corrections.is_wanted(entry, plan, status):
            layout = build(program.spec, plan.layout)
            clients = self._clients
            ledger_claims.claim(plan, layout, generation + 1, clients.transactions, clients.ledger)
            program = self._with_digests(program)
        progress, progress_end = self._progress(job)
        ledger, of_ledger = self._ledger(job, entry.uuid, program.spec, plan)
        generation = self._generation(job, generation, *(r.generation for r in of_ledger))
        starts = self._starts(
            program.spec, sources.named(ever), topics, None if tokens else _time_of(entry)
        )
        begun = sources.begun(program.spec, (issued.token for issued in tokens), ever)
        if base is not None:
            ledger_checks.tip(job, max([base.epoch, *(i.token.epoch for i in tokens)]), ledger)
        if plan is not None:
            layout = build(program.spec, plan.layout)
            ledger_checks.reported(plan, layout, tokens, progress, ledger)
        return JobLoaded(
            job=job, entry=entry, program=program, plan=plan, generation=generation,
            pointers=pointers, status=status, failures=registry.failures(job),
            begun=plan is not None,
            base=Tip(base.epoch, base.offset) if base is not None else Tip(0, -1),
            tokens=tokens,
            highest_epoch=max([read.epoch, *(r.epoch for r in of_ledger if base is None)]),
            starts={**starts, **begun},
            ledger=ledger, progress=progress, progress_offset=progress_end, log_time=read.log_time,
        )  # fmt: skip

    def program(self, action: LoadProgram) -> ProgramLoaded:
        """The target of a switch; its ledger partitions and buffers exist when this returns."""
        spec = self._spec(action.archive)
        program = self._with_digests(Program(action.revision, action.archive, spec))
        self._make_topics(action.job, spec)
        topics = self._source_topics(program.spec)
        starts = self._starts(spec, action.known, topics, None)
        return ProgramLoaded(action.job, program, starts)

    def _spec(self, archive: str) -> JobSpec:
        return parse.load(self._folder(archive))

    def _with_digests(self, program: Program) -> Program:
        files = read_folder(self._folder(program.archive))
        return replace(
            program,
            upstream_fingerprint=change.upstream_fingerprint(program.spec, files),
            code=change.code(files),
        )

    def _folder(self, archive: str) -> Path:
        return fetch_archive(self._clients.store, archive, self._clients.cache)

    def _make_topics(self, job: str, spec: JobSpec) -> None:
        """Makes those that the job needs once it has switched to `spec`."""
        plan, number, in_force = self._clients.registry.plan(job), 1, False
        if spec.placement.spread > 1 and plan is not None:  # the number is in names of buffers only
            grown = change.needs_new_layout(self._spec(plan.archive), spec)
            number, in_force = plan.layout + grown, not grown
        own_topics.make(self._clients.topics, job, spec, number, in_force=in_force)

    def drop_buffers(self, action: TrimLogs) -> list[str]:
        """Deletes buffer topics that nothing needs any more, once for each plan; their names."""
        clients, tidied = self._clients, self._known.tidied
        return own_topics.drop(clients.registry, clients.topics, action, self._spec, tidied)

    def _source_topics(
        self, spec: JobSpec, *, strict: bool = True
    ) -> Mapping[str, SourceTopic | None]:
        """The source topics; `strict`: raises the permanent error if the job cannot run on them."""
        topics = source_topics(self._clients.topics, {s.topic for s in spec.sources.values()})
        error = sources.fault(spec, {}, topics)
        if error is not None and strict:
            raise error
        return topics

    def _claim_and_read(self, entry: JobEntry, base: Base | None) -> _Read:
        stamps: dict[int, int] = {}
        records = self._claimed(entry, base, stamps)
        log_time = self._known.claims[entry.name]
        highest = max((r.epoch for _, r in records if not isinstance(r, Claim)), default=0)
        generation = max((r.generation for _, r in records if isinstance(r, Token)), default=0)
        if base is None:
            return _Read((), highest, [], generation, log_time)
        valid = valid_tokens(Chain(base), records)
        tokens = [Issued(o, t, stamps[o]) for o, t in valid.items()]
        first = records[0][1]
        if isinstance(first, Token):
            tokens.insert(0, Issued(base.offset, first, stamps[base.offset]))
        ever = list(counted(base, records))
        return _Read(tuple(tokens), highest, ever, generation, log_time)

    def _claimed(
        self, entry: JobEntry, base: Base | None, stamps: dict[int, int]
    ) -> list[tuple[int, TokenRecord]]:
        """The token log from the base on, or its tail; it holds a record of this leader.

        A job that is read repeatedly while a service is unreachable is claimed once. `stamps` gets
        the log's timestamps by offset.
        """
        clients, job = self._clients, entry.name
        topic, place = names.tokens(job), (names.tokens(job), 0)
        low, end = clients.topics.starts([place])[place], clients.topics.ends([place])[place]
        start = base.offset if base is not None else max(low, end - TOKENS_TAIL)
        records = self._tokens(topic, start, end, stamps, whole=base is not None)
        if base is None:
            self._check_not_in_use(entry, records)
        elif any(isinstance(r, Begin) and r.job_uuid != base.job_uuid for _, r in records):
            chain = Chain(base)
            valid_tokens(chain, records)
            if chain.job_uuid != base.job_uuid:  # a claim would shut the other job out
                raise foreign.taken_over(job, base.job_uuid, chain.job_uuid)
        claimed = max((r.coordinator_epoch for _, r in records), default=0)
        if job not in self._known.claims:  # its answer may have been lost
            for offset, record in records:
                if isinstance(record, Claim) and record.coordinator_epoch == self._epoch:
                    self._known.claims[job] = Time(stamps[offset], clients.clock.monotonic_s())
        if claimed < self._epoch or job not in self._known.claims:
            claim = clients.writer.append(topic, 0, codec.encode(Claim(self._epoch, self._leader)))
            claimed_s = clients.clock.monotonic_s()
            records += self._tokens(topic, max(start, end), claim + 1, stamps)
            if not records:
                raise lost_by_broker(
                    f"the token log of {job} ends at {claim}, and the plan is based on its offset "
                    f"{start}"
                )
            self._known.claims[job] = Time(stamps[claim], claimed_s)
            claimed = max(r.coordinator_epoch for _, r in records)
        if claimed > self._epoch:
            raise HigherClaim(claimed)
        return records

    def _check_not_in_use(self, entry: JobEntry, records: list[tuple[int, TokenRecord]]) -> None:
        """A name that was run here before may have a job of its own that was removed."""
        last = foreign.last_of_another(entry.uuid, records)
        if last is None or self._clients.registry.generation(entry.name) > 0:
            return
        now_s = self._clients.clock.monotonic_s()
        watched = foreign.Watched(last[0], now_s)
        watched = self._known.others.setdefault(entry.uuid, watched)
        error = foreign.in_use(entry.name, entry.uuid, watched, last, now_s)
        if isinstance(error, PermanentError):
            self._known.others.pop(entry.uuid)  # who starts it again has it watched again
        if error is not None:
            raise error

    def _tokens(
        self, topic: str, start: int, end: int, stamps: dict[int, int], *, whole: bool = True
    ) -> list[tuple[int, TokenRecord]]:
        entries = self._entries((topic, 0), start, end, whole=whole)
        stamps.update((e.offset, e.stamp_ms) for e in entries)
        return [(e.offset, codec.decode_token(topic, e.offset, e.value)) for e in entries]

    def _entries(self, place: Partition, start: int, end: int, *, whole: bool) -> list[Entry]:
        """All entries of the range; unless `whole`, without those that are being deleted.

        A trim after a checkpoint of the previous job UUID deletes them, or retention.
        """
        while True:
            try:
                return self._clients.reader.read_range(*place, start, end, timeout_s=READ_TIMEOUT_S)
            except ReplayDataLost as trimmed:
                if whole:
                    raise
                start = trimmed.earliest

    def _generation(self, job: str, *known: int) -> int:
        """The highest ever assigned, for any job UUID: ZooKeeper may have lost its own count."""
        return max(self._clients.registry.generation(job), *known)

    def _ledger(
        self, job: str, job_uuid: str, spec: JobSpec, plan: Plan | None
    ) -> tuple[dict[int, int], list[LedgerRecord]]:
        """The last epochs of this job UUID, and the last records of any.

        Without a plan, all partitions are read: neither epochs nor generations restart under a
        name, and ZooKeeper may have lost the earlier job.
        """
        topic = names.ledger(job)
        if plan is None:
            partitions = range(self._clients.topics.describe([topic])[topic].partitions)
        else:
            partitions = range(build(spec, plan.layout).ledger_partitions)
        last = {
            p: record
            for p in partitions
            if (record := self._clients.ledger.last(topic, p, timeout_s=READ_TIMEOUT_S)) is not None
        }
        ours = {p: r.epoch for p, r in last.items() if plan is not None and r.job_uuid == job_uuid}
        return ours, list(last.values())

    def _progress(self, job: str) -> tuple[tuple[ProgressRecord, ...], int]:
        place = (names.progress(job), 0)
        end = self._clients.topics.ends([place])[place]
        start = max(self._clients.topics.starts([place])[place], end - PROGRESS_TAIL)
        entries = self._entries(place, start, end, whole=False)
        return tuple(codec.decode_progress(place[0], e.offset, e.value) for e in entries), end

    def _starts(
        self, spec: JobSpec, known: Collection[tuple[str, str]],
        topics: Mapping[str, SourceTopic | None], from_ms: int | None,
    ) -> dict[tuple[str, int], Position]:  # fmt: skip
        """The first offsets of sources that are not in `known`; those of known ones may be gone."""
        found = {}
        for name, source in spec.sources.items():
            topic = topics[source.topic]
            if topic is None or (name, source.topic) in known:
                continue
            for partition, offset in self._first_offsets(source.start, topic, from_ms).items():
                found[name, partition] = Position(source.topic, topic.topic_id, offset)
        return found

    def _first_offsets(
        self, start: str | dict[int, int], topic: SourceTopic, from_ms: int | None
    ) -> dict[int, int]:
        places = [(topic.topic, partition) for partition in topic.starts]
        if from_ms is None and start == "earliest":
            return dict(topic.starts)
        if from_ms is None and start == "latest":
            return _by_partition(self._clients.topics.ends(places))
        if from_ms is None and isinstance(start, dict):
            ends = _by_partition(self._clients.topics.ends(places))
            return _checked(topic, start, ends)
        time_ms = from_ms if from_ms is not None else _ms(str(start))
        return _by_partition(self._clients.topics.offsets_at(places, time_ms))


def source_topics(topics: TopicReader, wanted: Iterable[str]) -> dict[str, SourceTopic | None]:
    """The topics as they are now; None for those that do not exist."""
    asked = sorted(wanted)
    infos = topics.describe(asked)
    starts = topics.starts([(n, p) for n, info in infos.items() for p in range(info.partitions)])
    found: dict[str, SourceTopic | None] = dict.fromkeys(asked)
    for name, info in infos.items():
        own = {p: starts[name, p] for p in range(info.partitions)}
        found[name] = SourceTopic(name, info.topic_id, info.compacted, own)
    return found


def high_watermarks(
    topics: TopicReader, seen: Mapping[str, SourceTopic | None]
) -> dict[tuple[str, int], int]:
    """The ends of all partitions of the existing topics, including open transactions."""
    places = [(t.topic, p) for t in seen.values() if t is not None for p in t.starts]
    return topics.ends(places, committed=False) if places else {}


def base_of(plan: Plan, pointers: CheckpointPointers | None) -> Base:
    """Where the chain is read from: the newest checkpoint, else the Begin."""
    if pointers is not None and pointers.job_uuid == plan.job_uuid and pointers.pointers:
        newest = pointers.pointers[0]
        return Base(plan.job_uuid, newest.epoch, newest.token_offset)
    return Base(plan.job_uuid, plan.base_epoch, plan.base_offset)


def _checked(topic: SourceTopic, start: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
    for partition, offset in start.items():
        earliest, end = topic.starts.get(partition), ends.get(partition)
        if earliest is None or end is None or not earliest <= offset <= end:
            raise PermanentError(
                f"start of {topic.topic}[{partition}] is {offset}, but the partition has "
                f"{earliest} to {end}; change `start:` in job.yaml and apply again"
            )
    return {**topic.starts, **start}


def _time_of(entry: JobEntry) -> int | None:
    """The time of `jobs start --from TIME`."""
    origin = str(entry.start.get("from", ""))
    return _ms(origin) if origin not in ("", "scratch", "checkpoint") else None


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _by_partition(offsets: Mapping[tuple[str, int], int]) -> dict[int, int]:
    return {partition: offset for (_, partition), offset in offsets.items()}
