"""One seed: a cluster, a workload, a mixture of faults; then all heals, and it must finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from perseid.coordinator import issue
from perseid.errors import RetryableError
from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Defect, Process, Simulation
from perseid.testing.simulation.faults import Faults
from perseid.testing.simulation.leader import Coordinator
from perseid.testing.simulation.worker import Worker
from perseid.testing.simulation.world import World

FAULTS_S = 20.0  # input comes and faults strike
FINISH_S = 150.0  # then all must be done: a failure's longest pause is 30 s, a transaction's 10 s
PRODUCE_EVERY_S = 0.4
SPLIT_RECORDS_MIN = 20  # instead of 20,000: so that small epochs have several splits too
EVENTS_MAX = 400_000
LINES_SHOWN = 60


@dataclass(frozen=True)
class Outcome:
    """How a seed ended. `error` empty: all held."""

    seed: int
    error: str
    trace_hash: str
    lines: tuple[str, ...]
    faults: str
    struck: Counter[str]
    virtual_s: float
    events: int

    def explain(self) -> str:
        """For the reader of a failed test."""
        return "\n".join([
            f"seed {self.seed}: {self.error}", f"faults: {self.faults}",
            *self.lines[-LINES_SHOWN:],
            f"repeat it: python -m perseid.testing.simulation {self.seed}",
        ])  # fmt: skip


def run(seed: int) -> Outcome:
    """Plays one seed to its end."""
    with Simulation(seed) as simulation, small_splits():
        faults = Faults.draw(simulation.random)
        told = faults.told()
        world = _world(simulation, faults)
        error = ""
        try:
            _play(simulation, world)
        except Defect as defect:
            error = str(defect)
        except Exception as defect:
            error = f"{type(defect).__name__}: {defect}"
            simulation.say(error)
        return Outcome(
            seed, error, simulation.trace_hash, tuple(simulation.lines), told,
            world.gates.struck, simulation.now_s, simulation.events,
        )  # fmt: skip


@contextmanager
def small_splits() -> Iterator[None]:
    with patch.object(issue, "SPLIT_RECORDS_MIN", SPLIT_RECORDS_MIN):
        yield


def _world(simulation: Simulation, faults: Faults) -> World:
    chance = simulation.random
    spec = job.spec(
        parallelism=chance.choice([1, 2, 3]),
        levels=chance.choice([1, 1, 2]),
        sink_on_totals=chance.random() < 0.5,
        period_s=chance.choice([1.0, 2.0, 5.0, 1000.0]),
    )
    return World(simulation, faults, spec, hosts=chance.choice([1, 1, 2]))


def _play(simulation: Simulation, world: World) -> None:
    simulation.after_event = world.checker.look
    world.gates.lose_host = lambda process: _power_failure(world, process)
    for name in ("c1", "c2"):
        Coordinator(world, name)
    for number in range(simulation.random.choice([1, 2, 3])):
        Worker(world, f"w{number + 1}", number % len(world.hosts))
    _input(simulation, world)
    simulation.after(1.0, lambda: _user(simulation, world))
    _run(simulation, FAULTS_S)
    world.faults.stop()
    simulation.say(f"HEALED; faults so far: {dict(world.gates.struck)}")
    _run(simulation, FAULTS_S + 1.0)  # a user's second thought may still come
    entry = world.registry.job_entry(job.JOB)
    if entry is not None and entry.value.desired != "running":
        world.want("running")
    if not _run(simulation, FAULTS_S + FINISH_S, world):
        raise Defect(f"not finished {FINISH_S} s after the last fault")
    world.checker.finish()


def _run(simulation: Simulation, until_s: float, world: World | None = None) -> bool:
    def done() -> bool:
        if simulation.events > EVENTS_MAX:
            raise Defect("too many events: something turns in a circle")
        return world is not None and world.checker.complete

    return simulation.run(until_s, done)


def _input(simulation: Simulation, world: World) -> None:
    world.produce(simulation.random, simulation.random.randint(0, 12))
    if simulation.now_s < 1000.0 + FAULTS_S:
        pause_s = simulation.random.uniform(0.2, 2 * PRODUCE_EVERY_S)
        simulation.after(pause_s, lambda: _input(simulation, world))


def _user(simulation: Simulation, world: World) -> None:
    """Once a second: what people do to a running job."""
    if world.gates.strikes("grow"):
        world.grow(simulation.random.choice(["left", "right"]))
    if world.gates.strikes("user"):
        world.want("stopped", checkpoint=world.gates.toss())
        back_s = simulation.random.uniform(0.1, 6.0)
        simulation.after(back_s, lambda: _want_running(world))
    simulation.after(1.0, lambda: _user(simulation, world))


def _want_running(world: World) -> None:
    try:
        world.want("running")
    except RetryableError:
        return


def _power_failure(world: World, process: Process) -> None:
    """All workers of a host die; what its files held is lost, torn, or there."""
    host: int = process.marks["host"]
    simulation = world.simulation
    simulation.after(0.0, lambda: world.hosts[host].restart(simulation.random))
    for group in list(world.groups_of_host.get(host, [])):
        if group is not process.group:
            simulation.kill(group)
    simulation.kill(process.group)
