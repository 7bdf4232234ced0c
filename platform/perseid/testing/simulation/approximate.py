"""One operator partition with approximate fault tolerance runs under faults; its error is checked.

AF-Stream's protocol with the decisions of `perseid.coordinator.planners`: thresholds, backups and
the order of a take-over. Store, failure counter, upstream and Redis are models with fences, lost
answers and late effects. The checker knows only which items upstream has sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from perseid.coordinator.planners.backups import Backups
from perseid.coordinator.planners.thresholds import Bounds, thresholds
from perseid.errors import RetryableError
from perseid.state.durability.counters import CounterKey, Divergence, judge
from perseid.testing.counters import FakeRedis
from perseid.testing.simulation import again
from perseid.testing.simulation.engine import Defect, Group, Simulation

ALPHA = 2.0
RUN_S = 20.0
BACKUP_S = 0.5  # a backup without an answer is aborted after this time
PAUSE_S, REPLACED_S, ZOMBIE_S = 1.0, 0.5, 3.0
BURST = 6  # items at once, at most
KEY = CounterKey("sums", "totals", 0)
STRENGTHS: dict[str, tuple[float, float]] = {
    "crash": (0.0005, 0.05), "pause": (0.0005, 0.02), "backup lost": (0.01, 0.5),
    "answer lost": (0.01, 0.5), "backup late": (0.01, 0.5), "redis silent": (0.01, 0.3),
    "redis emptied": (0.01, 0.3), "redis stale": (0.01, 0.3),
}  # fmt: skip
LINES_SHOWN = 30
BRANCHES = ("exact", "backed up first", "backup durable")


@dataclass
class Store:
    """The newest durable backup: its writer, the sum of the applied items, its input position."""

    stamp: tuple[int, int] = (0, 0)  # generation, sequence
    applied: float = 0.0
    cursor: int = 0

    def put(self, stamp: tuple[int, int], applied: float, cursor: int) -> None:
        """Refuses an older stamp: it comes from a previous owner or arrives late."""
        if stamp > self.stamp:
            self.stamp, self.applied, self.cursor = stamp, applied, cursor


@dataclass
class World:
    """The state that outlives the owners of the partition."""

    simulation: Simulation
    bounds: Bounds
    strength: dict[str, float]
    store: Store = field(default_factory=Store)
    redis: FakeRedis = field(default_factory=FakeRedis)
    failures: int = 0  # durable, as in ZooKeeper
    generation: int = 0
    items: list[float] = field(default_factory=list)  # upstream
    sums: list[float] = field(default_factory=lambda: [0.0])  # prefix sums of `items`
    taken: int = 0  # upstream has released the items before this index
    exact_from: int = 0
    lost_outputs: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    owner: Owner | None = None

    def strikes(self, fault: str) -> bool:
        if self.simulation.random.random() < self.strength.get(fault, 0.0):
            self.hit[fault] += 1
            return True
        return False

    def between(self, start: int, end: int) -> list[float]:
        while end > len(self.items):
            self.items.append(self.simulation.random.choice([0.0, 0.5, 1.0, ALPHA]))
            self.sums.append(self.sums[-1] + self.items[-1])
        return self.items[start:end]

    def new_owner(self) -> None:
        Owner(self)

    def check(self) -> None:
        """Raises Defect. Runs after every event."""
        owner = self.owner
        live = owner is not None and not owner.group.dead and not owner.exact
        there = owner.applied + sum(owner.waiting) if owner and live else self.store.applied
        error = self.sums[max(self.taken, self.store.cursor)] - there
        most = self.bounds.theta + self.bounds.l * ALPHA if self.generation > 1 else 0.0
        if live and not -1e-9 <= error <= most + 1e-9:
            raise Defect(f"the state is off by {error}, allowed is {most}")
        if self.lost_outputs > self.bounds.gamma:
            raise Defect(f"{self.lost_outputs} outputs are lost, allowed is {self.bounds.gamma}")

    def disturb_redis(self) -> None:
        self.redis.answers = not self.strikes("redis silent")
        if self.strikes("redis emptied"):
            self.redis.empty()
        if self.strikes("redis stale"):
            self.redis.fall_back()
        elif self.simulation.random.random() < 0.3:
            self.redis.save()
        self.simulation.after(0.2, self.disturb_redis)


class Owner:
    """One incarnation of the operator partition."""

    def __init__(self, world: World) -> None:
        world.generation += 1
        self.world, self.generation, self.sequence = world, world.generation, 0
        self.group: Group = world.simulation.group(f"g{self.generation}", self._died)
        self.waiting: list[float] = []  # received, not yet applied
        self.unanswered = 0  # outputs that the consumer has not acknowledged
        self.applied, self.exact = world.store.applied, False
        world.owner = self
        self._spawn(self._live)

    def _spawn(self, work: Callable[[], None]) -> None:
        self.world.simulation.spawn(self.group, f"g{self.generation}", work)

    def _died(self) -> None:
        self.world.lost_outputs += self.unanswered
        if self.world.owner is self:
            pause_s = self.world.simulation.random.uniform(0.0, 0.3)
            self.world.simulation.after(pause_s, self.world.new_owner)

    # Take-over ----------------------------------------------------------------------------------

    def _live(self) -> None:
        world = self.world
        self._gate()
        self.count_failure()
        now = thresholds(world.bounds, world.failures)
        world.simulation.note(f"begins with {now}")
        self.limit, self.gamma = now.l, now.gamma
        self.backups = Backups(now.theta, ALPHA)
        self.exact = now.exact
        if self.exact:
            world.hit["exact"] += 1
            world.exact_from = max(world.exact_from, world.taken)
        elif judge(Divergence(self.generation, 0, 0.0), self.counter()).back_up_first:
            world.hit["backed up first"] += 1
            world.store.put(*self._copy())
        while True:
            world.simulation.sleep(world.simulation.random.choice([0.0, 0.01, 0.05]))
            self._gate()
            if world.generation == self.generation:  # upstream serves only the newest owner
                self._work_exactly() if self.exact else self._work()

    def count_failure(self) -> None:
        """Makes the count durable before any work, so that a crash before the work counts again."""
        self.world.failures += self.generation > 1
        self._gate()

    def counter(self) -> Divergence | None:
        try:
            return self.world.redis.session().read(KEY)
        except RetryableError:
            return None

    # Work ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        world = self.world
        count = min(world.simulation.random.randint(0, BURST), self.limit - len(self.waiting))
        self.waiting += world.between(world.taken, world.taken + count)
        world.taken += count
        self._gate()
        count = min(self.backups.room, len(self.waiting), self.gamma - self.unanswered)
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self.applied += sum(batch)
        self.backups = self.backups.applied(sum(batch))
        self.unanswered += count
        self._spawn(lambda: self._answer(count))
        self.publish()
        if self.backups.due:
            self.backups = self.backups.issued()
            self._spawn(self._back_up)

    def _work_exactly(self) -> None:
        """Upstream keeps the items until a backup that holds them is durable."""
        world = self.world
        start = max(world.store.cursor, world.exact_from)
        end = start + world.simulation.random.randint(0, BURST)
        self.applied = world.store.applied + sum(world.between(start, end))
        self._gate()
        self.sequence += 1
        world.store.put((self.generation, self.sequence), self.applied, end)
        self._gate()
        world.taken = max(world.taken, end)

    def _answer(self, count: int) -> None:
        self.world.simulation.sleep(self.world.simulation.random.uniform(0.0, 0.2))
        self.unanswered -= count

    def publish(self) -> None:
        """Publishes the divergence for users and as a take-over hint; nothing depends on it."""
        self.sequence += 1
        counter = Divergence(self.generation, self.sequence, self.backups.since_durable)
        try:
            self.world.redis.session().publish(KEY, counter)
        except RetryableError:
            return

    # Backups ------------------------------------------------------------------------------------

    def _copy(self) -> tuple[tuple[int, int], float, int]:
        self.sequence += 1
        return (self.generation, self.sequence), self.applied, self.world.taken

    def _back_up(self) -> None:
        """The backup may be lost, late or unanswered."""
        world, copy = self.world, self._copy()
        world.simulation.sleep(world.simulation.random.uniform(0.0, BACKUP_S))
        self._gate()
        answered = False
        if world.strikes("backup late"):
            late_s = world.simulation.random.uniform(0.0, 10 * BACKUP_S)
            world.simulation.after(late_s, lambda: world.store.put(*copy))
        elif not world.strikes("backup lost"):
            world.store.put(*copy)
            self._gate()
            answered = not world.strikes("answer lost")
        if answered:
            world.hit["backup durable"] += 1
            self.backups = self.backups.acknowledged()
        else:
            world.simulation.sleep(BACKUP_S)
            self.backups = self.backups.aborted()

    # Faults -------------------------------------------------------------------------------------

    def _gate(self) -> None:
        world = self.world
        if world.strikes("crash"):
            world.simulation.note("CRASHES")
            world.simulation.kill(self.group)
        if world.strikes("pause"):
            world.simulation.note("PAUSED")
            world.simulation.after(REPLACED_S, self._replaced)
            world.simulation.pause(self.group, PAUSE_S)

    def _replaced(self) -> None:
        """A new owner replaces this one while it is paused; then it is a zombie for a while."""
        if self.world.owner is self and not self.group.dead:
            self.world.new_owner()
            self.world.simulation.after(ZOMBIE_S, partial(self.world.simulation.kill, self.group))


@dataclass(frozen=True)
class Outcome:
    """How a seed ended. An empty `error` means that the bounds held after every event."""

    seed: int
    error: str
    trace_hash: str
    lines: tuple[str, ...]
    hit: Counter[str]
    command: str

    def explain(self) -> str:
        """Returns the text for the reader of a failed test."""
        return "\n".join([
            f"seed {self.seed}: {self.error}", *self.lines[-LINES_SHOWN:],
            f"trace {self.trace_hash}; repeat it: {self.command}",
        ])  # fmt: skip


def run(seed: int) -> Outcome:
    """Plays one seed with bounds and a mixture of faults of its own."""
    with Simulation(seed) as simulation:
        chance = simulation.random
        theta, l_ = chance.choice([16.0, 80.0, 400.0]), chance.choice([8, 80, 800])
        bounds = Bounds(theta, l_, gamma=chance.choice([64, 640]))
        world = World(simulation, bounds, _drawn(chance))
        simulation.after_event = world.check
        world.disturb_redis()
        world.new_owner()
        error = ""
        try:
            simulation.run(RUN_S)
        except Defect as defect:
            error = str(defect)
        command = again.command(seed, approximate=True)
        lines = tuple(simulation.lines)
        return Outcome(seed, error, simulation.trace_hash, lines, world.hit, command)


def _drawn(chance: Random) -> dict[str, float]:
    return {
        name: low * (high / low) ** chance.random()
        for name, (low, high) in STRENGTHS.items() if chance.random() < 0.6
    }  # fmt: skip
