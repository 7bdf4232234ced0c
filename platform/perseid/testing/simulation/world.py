"""What outlives every process: the broker, ZooKeeper, the store, hosts, and the user's wishes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perseid.errors import DamagedFile, PermanentError, ProcessDied
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.records import ApprovedCause, CheckpointPointer, JobEntry
from perseid.registry import Registry
from perseid.state.durability import checkpoint
from perseid.testing.kafka_disk import ModelDisk
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.simulation import job, mishaps
from perseid.testing.simulation.check import Checker
from perseid.testing.simulation.edges import Edges
from perseid.testing.simulation.engine import Defect, Group, SimulatedClock, Simulation
from perseid.testing.simulation.faults import Faults, Gates
from perseid.testing.simulation.horizon import Horizon
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.judge import Judge
from perseid.testing.simulation.kept import Kept
from perseid.testing.simulation.network import (
    BEAT_S,
    SESSION_S,
    Network,
    SimulatedCoordination,
)
from perseid.testing.simulation.ports import (
    SimulatedBroker,
    SimulatedFiles,
    SimulatedStore,
    SimulatedTopics,
)
from perseid.testing.simulation.roles import Roles
from perseid.testing.store import MemoryStore
from perseid.worker.dataflow.edges import CHUNK_BYTES

STATE = "/state"
SMALL_CHUNK_BYTES = 128
FLUSH_S = 2.7
RAISED = "as the script wants"
SAME_FILES_SHARE = 0.2  # of the revisions


class World:
    """One cluster without its processes."""

    def __init__(self, simulation: Simulation, faults: Faults, shape: Shape) -> None:
        self.simulation, self.faults, self.shape = simulation, faults, shape
        spec = shape.spec
        self.specs = {"archive-1": spec}  # every revision that was applied
        self.gate_specs: dict[str, JobSpec] = {}  # where a gate runs another job than its revision
        self.gates = Gates(simulation, faults)
        self.clock = SimulatedClock(simulation)
        self.ahead_ms: Counter[str] = Counter()  # of wall clocks that were set: "broker", "c1", ...
        self.kafka = ModelKafka(self.clock_of("broker"))
        self.network = Network(simulation, self.gates)
        self.broker = SimulatedBroker(simulation, self.gates, self.network, self.kafka)
        self.topics = SimulatedTopics(self.broker)
        self.zookeeper = FakeZooKeeper(deliver_at_once=False, clock=self.clock, session_s=SESSION_S)
        self._sessions: list[SimulatedCoordination] = []
        simulation.after(BEAT_S, self._beat)
        self.store = SimulatedStore(self.gates)
        self.hosts = [SimulatedFiles(self.gates) for _ in range(shape.hosts)]
        for name, partitions in (("left", 2), ("right", 1)):
            self.topics.create(name, partitions)
        for topic, partitions in spec.written_topics.items():
            self.topics.create(topic, partitions)
        self.disk = ModelDisk(self.kafka)
        self.tails_lost = self.logs_harmed = False  # harmed by a power failure or a changed byte
        self.remade: str | None = None  # a source topic that was deleted and created again
        self.input_lost: set[str] = set()  # kinds of errors that lost input allows
        self.damaged: set[str] = set()  # files of the store that `damage_checkpoint` damaged
        self.asks = False  # the user requests a checkpoint every second
        self.rescales = False  # the user rescales now and then
        self.retains = shape.retains
        self.at_once = False  # small states with many changes are copied at once
        self.applies: random.Random | None = None  # a generator of its own for applied revisions
        self.strikes: random.Random | None = None  # of its own, at the workers of both roles
        self.revisions = 1
        self.broken: dict[str, str] = {}  # where the code of an archive raises, see `run_into`
        self.dies = False  # instead of raising, the process dies
        self.expected_error = RAISED  # text of errors that the user will correct
        self.gated = False  # a revision is applied with a gate
        self.awaits: Callable[[], bool] = lambda: False  # whether a script has not ended
        self.renamed = False  # a revision with the same files was applied
        self._pids = self._attempts = 0
        self._done = 0  # the epoch that the last leader took for done
        simulation.after(FLUSH_S, self._flush)
        self.roles = Roles(self.kafka, self.zookeeper.tree, self.gates.hit)
        self.checker = Checker(self.kafka, shape.sources_of_sinks, self.clock, self.roles.commits)
        case = shape.case
        self.judge = Judge(self.kafka, case) if case is not None else None
        self.registry = Registry(self.zookeeper.session())  # the user's, without faults
        self.kept = Kept(self.kafka, self.registry)
        self.horizon = Horizon(
            self.kafka, self.registry, self._whole, round(shape.horizon_s * 1000)
        )
        self.edges = Edges(
            self.kafka, self.registry, self.checker.tokens_taken_back, self.gates.hit
        )
        entry = JobEntry(job.JOB, "uuid-1", "r1", "archive-1", "running", 1, 0)
        self.registry.put_job_entry(entry, None)
        self.groups_of_host: dict[int, list[Group]] = {}  # of live workers

    def look(self) -> None:
        """Raises Defect when an invariant is violated."""
        if self.shape.replicas or self.gated:
            self.roles.look()
        self.checker.look()
        self.kept.look()
        if self.shape.horizon_s:
            self.horizon.look()
        if self.shape.spread > 1:
            self.edges.look()

    def look_at_done(self, epoch: int) -> None:
        """A leader takes `epoch` for done: all have committed it. Raises Defect."""
        plan = self.roles.plan
        if epoch == self._done or plan is None or self.tails_lost:
            return
        self._done, ledger = epoch, self.checker.ledger
        partitions = range(build(self.specs[plan.archive], plan.layout).ledger_partitions)
        committed = min((ledger[p].epoch if p in ledger else 0 for p in partitions), default=epoch)
        self.roles.counts(epoch, max(committed, plan.base_epoch))

    @property
    def chunk_bytes(self) -> int:
        """Of the rows between operators: a set has several chunks where shuffles lose some."""
        return SMALL_CHUNK_BYTES if self.faults.shuffle else CHUNK_BYTES

    def clock_of(self, host: str, skew_ms: int = 0) -> SimulatedClock:
        """Returns the clock of one machine, which can be set."""
        return SimulatedClock(self.simulation, skew_ms, lambda: self.ahead_ms[host])

    def session(self, group: Group) -> SimulatedCoordination:
        """Returns a session of `group`, and adds it to the network."""
        self.network.join(group)
        made = SimulatedCoordination(
            self.zookeeper, self.network, self.gates, self.simulation, group
        )
        self._sessions.append(made)
        return made

    def _beat(self) -> None:
        self.zookeeper.expire_silent()
        for session in self._sessions:
            session.beat()
            if session.gone and session.group.dead:
                session.close()
        self._sessions = [s for s in self._sessions if not (s.gone and s.group.dead)]
        self.zookeeper.deliver()
        self.simulation.after(BEAT_S, self._beat)

    def next_attempt(self) -> int:
        """Returns the number of a simulated task's attempt at a set."""
        self._attempts += 1
        return self._attempts

    def next_pid(self) -> int:
        """Returns the pid of a simulated Python process."""
        self._pids += 1
        return self._pids

    # The user -----------------------------------------------------------------------------------

    def produce(self, chance: random.Random, records: int) -> None:
        """Appends some records to the sources; they are the committed input."""
        for _ in range(records):
            topic = chance.choice(["left", "left", "right"])
            if topic == self.remade:
                continue
            partition = chance.randrange(len(self.kafka.topics[topic].logs))
            word, amount = chance.choice(job.WORDS), chance.randint(1, 9)
            self.kafka.append((topic, partition), None, job.record(word, amount))
            self.checker.produced(topic, word, amount)
            if self.judge is not None:
                self.judge.produced((topic, partition), word, amount)

    def want(self, desired: str, *, checkpoint: bool = False) -> None:
        """`jobs stop` or `jobs start`."""
        stored = self.registry.job_entry(job.JOB)
        assert stored is not None
        changed = replace(
            stored.value, desired=desired, counter=stored.value.counter + 1,
            stop_checkpoint=checkpoint,
        )  # fmt: skip
        self.simulation.note(f"the user wants it {desired}")
        self.registry.put_job_entry(changed, stored.version)

    def rescale(self, totals: int, relays: int) -> None:
        """`jobs apply` of the same job with other numbers of operator partitions."""
        self.shape = replace(self.shape, totals=totals, relays=relays)
        self._apply(same_files=False)

    def apply(self, chance: random.Random) -> None:
        """`jobs apply` of code that keeps the state, or of a commit with the same files."""
        self._apply(same_files=chance.random() < SAME_FILES_SHARE)

    def _apply(self, *, same_files: bool) -> None:
        stored = self.registry.job_entry(job.JOB)
        assert stored is not None
        self.revisions += 1
        archive = stored.value.archive if same_files else f"archive-{self.revisions}"
        self.renamed = self.renamed or same_files
        self.specs.setdefault(archive, self.shape.spec)
        self.horizon.archives[f"r{self.revisions}"] = archive
        changed = replace(
            stored.value, revision=f"r{self.revisions}", archive=archive,
            counter=stored.value.counter + 1,
        )  # fmt: skip
        size = f"{self.shape.totals} totals, {self.shape.relays} relays"
        self.simulation.note(f"the user applies {changed.revision} with {archive}: {size}")
        self.registry.put_job_entry(changed, stored.version)

    def gate(self, epochs: int, *, revised: bool, approves: str = "") -> str:
        """`jobs apply --gate audit` of other code; the archive that then runs.

        `approves`: a column of the totals that may differ. Then only the gate gives other results:
        the checker knows those of the first revision.
        """
        stored = self.registry.job_entry(job.JOB)
        assert stored is not None
        self.revisions += 1
        archive = f"archive-{self.revisions}"
        other = replace(self.shape, revised=revised).spec
        self.specs[archive] = self.shape.spec if approves else other
        self.gate_specs[archive] = other
        approved = (ApprovedCause("totals", "value", (approves,)),) if approves else ()
        changed = replace(
            stored.value, revision=f"r{self.revisions}", archive=archive, gate=epochs,
            approved=approved, counter=stored.value.counter + 1,
        )  # fmt: skip
        self.simulation.note(f"the user applies {archive} with a gate of {epochs} epochs")
        self.registry.put_job_entry(changed, stored.version)
        return archive

    def correct(self) -> bool:
        """`jobs apply` of code that does not raise, if the job has failed with that error.

        Where processes die instead, it is applied as soon as one did. Returns whether it was
        applied.
        """
        stored, status = self.registry.job_entry(job.JOB), self.registry.status(job.JOB)
        assert stored is not None
        if self.dies:
            failures = self.registry.failures(job.JOB)
            dead = failures is not None and RAISED in failures.text
            if dead and stored.value.archive in self.broken:
                self._apply(same_files=False)
            return dead
        if status is None or (status.state, status.counter) != ("failed", stored.value.counter):
            return False
        if status.error is None or not self.corrects(status.error):
            return False
        if self.broken:
            if stored.value.archive not in self.broken:
                raise Defect(f"{stored.value.revision} is applied, and the one before failed again")
        self._apply(same_files=False)
        return True

    def ask_checkpoint(self) -> int:
        """`perseid checkpoint`; returns the epoch that the checkpoint must exceed."""
        stored = self.registry.job_entry(job.JOB)
        assert stored is not None
        above = self.checker.tokens.epoch
        self.simulation.note(f"the user wants a checkpoint above epoch {above}")
        changed = replace(stored.value, checkpoint_above=above)
        self.registry.put_job_entry(changed, stored.version)
        return above

    @property
    def checkpoint_epoch(self) -> int:
        """The newest complete checkpoint's epoch; 0 without any."""
        found = self.registry.pointers(job.JOB)
        return found.pointers[0].epoch if found is not None else 0

    @property
    def protects(self) -> bool:
        """Whether the job has a replica in the end. Lost input cannot be read a second time.

        Nor does a replica run tokens of an earlier name of its revision: it waits for a checkpoint
        after them, which stays away while the newest ones need a damaged file.
        """
        shape, waits = self.shape, self.renamed and self.damaged
        lost = self.tails_lost or self.input_lost
        wanted = shape.replicas and shape.workers > 1 and not self.roles.diverges
        return wanted and not lost and not waits

    @property
    def protected(self) -> bool:
        """Whether each fragment has a replica that has run the last token."""
        return self.roles.protected(self.checker.tokens.epoch)

    @property
    def finished(self) -> bool:
        """Whether all input is in all sinks. Asked after every event.

        If the broker has lost some of it: whether what is left has been read and committed.
        """
        if self.awaits():
            return False
        if not self.tails_lost:
            return self.checker.complete and (self.judge is None or self._all_committed())
        tokens = self.checker.tokens
        for topic in ("left", "right"):
            for partition, log in enumerate(self.kafka.topics[topic].logs):
                if tokens.ends[topic, partition] != log.end:
                    return False
        return self._all_committed()

    def _all_committed(self) -> bool:
        """Whether every partition has committed the last token."""
        tokens, ledger = self.checker.tokens, self.checker.ledger
        plan = self.registry.plan(job.JOB)
        if plan is None:
            return False
        partitions = range(build(self.specs[plan.archive], plan.layout).ledger_partitions)
        return all(p in ledger and ledger[p].epoch == tokens.epoch for p in partitions)

    def check_drawn(self, *, whole: bool) -> None:
        """Checks the drawn operator's results, unless what it read is lost. Raises Defect."""
        if self.judge is not None and not self.tails_lost and not self.remade:
            chain = self.checker.tokens.chain
            self.judge.check([chain[epoch] for epoch in sorted(chain)], whole=whole)
            self.gates.hit(f"operator {self.shape.drawn}")

    def grow(self, topic: str) -> None:
        if topic == self.remade:
            return
        partitions = len(self.kafka.topics[topic].logs)
        if partitions < 4:
            self.simulation.note(f"{topic} gets partition {partitions}")
            self.topics.grow(topic, partitions + 1)

    # Bad luck -----------------------------------------------------------------------------------

    def lose_tails(self) -> None:
        """A power failure of the broker. The job must report what it cannot keep."""
        ends = self.disk.power_failure(self.simulation.random)
        self.simulation.note(f"THE BROKER LOSES TAILS: {ends}")
        if ends:
            self.gates.hit("tails lost")
            self.tails_lost = True
            self.checker.start_again()
            self.roles.start_again()

    def _flush(self) -> None:
        self.disk.flush()
        self.simulation.after(FLUSH_S, self._flush)

    def damage_checkpoint(self) -> None:
        """Damages one file of the newest checkpoint, if another sound checkpoint lacks it."""
        found = self.registry.pointers(job.JOB)
        if found is None or not all(map(self._whole, found.pointers)):
            return
        plan, entry = self.registry.plan(job.JOB), self.registry.job_entry(job.JOB)
        assert plan is not None
        assert entry is not None
        newest, *older = found.pointers
        ways_back = [p.epoch for p in older if not p.shares_files(newest)]
        if max(ways_back, default=-1) < plan.base_epoch or entry.value.revision != plan.revision:
            return  # the plan, or the one to come, cannot go back to an epoch before its base
        folder = newest.manifest.rpartition("/")[0]
        parts = [p for p in sorted(self.store.content) if p.startswith(folder + "/")]
        path = self.simulation.random.choice(parts)
        self.simulation.note(f"DAMAGED {path}")
        self.damaged.add(path)
        if self.gates.toss():
            del self.store.content[path]
            return
        self.store.content[path] = mishaps.flipped(self.simulation.random, self.store.content[path])

    def run_into(self, archive: str, where: str) -> None:
        """Raises what the revision's code raises there.

        `where`: at a "source", in the task of a label, at a "limit" after an epoch, or "after"
        every epoch.
        """
        if self.broken.get(archive) == where:
            self.gates.hit("operator raised")
            raise (ProcessDied if self.dies else PermanentError)(RAISED)

    def corrects(self, error: Mapping[str, Any]) -> bool:
        """Whether the user will correct the code that raised it."""
        return self.expected_error in error["text"]

    def explains(self, error: Mapping[str, Any]) -> bool:
        """Whether the job may end with this error because of a loss that no protocol prevents."""
        return self.tails_lost or error["kind"] in self.input_lost or self.no_way_back

    @property
    def no_way_back(self) -> bool:
        """Whether every checkpoint that the plan may go back to is damaged.

        A switch of revisions after the damage can exclude the sound ones.
        """
        plan = self.registry.plan(job.JOB)
        assert plan is not None
        usable = plan.usable_checkpoints
        return bool(usable) and all(map(self._damaged, usable))

    def _damaged(self, pointer: CheckpointPointer) -> bool:
        if pointer.manifest in self.damaged:
            return True
        manifest = checkpoint.read_manifest(self._content(), pointer.manifest, pointer.crc)
        files = [file for part in manifest.parts for file in part.files(manifest.epoch)]
        return not self.damaged.isdisjoint(file.path for file in files)

    def _content(self) -> MemoryStore:
        """Returns the same content without the gates."""
        store = MemoryStore()
        store.content = self.store.content
        return store

    def _whole(self, pointer: CheckpointPointer) -> bool:
        store = self._content()
        try:
            manifest = checkpoint.read_manifest(store, pointer.manifest, pointer.crc)
            for part in manifest.parts:
                checkpoint.read_state(store, manifest, part.operator, part.partition)
        except DamagedFile:
            return False
        return True
