"""Which faults a seed has, how strong they are ("swarm"), and where they strike.

Every call of a port passes a gate before and after its effect. At a gate chance may kill, pause or
delay the process. Uniform mild faults find little, so each seed switches every fault on or off and
draws its strength over more than one order of magnitude.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

from perseid.testing.simulation.engine import Killed, Process, Simulation


@dataclass
class Faults:
    """Probabilities. Those of the first part are per gate, the others per occasion."""

    switch: float = 0.0  # another process runs first
    kill_task: float = 0.0  # a worker's Python process dies, Spark retries the task
    twin_task: float = 0.0  # Spark retries a task while the first attempt still runs
    kill_worker: float = 0.0
    pause_worker: float = 0.0
    kill_leader: float = 0.0
    pause_leader: float = 0.0
    lose_host: float = 0.0  # power failure: its workers die, unsynced files are lost or torn
    kafka_lost: float = 0.0  # per call: an error, and no effect
    kafka_unanswered: float = 0.0  # per call: an error, and the effect
    kafka_late: float = 0.0  # per call: an error, and the effect later
    zookeeper_unknown: float = 0.0
    files_fail: float = 0.0
    store_fail: float = 0.0
    damage_part: float = 0.0  # per complete checkpoint: damages one part
    erase_state: float = 0.0  # per worker's death: deletes the host's state directory
    cut: float = 0.0  # per half second: cuts the link between a process and a server
    user: float = 0.0  # per second: the user stops the job and starts it again
    grow: float = 0.0  # per second: a source topic gets another partition
    damage_log: float = 0.0  # per worker's death: damages one file of the host's state logs
    retain: float = 0.0  # per second: a source partition loses its oldest records
    remake: float = 0.0  # per second, once: a source topic is deleted and created again
    lose_tails: float = 0.0  # per second, once: the broker loses what it has not flushed
    shuffle: float = 0.0  # per attempt of a task: it gets a row less, or one twice

    @classmethod
    def draw(cls, chance: random.Random) -> Faults:
        """Draws a seed's own mixture."""
        drawn = cls(switch=chance.choice([0.0, 0.02, 0.1, 0.3]))
        for field in fields(cls):
            if field.name in STRENGTHS and chance.random() < 0.45:
                low, high = STRENGTHS[field.name]
                setattr(drawn, field.name, low * (high / low) ** chance.random())
        if chance.random() < REMAKE_SHARE:
            drawn.remake = REMAKE_STRENGTH
        if chance.random() < TAILS_SHARE:
            # If the hosts' files are lost too, nothing is left that could contradict the broker.
            drawn.lose_tails, drawn.lose_host, drawn.erase_state = TAILS_STRENGTH, 0.0, 0.0
        return drawn

    def stop(self) -> None:
        """Ends the faults; their damage stays."""
        for field in fields(self):
            if field.name != "switch":
                setattr(self, field.name, 0.0)

    def described(self) -> str:
        on = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return ", ".join(f"{name} {strength:.4f}" for name, strength in on if strength)


STRENGTHS: dict[str, tuple[float, float]] = {
    "kill_task": (0.001, 0.02), "twin_task": (0.0005, 0.01), "kill_worker": (0.0005, 0.008),
    "pause_worker": (0.0005, 0.005), "kill_leader": (0.002, 0.03), "pause_leader": (0.001, 0.01),
    "lose_host": (0.0002, 0.002), "kafka_lost": (0.002, 0.05), "kafka_unanswered": (0.002, 0.05),
    "kafka_late": (0.002, 0.03), "zookeeper_unknown": (0.005, 0.1), "files_fail": (0.002, 0.03),
    "store_fail": (0.02, 0.3), "damage_part": (0.1, 0.6), "erase_state": (0.1, 1.0),
    "cut": (0.02, 0.4), "user": (0.02, 0.2), "grow": (0.02, 0.1), "damage_log": (0.1, 0.6),
    "retain": (0.02, 0.3),
}  # fmt: skip

SHUFFLE_STRENGTH = 0.05
TAILS_SHARE, TAILS_STRENGTH = 0.05, 0.1  # rare: the checks of such a seed are weaker
REMAKE_SHARE, REMAKE_STRENGTH = 0.03, 0.1  # rare: the checks of such a seed are weaker

# Branches that the seeds together must reach to be meaningful, besides the faults themselves.
BRANCHES = (
    "cut requests kafka", "cut answers kafka", "cut both kafka",
    "cut requests zookeeper", "cut answers zookeeper", "cut both zookeeper",
    "session suspended", "session connected", "session expired", "session lost",
    "late zookeeper write", "no lease", "stepped down",
    "late commit", "late record", "commit refused",
    "transaction expired", "void token", "output retained", "epoch was in the ledger",
    "restored from log", "restored from checkpoint", "restored from scratch",
    "damage found", "older checkpoint", "checkpoint completed", "part failed", "fragment failed",
    "fragment stopped", "state redistributed", "layout is over", "epoch ran",
    "epoch with a watermark", "tails lost", "last word repeated", "loss reported",
    "safety", "liveness", "order taken over", "retention", "retention that bites",
    "topic recreated",
    "ends with ReplayDataLost", "ends with TopicIdentityChanged",
    "revision switched", "part of changes", "part of the whole state", "restored from a chain",
    "state copied at once", "clock set", "shuffle", "sets refused",
)  # fmt: skip


# The same of the seeds whose jobs are several fragments.
SPREAD_BRANCHES = (
    "several fragments", "several owners", "waited for sets", "sent again", "buffer trimmed",
    "fragments placed", "buffers near their bound", "epoch above the bound",
    "restored from log", "restored from checkpoint", "restored from scratch",
    "older checkpoint", "checkpoint completed", "fragment failed",
    "state redistributed", "transaction expired", "epoch was in the ledger",
    "output retained", "revision switched", "safety", "liveness", "epoch with a watermark",
)  # fmt: skip


# The same of the seeds whose jobs have replicas.
REPLICA_BRANCHES = (
    "replica placed", "replica placed again", "replica promoted", "promoted in place",
    "promoted by restart", "zombie fenced", "states compared", "outputs compared",
    "ran again after a promotion",
    "struck: primary", "struck: replica", "struck: both", "struck: twice", "struck: leader too",
    "struck: zombie", "struck: lag", "struck: cut off", "struck: falls back",
    "restored from log", "restored from checkpoint", "restored from scratch",
    "checkpoint completed", "fragment failed", "state redistributed", "revision switched",
    "safety", "liveness", "epoch with a watermark",
)  # fmt: skip


class TaskKilled(Exception):
    """Spark's view of a Python process that died during a task."""


class Gates:
    """The places where faults strike. `marks["kind"]` gives a process's kind."""

    def __init__(self, simulation: Simulation, faults: Faults) -> None:
        self._simulation, self.faults = simulation, faults
        self._chances: dict[str, float] = vars(faults)
        self.struck: Counter[str] = Counter()
        self.lose_host: Callable[[Process], None] = lambda _: None

    def strikes(self, fault: str) -> bool:
        """Whether `fault` strikes on this occasion."""
        chance = self._chances[fault]
        if chance and self._simulation.random.random() < chance:
            self.struck[fault] += 1
            return True
        return False

    def hit(self, branch: str) -> None:
        """Counts a branch of BRANCHES."""
        self.struck[branch] += 1

    def toss(self) -> bool:
        """Tosses a coin."""
        return self._simulation.random.random() < 0.5

    def reach(self, where: str) -> None:
        """A gate: may not return (killed), return late (paused), or let other processes run."""
        process = self._simulation.current
        if process is None:
            return
        if process.killed:
            raise Killed
        kind = process.marks.get("kind", "")
        if kind == "leader":
            self._leader(process, where)
        elif kind:
            self._worker(process, kind, where)
        if self.faults.switch and self._simulation.random.random() < self.faults.switch:
            self._simulation.sleep(self._simulation.random.choice([0.0, 0.001, 0.02]))

    def _leader(self, process: Process, where: str) -> None:
        if self.strikes("kill_leader"):
            self._simulation.note(f"KILLED at {where}")
            self._simulation.kill(process.group)
        if self.strikes("pause_leader"):
            self._pause(process, where)

    def _worker(self, process: Process, kind: str, where: str) -> None:
        if self.strikes("kill_worker"):
            self._simulation.note(f"KILLED with its worker at {where}")
            self._simulation.kill(process.group)
        if self.strikes("lose_host"):
            self._simulation.note(f"POWER FAILURE of its host at {where}")
            self.lose_host(process)
        if self.strikes("pause_worker"):
            self._pause(process, where)
        if kind == "task" and self.strikes("kill_task"):
            self._simulation.note(f"TASK KILLED at {where}")
            process.marks["die"]()
            process.marks["abandon"](TaskKilled(f"killed at {where}"))
            process.killed = True
            raise Killed
        if kind == "task" and not process.marks.get("twin") and self.strikes("twin_task"):
            self._simulation.note(f"TASK LOST, but it continues, at {where}")
            process.marks["twin"] = True
            process.marks["abandon"](TaskKilled(f"lost at {where}"))
            self._simulation.sleep(self._simulation.random.uniform(0.0, 3.0))

    def _pause(self, process: Process, where: str) -> None:
        seconds = self._simulation.random.choice([0.3, 1.0, 3.0, 6.0, 12.0])
        self._simulation.note(f"PAUSED for {seconds} s at {where}")
        self._simulation.pause(process.group, seconds)
