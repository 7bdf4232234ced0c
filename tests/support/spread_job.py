"""A job of several fragments in a world in memory, with workers that run each its own.

The job has two parts that exchange no rows: source `a` with the operators `a1` and `a2`, cut into
the fragments 0, 1 and 2, and source `b` with `b1`, which is fragment 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from perseid.jobs.model.assignments import tasks_of
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec, OperatorSpec, PlacementSpec, SinkSpec, SourceSpec
from perseid.jobs.model.spread import Spread, spread_of
from perseid.records import Assignment
from perseid.topics.records import (
    EpochDone,
    FragmentState,
    InputCheck,
    PartDone,
    Token,
)
from support.coordinator import Leader, World, job_entry, part_of

JOB = "wordcount"
OF_A, OF_B = ("0", "1", "2"), "3"
ALL = (*OF_A, OF_B)


def spread_spec(spread: int = 4, **changes: object) -> JobSpec:
    spec = JobSpec(
        name=JOB, parallelism=4,
        sources={n: SourceSpec(topic=n, format="text") for n in "ab"},
        operators={
            name: OperatorSpec(inputs={"in": source}, use="m:X", key=("value",), parallelism=number)
            for name, source, number in (("a1", "a", 4), ("a2", "a1", 3), ("b1", "b", 2))
        },
        sinks={n: SinkSpec(input=n, topic=n, format="json", key="value") for n in ("a2", "b1")},
        placement=PlacementSpec(spread=spread),
    )  # fmt: skip
    return spec.model_copy(update=changes)


@dataclass
class SpreadWorld(World):
    """`ran`: by fragment, the last epoch; `up`: the fragments that have restored.

    `sends`: by reader, the bytes that each fragment sends it in an epoch with input.
    """

    ran: dict[str, int] = field(default_factory=dict)
    up: set[tuple[str, int]] = field(default_factory=set)
    duration_ms: int = 100
    sends: dict[str, int] = field(default_factory=dict)

    @property
    def spread(self) -> Spread:
        plan = self.plans[JOB]
        spec = self.programs[plan.archive]
        found = spread_of(spec, build(spec, plan.layout))
        assert found is not None
        return found

    @property
    def owners(self) -> dict[str, str | None]:
        return {a.fragment: a.owner for a in self.plans[JOB].assignments}

    @property
    def generations_of(self) -> dict[str, int]:
        return {a.fragment: a.generation for a in self.plans[JOB].assignments}

    def done(self, job: str, job_uuid: str) -> int:
        return min(self.reached(a) for a in self.plans[job].assignments)

    def reached(self, own: Assignment) -> int:
        return max(self.ran.get(own.fragment, 0), own.from_epoch)

    def restore(self, fragments: Iterable[str] | None = None) -> None:
        """These, or all that have a live owner and do not run yet, report that they run."""
        for own in self.plans[JOB].assignments:
            wanted = fragments is None or own.fragment in fragments
            if wanted and own.owner in self.workers and not self._is_up(own):
                self.up.add((own.fragment, own.generation))
                self.report_of(own.fragment, "running")

    def report_of(self, fragment: str, state: str, **changes: object) -> FragmentState:
        """Reports the state of one fragment, by its owner."""
        own = self.plans[JOB].of_fragment(fragment)
        assert own is not None
        if state in ("failed", "stopped"):
            self.up.discard((fragment, own.generation))
        record = FragmentState(
            "u1", own.generation, own.owner or "", state, self.reached(own), fragment=fragment
        )
        record = replace(record, **changes)  # type: ignore[arg-type]
        self.progress.setdefault(JOB, []).append(record)
        return record

    def run(self, epochs: int = 1, fragments: Collection[str] | None = None) -> int:
        """Lets the fragments run so many epochs, as far as those that they wait for let them."""
        ran = 0
        for _ in range(epochs):
            named = [
                a for a in self.plans[JOB].assignments
                if fragments is None or a.fragment in fragments
            ]  # fmt: skip
            for own in [a for a in named if self._can_run(a)]:
                ran += self._run_next(own)
        return ran

    def _is_up(self, own: Assignment) -> bool:
        return own.owner in self.workers and (own.fragment, own.generation) in self.up

    def _can_run(self, own: Assignment) -> bool:
        after, assignments = self.reached(own), self.plans[JOB].assignments
        if own.split is None:
            return self._is_up(own)
        mates = [assignments[at] for at in self.spread.waits_for(own.split)]
        return all(
            self.reached(a) > after or (self._is_up(a) and self.reached(a) == after) for a in mates
        )

    def _run_next(self, own: Assignment) -> int:
        epoch = self.reached(own) + 1
        for offset, token in self.valid(JOB).items():
            if token.epoch == epoch:
                self.ran[own.fragment] = epoch
                self._ends(own, offset, token)
                return 1
        return 0

    def _ends(self, own: Assignment, offset: int, token: Token) -> None:
        plan = self.plans[JOB].of_one(own)
        layout = build(self.programs[plan.archive], plan.layout)
        tasks = tasks_of(own, layout)
        ledger = self.ledger.setdefault(JOB, {})
        ledger.update({t.ledger: token.epoch for t in tasks if t.ledger is not None})
        read = range(len(token.splits)) if own.split is None else [own.split]
        checks = tuple(
            InputCheck(token.epoch, at, source, count, 1)
            for at in read for source in "ab"
            if (count := sum(r.end - r.start for r in token.splits[at] if r.source == source))
        )  # fmt: skip
        rows = sum(check.count for check in checks)
        bytes_in: Counter[str] = Counter()
        for check in checks:
            bytes_in[check.source] += 100 * check.count
        records = self.progress.setdefault(JOB, [])
        records.append(
            EpochDone(
                "u1", own.generation, own.owner or "", token.epoch, offset, rows, rows,
                self.duration_ms, checks=checks, state_bytes=10, fragment=own.fragment,
                bytes_in=dict(bytes_in), buffered=dict(self.sends) if token.records else {},
            )
        )  # fmt: skip
        if token.checkpoint:
            records.extend(
                PartDone("u1", own.generation, token.epoch, plan.layout, t.operator, t.partition,
                         part_of(plan, token.epoch, offset, str(t.gid)), 10, 1, 0.1)
                for t in tasks if t.stateful
            )  # fmt: skip


def spread_world(workers: int, spread: int = 4) -> SpreadWorld:
    """Two source topics with six and one partitions, all empty, and so many workers."""
    world = SpreadWorld(
        programs={"archive-1": spread_spec(spread)}, entries={JOB: job_entry()},
        workers=[f"w{number}-1" for number in range(1, workers + 1)],
    )  # fmt: skip
    world.ends = {**{("a", p): 0 for p in range(6)}, ("b", 0): 0}
    return world


def leading(world: SpreadWorld) -> Leader:
    """Leads, and every fragment runs."""
    leader = Leader(world)
    leader.look()
    world.restore()
    leader.listen()
    return leader


def feed(world: SpreadWorld, leader: Leader) -> None:
    """Input for each partition, and the leader's next token if it may issue one."""
    for topic, partition in list(world.ends):
        world.produce(partition, 10, topic)
    leader.poll()


def epochs(world: SpreadWorld, leader: Leader, number: int = 1) -> None:
    """So many more tokens as far as the leader issues them, each run by all that can."""
    for _ in range(number):
        feed(world, leader)
        world.run(2)
        leader.listen()


def lose(world: SpreadWorld, leader: Leader, worker: str) -> None:
    """The worker is dead, and the leader sees it."""
    world.workers = [w for w in world.workers if w != worker]
    leader.look()
