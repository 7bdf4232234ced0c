"""Two fragments with a buffer topic between them run under faults; what arrives is checked.

Producers die halfway, are paused and replaced, and send again; tokens are taken back; the consumer
dies and begins again at a kept checkpoint, and the buffer is trimmed before it. All that decides is
production's: sets, limits, trimming, the codec and the count of barriers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from perseid.errors import PerseidError, RetryableError
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.simulation.engine import Defect, Group, SimulatedClock, Simulation
from perseid.testing.simulation.faults import Faults, Gates
from perseid.testing.simulation.network import Network
from perseid.testing.simulation.ports import (
    SimulatedBroker,
    SimulatedBufferWriter,
    SimulatedLogReader,
    SimulatedTopics,
)
from perseid.topics import buffer_limits, buffers, control
from perseid.topics.buffer_topics import BufferTopic, check_starts, trim
from perseid.topics.buffers import SetReader, SetWriter
from perseid.topics.records import BufferRecord
from perseid.topics.sets import Sets
from perseid.worker.dataflow.barriers import Expected, counted
from perseid.worker.dataflow.buffered import incoming, outgoing
from perseid.worker.dataflow.edges import Route, Row, deal, inputs

FAULTS_S, FINISH_S = 20.0, 60.0
TOKENS = 30
TOKEN_S, POLL_S, WAIT_S, FLUSH_S = 0.4, 0.05, 0.5, 1.0
WATCH_S, ZOMBIE_S = 0.5, 15.0  # a paused producer gets a successor, and both send
EPOCHS_PER_CHECKPOINT, KEPT = 3, 2
DATA_BYTES, BYTES_MAX = 200, 3_000  # small: sets have several records, and some are read again
WANTED = Expected({(0, 0): "left", (0, 1): "left", (1, 0): "right"}, {})
GID = 9
STRENGTHS: dict[str, tuple[float, float]] = {
    "switch": (0.02, 0.3), "kill_worker": (0.0005, 0.02), "pause_worker": (0.0005, 0.01),
    "kafka_lost": (0.002, 0.1), "kafka_unanswered": (0.002, 0.1), "kafka_late": (0.002, 0.1),
}  # fmt: skip
BRANCHES = (
    "rewind", "trimmed", "sent again", "read again", "restarted", "another attempt", "two producers"
)  # fmt: skip
LINES_SHOWN = 40


@dataclass(frozen=True)
class Outcome:
    """How a seed ended. An empty `error` means that every token's rows came, each once."""

    seed: int
    error: str
    trace_hash: str
    lines: tuple[str, ...]
    hit: Counter[str]

    def explain(self) -> str:
        """Returns the text for the reader of a failed test."""
        again = "perseid.testing.simulation.buffered.run"
        return "\n".join([
            f"seed {self.seed}: {self.error}", *self.lines[-LINES_SHOWN:],
            f"trace {self.trace_hash}; repeat it: {again}({self.seed})",
        ])  # fmt: skip


class World:
    """What outlives the processes: the broker, the token log, checkpoints."""

    def __init__(self, simulation: Simulation, faults: Faults) -> None:
        self.simulation = simulation
        self.gates = Gates(simulation, faults)
        kafka = ModelKafka(SimulatedClock(simulation))
        network = Network(simulation, self.gates)
        self.broker = SimulatedBroker(simulation, self.gates, network, kafka)
        self.topics = SimulatedTopics(self.broker)
        spec = control.buffer_topic("job", "totals", 1, 1)
        self.topics.create(spec.name, 1, spec.config)
        self.topic = BufferTopic(spec.name, self.topics.identities([spec.name])[spec.name], 1)
        self.place = spec.name, 0
        self.end = 1  # of the token log; its record 0 is a Begin
        self.chain: dict[int, int] = {}  # offset of each valid token, to its epoch
        self.issued = 0
        self.done = 0  # the last token whose outputs are committed
        self.checkpoints = [0]  # offsets of tokens, the oldest kept one first
        self.needed = 0  # the first offset of the buffer that is not trimmed
        self.generation = 0
        self.attempts = 0
        self.newest: dict[str, Group] = {}
        simulation.after(TOKEN_S, self._issue)
        simulation.after(WATCH_S, self._watch)

    @property
    def tip(self) -> int:
        return max(self.chain, default=0)

    def _issue(self) -> None:
        """Issues a token, or takes some back that are not committed."""
        open_ = [offset for offset in self.chain if offset > self.done]
        if open_ and self.simulation.random.random() < 0.15:
            back = self.simulation.random.choice(open_)
            self.simulation.note(f"REWIND before token {back}")
            self.gates.hit("rewind")
            self.chain = {o: e for o, e in self.chain.items() if o < back}
        else:
            self.chain[self.end] = len(self.chain) + 1
            self.issued += 1
        self.end += 1
        if self.issued < TOKENS:
            self.simulation.after(TOKEN_S, self._issue)

    def attempt(self) -> int:
        self.attempts += 1
        return self.attempts

    def table(self, token: int, input_: int, origin: int) -> pa.Table:
        """The rows that the producer of that place has for this token, in every attempt."""
        chance = Random(f"{token} {input_} {origin}")
        count = chance.choice([0, 1, 20, 60])
        return pa.table({"n": pa.array([chance.randrange(99) for _ in range(count)], pa.int64())})

    def start(self, name: str, live: type[Producer | Consumer]) -> None:
        """Starts an incarnation, and another one when it has died."""
        self.generation += 1
        number = self.generation

        def died() -> None:
            if self.newest[name] is group:
                pause_s = self.simulation.random.uniform(0.0, 0.5)
                self.simulation.after(pause_s, partial(self.start, name, live))

        group = self.newest[name] = self.simulation.group(f"{name}.{number}", died)
        process = self.simulation.spawn(group, f"{name}.{number}", live(self, number).live)
        process.marks["kind"] = "worker"

    def _watch(self) -> None:
        """Replaces a paused producer; later it continues for a while, with its successor."""
        group = self.newest["producer"]
        if group.paused_until_s > self.simulation.now_s and not group.dead:
            self.gates.hit("two producers")
            self.start("producer", Producer)
            self.simulation.after(ZOMBIE_S, partial(self.simulation.kill, group))
        self.simulation.after(WATCH_S, self._watch)

    @property
    def finished(self) -> bool:
        return self.issued == TOKENS and self.done == self.tip


class Producer:
    """Sends the sets of every valid token that the consumer has not done."""

    def __init__(self, world: World, generation: int) -> None:
        self._world, self._generation = world, generation
        self._writer = SetWriter(SimulatedBufferWriter(world.broker), world.attempt)
        self._sent: set[int] = set()

    def live(self) -> None:
        world = self._world
        while not world.finished:
            for token, epoch in list(world.chain.items()):
                if token > world.done and token not in self._sent:
                    self._send(token, epoch)
            world.simulation.sleep(POLL_S)

    def _send(self, token: int, epoch: int) -> None:
        world = self._world
        try:
            for input_, origin in WANTED.sets:
                self._send_set(token, epoch, input_, origin)
            self._writer.flush(FLUSH_S)
        except RetryableError as error:
            world.simulation.note(f"token {token} is not sent: {error}")
            world.gates.hit("sent again")
        else:
            self._sent.add(token)

    def _send_set(self, token: int, epoch: int, input_: int, origin: int) -> None:
        """Each attempt divides the rows into other chunks."""
        world = self._world
        table = world.table(token, input_, origin)
        size = world.simulation.random.randrange(40, 400)
        parts = np.zeros(len(table), np.int64)
        (one,) = outgoing(deal(table, Route((GID,), input_, ()), origin, parts, size))
        head = BufferRecord(
            job_uuid="u", revision="r", layout=1, epoch=epoch, token_offset=token, input=input_,
            origin=origin, generation=self._generation, attempt=0, chunk=0, chunks=1,
            rows_crc=one.rows_crc, data=b"",
        )  # fmt: skip
        self._writer.send(world.place, head, one.blobs)


class Consumer:
    """Runs the epochs in order, takes checkpoints, and trims the buffer."""

    def __init__(self, world: World, _generation: int) -> None:
        self._world = world
        self._epochs = 0

    def live(self) -> None:
        world = self._world
        base = world.simulation.random.choice(world.checkpoints)  # the newest may be damaged
        world.gates.hit("restarted")
        sets = Sets("u", 1, base, bytes_max=BYTES_MAX)
        start = self._retried(lambda: check_starts(world.topics, {world.place: world.needed}))
        reader = SetReader(
            "totals", world.place, sets, SimulatedLogReader(world.broker), start[world.place],
            SimulatedClock(world.simulation),
        )  # fmt: skip
        done = base
        while not world.finished or done < world.tip:
            sets.judge(frozenset(o for o in world.chain if o > base), world.end)
            if reader.divergences():
                raise Defect("equal rows are taken for divergence")
            token = min((o for o in world.chain if o > done), default=None)
            if token is None:
                world.simulation.sleep(POLL_S)
            elif self._run(reader, token):
                done = token
                self._trim(reader, done)

    def _run(self, reader: SetReader, token: int) -> bool:
        """Whether the token's epoch has run."""
        world = self._world
        try:
            found = reader.wait(token, frozenset(WANTED.sets), WAIT_S)
        except RetryableError:
            return False
        rows = list(counted(incoming(GID, found, f"token {token}"), WANTED, "totals-0"))
        self._look(token, rows)
        if any(one.data is None for one in reader.sets.whole(token)):
            world.gates.hit("read again")
        dropped = reader.sets.dropped["of another attempt"]
        world.gates.struck["another attempt"] = max(dropped, world.gates.struck["another attempt"])
        if token not in world.chain:
            return False
        world.done = max(world.done, token)
        reader.sets.done(token)
        world.simulation.note(f"ran the token at {token}")
        return True

    def _look(self, token: int, rows: list[Row]) -> None:
        world = self._world
        found = inputs(rows, ("left", "right"))
        for number, name in enumerate(("left", "right")):
            places = sorted(place for place in WANTED.sets if place[0] == number)
            sent = pa.concat_tables([world.table(token, *place) for place in places])
            got = found[name]["n"] if found[name].num_columns else pa.array([], pa.int64())
            if got.to_pylist() != sent["n"].to_pylist():
                raise Defect(f"token {token}: {name} has rows that were not sent, or lacks some")

    def _trim(self, reader: SetReader, done: int) -> None:
        world = self._world
        self._epochs += 1
        if self._epochs % EPOCHS_PER_CHECKPOINT == 0 and done > world.checkpoints[-1]:
            world.checkpoints = [*world.checkpoints, done][-KEPT:]
        floor = buffer_limits.floor(world.checkpoints, [done])
        assert floor is not None, "there is a checkpoint"
        cut = reader.sets.needed_from(floor)
        if cut <= world.needed:
            return
        world.needed = cut  # before the trim, which may have its effect without an answer
        reader.sets.trim(floor)
        try:
            trim(world.topics, world.topic, {0: cut})
        except RetryableError:
            return  # what remains is deleted by the next trim
        world.gates.hit("trimmed")

    def _retried(self, ask: object) -> dict[tuple[str, int], int]:
        while True:
            try:
                return ask()  # type: ignore[no-any-return, operator]
            except RetryableError:
                self._world.simulation.sleep(POLL_S)


def run(seed: int) -> Outcome:
    """Plays one seed with a mixture of faults of its own: then all faults heal, and it finishes."""
    with Simulation(seed) as simulation, patch.object(buffers, "DATA_BYTES_MAX", DATA_BYTES):
        faults = _drawn(simulation.random)
        world = World(simulation, faults)
        world.start("producer", Producer)
        world.start("consumer", Consumer)
        error = ""
        try:
            simulation.run(FAULTS_S, lambda: world.finished)
            faults.stop()
            if not simulation.run(FAULTS_S + FINISH_S, lambda: world.finished):
                error = f"the token at {world.done} is done, and the last one is at {world.tip}"
        except (Defect, PerseidError) as defect:
            error = f"{type(defect).__name__}: {defect}"
        lines, hit = tuple(simulation.lines), world.gates.struck
        return Outcome(seed, error, simulation.trace_hash, lines, hit)


def _drawn(chance: Random) -> Faults:
    found = Faults()
    for name, (low, high) in STRENGTHS.items():
        if chance.random() < 0.6:
            setattr(found, name, low * (high / low) ** chance.random())
    return found
