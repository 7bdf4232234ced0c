"""One seed: a cluster, a workload and a mixture of faults, to the end or until all faults heal."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from unittest.mock import patch

from perseid.coordinator import checkpoints, log_trimming, splits, trimming
from perseid.errors import RetryableError, UndecidedTransaction, settling
from perseid.testing.simulation import again, constants, job, mishaps, nemesis, operators
from perseid.testing.simulation.engine import START_S, Defect, Process, Reported, Simulation
from perseid.testing.simulation.faults import SHUFFLE_STRENGTH, Faults
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.leader import Coordinator
from perseid.testing.simulation.ports import TRANSACTION_S
from perseid.testing.simulation.swarm import Script
from perseid.testing.simulation.worker import Worker
from perseid.testing.simulation.world import World
from perseid.topics import buffers
from perseid.worker.sink import sink_time

TIMED = 7  # modulo 9: a ninth of the seeds has event time
ECHOED = 11  # modulo 13: these seeds have feedback
SIDED = 15  # modulo 17: feedback, and operators with several outputs
RETAINING = 16  # modulo 19: outputs have files of their own in the state logs
RESCALED = 7  # modulo 17: the numbers of operator partitions change
AT_ONCE = 5  # modulo 7: states are copied at once
APPLIED = 3  # modulo 11: revisions are applied, with a random generator of their own
CLOCKS_SET = 1  # modulo 5: wall clocks are set
REPLICATED = 23  # modulo 31: jobs have replicas, and strikes at their workers
DRAWN = 12  # modulo 13: jobs have an operator of the library, or of a primitive, more
DRAWN_ELSEWHERE = 2  # modulo 4, of jobs with several fragments or replicas
CONSTANTS = 10  # modulo 14: limits and periods of production are drawn
CONSTANTS_ELSEWHERE = 4  # modulo 5, of jobs with several fragments or replicas
SHUFFLED = 3  # modulo 29: rows of shuffles are lost or doubled
APPLY_CHANCE = 0.15  # per second
SAFETY_SHARE = 0.25  # of the seeds
MORE_FAULTS_S = 10.0
FINISH_S = 150.0  # a failure's longest pause is 30 s, a transaction's 10 s
# In addition: a checkpoint whose parts' reports are lost is aborted. An undecided ledger, which is
# awaited twice for 90 s before it is reported, takes less.
LOSS_S = checkpoints.COLLECTING_MAX_S + 20.0
PROTECTED_S = 60.0  # until a replica that failed, perhaps several times, is there again
CHECKPOINT_S = 60.0  # for a checkpoint that the user requests at the end
ASKING = 10  # in one of so many seeds the user asks for a checkpoint every second, and at the end
SPLIT_RECORDS_MIN = 20  # instead of 20,000, so that small epochs have several splits too
BUFFER_BYTES = 500  # of a record, so that sets have several
TRIM_S = 1.0  # instead of 20: a history is short
RESCALE_SHARE = 0.2  # of the seconds of such a seed
EVENTS_MAX = 400_000
LINES_SHOWN = 60


class Mode(Enum):
    """What a seed must fulfil. In both modes no invariant may be violated at any moment."""

    SAFETY = "safety"  # the faults last to the end
    LIVENESS = "liveness"  # all faults heal, and then the job must finish in time


@dataclass(frozen=True)
class Outcome:
    """How a seed ended. An empty `error` means that all checks held."""

    seed: int
    mode: Mode
    error: str
    trace_hash: str
    lines: tuple[str, ...]
    faults: str
    struck: Counter[str]
    virtual_s: float
    events: int
    command: str  # plays the same history

    def explain(self) -> str:
        """Returns the text for the reader of a failed test."""
        return "\n".join([
            f"seed {self.seed} ({self.mode.value}): {self.error}", f"faults: {self.faults}",
            *self.lines[-LINES_SHOWN:],
            f"trace {self.trace_hash}; repeat it: {self.command}",
        ])  # fmt: skip


def run(
    seed: int, shape: Shape | None = None, script: Script | None = None, *, spread: bool = False,
    replicas: bool = False,
) -> Outcome:  # fmt: skip
    """Plays one seed to its end. Without `shape` the seed draws one, and what the user does.

    With a `script` only its faults happen, and the job must finish in time. `spread`: the drawn job
    may be several fragments. `replicas`: it has replicas.
    """
    draws = shape is None and _draws_constants(seed, elsewhere=spread or replicas)
    with (
        Simulation(seed) as simulation, small_numbers(), short_transactions(), without_logs(),
        rare_collections(), _constants(simulation, seed, draws=draws),
    ):  # fmt: skip
        faults = Faults.draw(simulation.random) if script is None else Faults()
        if seed % 29 == SHUFFLED and script is None:
            faults.shuffle = SHUFFLE_STRENGTH
        strengths = faults.described()
        drawn = _drawn(simulation, seed, spread=spread, replicas=replicas)
        safety = simulation.random.random() < SAFETY_SHARE and script is None
        mode = Mode.SAFETY if safety else Mode.LIVENESS
        world = World(simulation, faults, shape or drawn)
        if script is not None:
            script(simulation, world)
        if shape is None:
            _draw_user(world, seed)
        error = ""
        try:
            _play(simulation, world, mode)
        except Defect as defect:
            error = str(defect)
        except Reported as report:
            simulation.note(f"reported: {report}")
            world.gates.hit("loss reported")
        except Exception as defect:
            error = f"{type(defect).__name__}: {defect}"
            simulation.note(error)
        return Outcome(
            seed, mode, error, simulation.trace_hash, tuple(simulation.lines), strengths,
            world.gates.struck, simulation.now_s - START_S, simulation.events,
            again.command(seed, shape, script, spread=spread, replicas=replicas),
        )  # fmt: skip


def _drawn(simulation: Simulation, seed: int, *, spread: bool, replicas: bool) -> Shape:
    """The job that a seed draws. What is not of all seeds draws from generators of its own."""
    drawn = replace(Shape.draw(simulation.random), timed=seed % 9 == TIMED)
    drawn = _drawn_kind(drawn, seed, spread=spread, replicas=replicas)
    if not _draws_constants(seed, elsewhere=spread or replicas):
        return drawn
    chance = Random(f"limits of {seed}")
    records, size = chance.choice([0, 0, 1, 3, 1000]), chance.choice([0, 0, 1, 100])
    return replace(drawn, epoch_records=records, epoch_bytes=size)


def _drawn_kind(drawn: Shape, seed: int, *, spread: bool, replicas: bool) -> Shape:
    """What the seed's remainders add to a drawn job, or make of it."""
    if spread:
        drawn = Shape.draw_spread(Random(f"spread of {seed}"))
        return _with_operator(drawn, drawn_operator(seed, spread=True))
    if replicas:
        drawn = Shape.draw_replicated(Random(f"replicas of {seed}"))
        return _with_operator(drawn, drawn_operator(seed, replicas=True))
    if seed % 13 == ECHOED:
        drawn = replace(drawn, echoed=True, relays=max(drawn.relays, 1))
    drawn = _with_operator(drawn, drawn_operator(seed))
    if seed % 17 == SIDED:
        drawn = replace(drawn, sided=True, relays=max(drawn.relays, 1))
    if seed % 31 == REPLICATED:
        drawn = replace(drawn, replicas=True, workers=max(drawn.workers, 2))
    return replace(drawn, retains=True) if seed % 19 == RETAINING else drawn


def drawn_operator(seed: int, *, spread: bool = False, replicas: bool = False) -> str:
    """The case of `operators` that the seed's job has; empty without one."""
    modulus, drawn = (4, DRAWN_ELSEWHERE) if spread or replicas else (13, DRAWN)
    if seed % modulus != drawn:
        return ""
    return operators.drawn_of(seed // modulus, fed_back=not spread)


def _with_operator(shape: Shape, name: str) -> Shape:
    return shape.drawing(name) if name else shape


def _draws_constants(seed: int, *, elsewhere: bool) -> bool:
    return seed % 5 == CONSTANTS_ELSEWHERE if elsewhere else seed % 14 == CONSTANTS


@contextmanager
def _constants(simulation: Simulation, seed: int, *, draws: bool) -> Iterator[None]:
    if not draws:
        yield
        return
    values = constants.drawn(Random(f"constants of {seed}"))
    simulation.note(f"with {constants.described(values)}")
    with constants.set_to(values):
        yield


def _draw_user(world: World, seed: int) -> None:
    """What the user of a drawn job does, and what befalls its workers."""
    world.asks = seed % ASKING == ASKING - 1
    world.rescales = seed % 17 == RESCALED
    world.at_once = seed % 7 == AT_ONCE
    world.applies = Random(f"revisions of {seed}") if seed % 11 == APPLIED else None
    world.strikes = Random(f"strikes of {seed}") if world.shape.replicas else None
    if seed % 5 == CLOCKS_SET:
        mishaps.set_clocks(world, Random(f"clocks of {seed}"))


@contextmanager
def without_logs() -> Iterator[None]:
    """Silences logging: the trace has more detail, and seeds provoke warnings on purpose."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Makes garbage collection rare: it takes 4% of a seed's time and finds nothing."""
    before = gc.get_threshold()
    gc.set_threshold(50_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def small_numbers() -> Iterator[None]:
    with (
        patch.object(buffers, "DATA_BYTES_MAX", BUFFER_BYTES),
        patch.object(splits, "SPLIT_RECORDS_MIN", SPLIT_RECORDS_MIN),
        patch.object(trimming, "TRIM_S", TRIM_S),
        patch.object(sink_time, "FIRST_S", TRANSACTION_S),
        patch.object(log_trimming, "WORTH_OFFSETS", 1),
    ):
        yield


@contextmanager
def short_transactions() -> Iterator[None]:
    """Lets brokers abort transactions sooner, so that an abandoned one is detected sooner."""
    with patch.dict(settling.FINAL_S, {UndecidedTransaction.__name__: 4 * TRANSACTION_S}):
        yield


def _play(simulation: Simulation, world: World, mode: Mode) -> None:
    simulation.after_event = world.look
    world.gates.lose_host = lambda process: _power_failure(world, process)
    for name in ("c1", "c2"):
        Coordinator(world, name)
    for number in range(world.shape.workers):
        Worker(world, f"w{number + 1}", number % len(world.hosts))
    _input(simulation, world)
    simulation.after(1.0, lambda: _user(simulation, world))
    _run(simulation, world.shape.input_s)
    if mode is Mode.SAFETY:
        _run(simulation, world.shape.input_s + MORE_FAULTS_S)
    else:
        _heal(simulation, world)
    world.checker.finish()
    world.check_drawn(whole=mode is Mode.LIVENESS)


def _heal(simulation: Simulation, world: World) -> None:
    input_s, checker = world.shape.input_s, world.checker
    world.faults.stop()
    world.network.heal()
    simulation.note(f"HEALED; faults so far: {dict(world.gates.struck)}")
    _run(simulation, input_s + 1.0)  # a second request of the user may still come
    entry = world.registry.job_entry(job.JOB)
    if entry is not None and entry.value.desired != "running":
        world.want("running")
    if world.remade:
        _run(simulation, input_s + FINISH_S)
        raise Defect(f"no part reported that {world.remade} was created again")
    finish_s = FINISH_S + LOSS_S * world.tails_lost
    if not _run(simulation, input_s + finish_s, lambda: world.finished):
        raise Defect(f"not finished {finish_s} s after the last fault")
    if world.asks:
        _await_checkpoint(simulation, world)
    if world.protects:
        _await_protection(simulation, world)
    if not world.tails_lost:
        checker.check_totals()


def _await_checkpoint(simulation: Simulation, world: World) -> None:
    above = world.ask_checkpoint()
    until_s = simulation.now_s - START_S + CHECKPOINT_S
    if not _run(simulation, until_s, lambda: world.finished and world.checkpoint_epoch > above):
        raise Defect(f"no checkpoint {CHECKPOINT_S} s after it was asked for")


def _await_protection(simulation: Simulation, world: World) -> None:
    until_s = simulation.now_s - START_S + PROTECTED_S
    if not _run(simulation, until_s, lambda: world.finished and world.protected):
        raise Defect(f"no replica has run the last token {PROTECTED_S} s after the last fault")


def _run(simulation: Simulation, until_s: float, done: Callable[[], bool] = lambda: False) -> bool:
    def look() -> bool:
        if simulation.events > EVENTS_MAX:
            raise Defect("too many events: something turns in a circle")
        return done()

    return simulation.run(until_s, look)


def _input(simulation: Simulation, world: World) -> None:
    world.produce(simulation.random, simulation.random.randint(0, 12))
    if simulation.now_s < START_S + world.shape.input_s:
        pause_s = simulation.random.uniform(0.2, 2 * world.shape.every_s)
        simulation.after(pause_s, lambda: _input(simulation, world))


def _user(simulation: Simulation, world: World) -> None:
    """Once a second: requests of users to a running job."""
    if world.gates.strikes("grow"):
        world.grow(simulation.random.choice(["left", "right"]))
    if not world.tails_lost and world.gates.strikes("lose_tails"):
        world.lose_tails()
    if not world.tails_lost and world.gates.strikes("retain"):
        mishaps.retain(world)
    if not world.tails_lost and world.gates.strikes("remake"):
        mishaps.remake(world)
    if world.gates.strikes("user"):
        world.want("stopped", checkpoint=world.gates.toss())
        back_s = simulation.random.uniform(0.1, 6.0)
        simulation.after(back_s, lambda: _want_running(world))
    if simulation.now_s < START_S + world.shape.input_s:
        if world.asks:
            world.ask_checkpoint()
        if world.rescales and simulation.random.random() < RESCALE_SHARE:
            _rescale(simulation, world)
        if world.applies is not None and world.applies.random() < APPLY_CHANCE:
            world.apply(world.applies)
        if world.strikes is not None:
            nemesis.strike(world, world.strikes)
    simulation.after(1.0, lambda: _user(simulation, world))


def _rescale(simulation: Simulation, world: World) -> None:
    """Rescales, perhaps while an earlier change is still in progress."""
    chance, relays = simulation.random, world.shape.relays
    world.rescale(chance.choice([1, 2, 3, 5]), chance.choice([1, 2, 3]) if relays else 0)


def _want_running(world: World) -> None:
    try:
        world.want("running")
    except RetryableError:
        return


def _power_failure(world: World, process: Process) -> None:
    """All workers of a host die; the host's files are lost, torn, or kept."""
    host: int = process.marks["host"]
    simulation = world.simulation
    world.logs_harmed = True
    simulation.after(0.0, lambda: world.hosts[host].restart(simulation.random))
    for group in list(world.groups_of_host.get(host, [])):
        if group is not process.group:
            simulation.kill(group)
    simulation.kill(process.group)
