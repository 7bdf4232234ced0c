"""The world that the coordinator's core sees, in memory: entries, logs, topics and one worker.

`World` replaces ZooKeeper, Kafka and the store. A `Leader` runs the real core on it and performs
its actions as the shell does. It can be crashed between any two writes, and an old leader can
continue after a new one has taken over. There are no threads, so a test decides every order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator import invariants, sources, token_time
from perseid.coordinator.core import decide
from perseid.coordinator.decision_log.lines import Decided
from perseid.coordinator.job.chain import Issued, Tip
from perseid.coordinator.job.positions import Position
from perseid.coordinator.job.program import Program
from perseid.coordinator.loading import base_of
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.token_time import Now
from perseid.errors import FencedError
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.jobs.operations import change
from perseid.records import (
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    JobFailures,
    JobStatus,
    Plan,
    WorkerInfo,
)
from perseid.records.version import PROTOCOL
from perseid.state.durability.checkpoint import checkpoint_folder
from perseid.topics.chain import Base, Chain, counted, valid_tokens
from perseid.topics.records import (
    Begin,
    Claim,
    EpochDone,
    EventTime,
    EventTimes,
    FragmentState,
    InputCheck,
    OperatorState,
    PartDone,
    ProgressRecord,
    Rewind,
    Token,
    TokenRecord,
)

TOPIC_ID = "topic-1"
RECORD_BYTES = 100


class Crashed(Exception):
    """The leader crashed before a write, as the test requested."""


def job_spec(name: str = "wordcount", parallelism: int = 2, **changes: object) -> JobSpec:
    """A keyed count with one source and one sink."""
    spec = JobSpec(
        name=name,
        parallelism=parallelism,
        sources={"lines": SourceSpec(topic="lines", format="text")},
        operators={
            "counts": OperatorSpec(
                inputs={"input": "lines"}, use="m:Counts", key=("value",), parallelism=parallelism
            )
        },
        sinks={"counts": SinkSpec(input="counts", topic="out", format="json", key="value")},
    )
    return spec.model_copy(update=changes)


def job_entry(name: str = "wordcount", **changes: object) -> JobEntry:
    entry = JobEntry(name, "u1", "r1", "archive-1", "running", 1, 0)
    return replace(entry, **changes)  # type: ignore[arg-type]


def worker_info(incarnation: str) -> WorkerInfo:
    name = incarnation.partition("-")[0]
    host = f"host-of-{name}"
    return WorkerInfo(name, incarnation, host, 1, 1, 2, "local[2]", 0, protocol=PROTOCOL)


@dataclass
class World:
    """The state that outlives every leader."""

    programs: dict[str, JobSpec] = field(default_factory=lambda: {"archive-1": job_spec()})
    entries: dict[str, JobEntry] = field(default_factory=dict)
    workers: list[str] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)  # draining workers
    leader_epoch: int = 0
    plans: dict[str, Plan] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    pointers: dict[str, CheckpointPointers] = field(default_factory=dict)
    statuses: dict[str, JobStatus] = field(default_factory=dict)
    failures: dict[str, JobFailures] = field(default_factory=dict)
    tokens: dict[str, list[TokenRecord]] = field(default_factory=dict)
    progress: dict[str, list[ProgressRecord]] = field(default_factory=dict)
    ledger: dict[str, dict[int, int]] = field(default_factory=dict)
    manifests: dict[tuple[str, int], act.WriteManifest] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    time_s: float = 100.0
    wall_ahead_s: float = 0.0  # error of the leading machine's wall clock
    broker_ahead_s: float = 0.0  # error of the broker's wall clock
    stamps: dict[str, list[int]] = field(default_factory=dict)  # by the broker, on each of `tokens`
    states: tuple[OperatorState, ...] = ()  # reported by the owner for each epoch
    record_bytes: dict[str, int] = field(default_factory=dict)  # by source; else RECORD_BYTES
    codes: dict[str, str] = field(default_factory=dict)  # of archives; else each has its own

    @property
    def now(self) -> Now:
        """`time_ms`: right, as that of a leader whose clock was right when it started."""
        wall_ms = round((self.time_s + self.wall_ahead_s) * 1000)
        return Now(self.time_s, wall_ms, self.time_s * 1000)

    @property
    def broker_ms(self) -> int:
        return round((self.time_s + self.broker_ahead_s) * 1000)

    def valid(self, job: str, base: Base | None = None) -> dict[int, Token]:
        """Returns the valid tokens by offset, read from `base`."""
        start = base.offset if base is not None else 0
        entries = list(enumerate(self.tokens.get(job, [])))[start:]
        return valid_tokens(Chain(base), entries)

    def produce(self, partition: int, records: int, topic: str = "lines") -> None:
        self.ends[topic, partition] = self.ends.get((topic, partition), 0) + records

    def work(self, job: str, epochs: int = 1, *, duration_ms: int = 100) -> int:
        """Lets the owner run up to `epochs` epochs; returns how many it ran."""
        plan = self.plans.get(job)
        if plan is None or plan.owner not in self.workers:
            return 0
        plan = plan.of_one(plan.only)
        done = self.done(job, plan.job_uuid)
        waiting = [(o, t) for o, t in self.valid(job).items() if t.epoch > done]
        for offset, token in waiting[:epochs]:
            self._run(job, plan, offset, token, duration_ms)
        return len(waiting[:epochs])

    def done(self, job: str, job_uuid: str) -> int:
        """Returns the last epoch in the ledger, else the epoch of the chain's Begin."""
        found = self.ledger.get(job, {})
        begun = [r.epoch for r in self.tokens.get(job, []) if isinstance(r, Begin)]
        return min(found.values()) if found else max(begun, default=0)

    def report(self, job: str, state: str, **changes: object) -> FragmentState:
        """Reports the state of the owner's fragment."""
        plan = self.plans[job]
        record = FragmentState(
            plan.job_uuid, plan.only.generation, plan.owner or "", state,
            self.done(job, plan.job_uuid),
        )  # fmt: skip
        record = replace(record, **changes)  # type: ignore[arg-type]
        self.progress.setdefault(job, []).append(record)
        return record

    def _run(self, job: str, plan: Plan, offset: int, token: Token, duration_ms: int) -> None:
        layout = build(self.programs[plan.archive], plan.layout)
        ledger = self.ledger.setdefault(job, {})
        ledger.update({t.ledger: token.epoch for t in layout.ledger_tasks if t.ledger is not None})
        records = self.progress.setdefault(job, [])
        rows = token.records
        checks = tuple(
            InputCheck(token.epoch, i, s, sum(r.end - r.start for r in split if r.source == s), 1)
            for i, split in enumerate(token.splits)
            for s in sorted({r.source for r in split})
        )
        read: Counter[str] = Counter()
        for check in checks:
            read[check.source] += check.count * self.record_bytes.get(check.source, RECORD_BYTES)
        times = event_times(self.programs[plan.archive], token)
        if times:
            records.append(
                EventTimes(plan.job_uuid, plan.generation, token.epoch, offset, 0, times)
            )
        records.append(
            EpochDone(plan.job_uuid, plan.generation, plan.owner or "", token.epoch, offset, rows,
                      rows, duration_ms, checks=checks, states=self.states, bytes_in=dict(read))
        )  # fmt: skip
        if token.checkpoint:
            records.extend(
                PartDone(plan.job_uuid, plan.generation, token.epoch, plan.layout, t.operator,
                         t.partition, part_of(plan, token.epoch, offset, str(t.gid)), 10, 1, 0.1)
                for t in layout.stateful_tasks
            )  # fmt: skip


def event_times(spec: JobSpec, token: Token) -> tuple[EventTime, ...]:
    """A worker's report: the row at offset o of a timed source has the event time 1000 o."""
    return tuple(
        EventTime(r.source, r.partition, 1000 * (r.end - 1))
        for split in token.splits
        for r in split
        if r.source in spec.event_times and r.end > r.start
    )


class Leader:
    """One coordinator's term as leader. It crashes before the write after `writes_left` writes."""

    def __init__(self, world: World, *, writes_left: int | None = None) -> None:
        world.leader_epoch += 1
        self.world = world
        self.state = ClusterState(world.leader_epoch, token_time.started(world.now))
        self.writes_left = writes_left
        self.loads = True  # False: the store fails to load programs of switches
        self.performed: list[act.Action] = []
        self.decided: list[Decided] = []
        self._read: dict[str, int] = {}

    def job(self, name: str = "wordcount") -> JobState:
        return self.state.jobs[name]

    def feed(self, event: ev.Event) -> list[act.Action]:
        """Decides on `event` and performs the actions, then feeds in the outcomes."""
        before, now = self.state, self.world.now
        self.state, actions = decide(before, event, now)
        assert invariants.broken(before, self.state, actions) == []
        self.decided.append(Decided(before, event, now, self.state, tuple(actions)))
        done = list(actions)
        outcomes = [outcome for a in actions if (outcome := self._perform(a)) is not None]
        for outcome in outcomes:
            done += self.feed(outcome)
        return done

    def look(self) -> None:
        """Reads the registry and the ends of all source partitions."""
        world = self.world
        workers = tuple(replace(worker_info(w), leaving=w in world.leaving) for w in world.workers)
        self.feed(ev.RegistrySeen(dict(self.world.entries), workers))
        self.poll()

    def poll(self) -> None:
        self.feed(ev.EndsSeen(dict(self.world.ends), self.world.time_s))

    def listen(self) -> None:
        """Reads the new records of the progress topics."""
        for job in list(self.state.jobs):
            records = self.world.progress.get(job, [])
            start = self._read.get(job, 0)
            self._read[job] = len(records)
            for record in records[start:]:
                self.feed(ev.ProgressSeen(job, record))

    def tick(self, seconds: float = 0.0) -> None:
        self.world.time_s += seconds
        self.feed(ev.Tick())

    def _perform(self, action: act.Action) -> ev.Event | None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Crashed(type(action).__name__)
            self.writes_left -= 1
        self.performed.append(action)
        outcome: ev.Event | None = None
        match action:
            case act.LoadJob():
                outcome = self._load(action)
            case act.LoadProgram():
                outcome = self._load_program(action)
            case act.AppendBegin(job=job, begin=begin):
                outcome = ev.BeginAppended(job, begin, self._append(job, begin))
            case act.AppendRewind(job=job, rewind=rewind):
                outcome = ev.RewindAppended(job, rewind, self._append(job, rewind))
            case act.AppendToken(job=job, token=token):
                outcome = ev.TokenAppended(job, token, self._append(job, token))
            case act.WriteManifest():
                outcome = self._write_manifest(action)
            case _:
                self._put(action)
        return outcome

    def _append(self, job: str, record: Begin | Rewind | Token | Claim) -> int:
        log = self.world.tokens.setdefault(job, [])
        log.append(record)
        self.world.stamps.setdefault(job, []).append(self.world.broker_ms)
        return len(log) - 1

    def _put(self, action: act.Action) -> None:
        world = self.world
        if self.state.epoch != world.leader_epoch:
            raise FencedError("another coordinator leads")
        match action:
            case act.PutPlan(job=job, plan=plan):
                world.plans[job], world.generations[job] = plan, plan.generation
            case act.PutStatus(job=job, status=status):
                world.statuses[job] = status
            case act.PutFailures(job=job, failures=failures):
                world.failures[job] = failures
            case act.PutPointers(job=job, pointers=pointers):
                world.pointers[job] = pointers
            case act.RemoveJob(job=job):
                for entries in (world.entries, world.plans, world.pointers, world.statuses):
                    entries.pop(job, None)
            case _:
                pass

    def _load(self, action: act.LoadJob) -> ev.JobLoaded:
        world, job, entry = self.world, action.job, action.entry
        self._append(job, Claim(self.state.epoch, "c"))
        plan, pointers = world.plans.get(job), world.pointers.get(job)
        ours = plan is not None and plan.job_uuid == entry.uuid
        base = base_of(plan, pointers) if ours and plan is not None else None
        valid = world.valid(job, base) if base is not None else {}
        log, stamps = world.tokens[job], world.stamps[job]
        tokens = tuple(Issued(o, t, stamps[o]) for o, t in valid.items())
        if base is not None and isinstance(first := log[base.offset], Token):
            tokens = (Issued(base.offset, first, stamps[base.offset]), *tokens)
        archive = plan.archive if ours and plan is not None else entry.archive
        spec = world.programs[archive]
        ever = list(counted(base, enumerate(log))) if base is not None else []
        begun = sources.begun(spec, (issued.token for issued in tokens), ever)
        self._read[job] = len(world.progress.get(job, []))
        return ev.JobLoaded(
            job, entry,
            _program(world, plan.revision if ours and plan is not None else entry.revision,
                     archive, spec),
            plan if ours else None, world.generations.get(job, 0), pointers,
            world.statuses.get(job), world.failures.get(job), ours,
            Tip(base.epoch, base.offset) if base is not None else Tip(0, -1), tokens,
            max((r.epoch for r in log if not isinstance(r, Claim)), default=0),
            {**self._starts(spec, sources.named(ever)), **begun},
            dict(world.ledger.get(job, {})) if ours else {}, tuple(world.progress.get(job, [])),
            log_time=token_time.Time(world.stamps[job][-1], world.time_s),
        )  # fmt: skip

    def _load_program(self, action: act.LoadProgram) -> ev.Event:
        if not self.loads:
            return ev.ProgramFailed(action.job, action.archive, "RetryableError", "away", False)
        spec = self.world.programs.get(action.archive)
        if spec is None:
            return ev.ProgramFailed(action.job, action.archive, "DamagedFile", "missing", True)
        program = _program(self.world, action.revision, action.archive, spec)
        return ev.ProgramLoaded(action.job, program, self._starts(spec, action.known))

    def _starts(
        self, spec: JobSpec, known: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, int], Position]:
        return {
            (source, partition): Position(
                topic, TOPIC_ID, self.world.starts.get((topic, partition), 0)
            )
            for source, of in spec.sources.items()
            for topic, partition in self.world.ends
            if topic == of.topic and (source, topic) not in set(known)
        }

    def _write_manifest(self, action: act.WriteManifest) -> ev.ManifestWritten:
        self.world.manifests[action.job, action.epoch] = action
        pointer = CheckpointPointer(
            action.epoch, action.generation, action.layout, action.revision, action.token_offset,
            f"c-{action.epoch}", 1, sum(p.bytes for p in action.parts), action.time_ms,
            action.epoch, (action.epoch,),
        )  # fmt: skip
        return ev.ManifestWritten(action.job, action.job_uuid, pointer)


def _program(world: World, revision: str, archive: str, spec: JobSpec) -> Program:
    code = world.codes.get(archive, archive)
    return Program(revision, archive, spec, change.upstream_fingerprint(spec, {}), code)


def part_of(plan: Plan, epoch: int, offset: int, name: str) -> str:
    """Returns the path of a part."""
    folder = checkpoint_folder(plan.job, plan.job_uuid, epoch, plan.generation, offset)
    return f"{folder}/{name}"
