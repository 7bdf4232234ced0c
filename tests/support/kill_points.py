"""All points at which kill tests kill, in one list: the possible targets and their scope.

`of` is the scope of a point: an operator partition with state, the writer of an operator's output,
or the whole job, if the process works for all operators. Points of a `takeover` are reached only
while another process takes over the job or the leadership.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perseid.records.crashpoints import KillTarget

Of = Literal["state", "writer", "job"]


@dataclass(frozen=True, slots=True)
class KillPoint:
    """`targets`: what may be killed there, the process itself or its driver with it."""

    name: str
    of: Of
    targets: tuple[KillTarget, ...] = ("self", "driver")
    takeover: bool = False


POINTS = (
    KillPoint("source.after-read", "job", ("self",)),
    KillPoint("log.before-rename", "state"),
    KillPoint("log.after-rename", "state"),
    KillPoint("sink.after-produce", "writer"),
    KillPoint("sink.before-commit", "writer"),
    KillPoint("sink.after-commit", "writer"),
    KillPoint("checkpoint.during-upload", "state"),
    KillPoint("epoch.before-report", "job", ("driver",)),
    KillPoint("coordinator.append-token", "job", ("self",)),
    KillPoint("coordinator.write-manifest", "job", ("self",)),
    KillPoint("coordinator.put-pointers", "job", ("self",)),
    KillPoint("restore.during", "state", takeover=True),
    KillPoint("replay.during", "job", ("driver",), takeover=True),
    KillPoint("coordinator.put-plan", "job", ("self",), takeover=True),
    KillPoint("coordinator.put-status", "job", ("self",), takeover=True),
)
SPREAD_POINTS = (  # which a job of one fragment does not reach
    KillPoint("levels.before-send", "job"),
    KillPoint("levels.after-send", "job"),
)
REPLICA_POINTS = (  # of a promotion, in the driver of the replica
    KillPoint("promote.before-ledgers", "job", ("driver",), takeover=True),
    KillPoint("promote.after-report", "job", ("driver",), takeover=True),
)
REACH_S = 240.0  # a killed worker is back after 75 s on a slow machine
OF_THE_JOB = 3  # are drawn for one run, in addition to those of the operators


@dataclass(frozen=True, slots=True)
class Kill:
    """One death at a point, of an operator's process or, without an operator, for the job."""

    point: KillPoint
    target: KillTarget
    operator: str = ""

    @property
    def moves(self) -> bool:
        """Whether the job moves to another driver, before the death or because of it."""
        return self.point.takeover or self.target == "driver"

    @property
    def armed_as(self) -> str:
        return f"{self.point.name}@{self.operator}" if self.operator else self.point.name


def kills(*, takeover: bool) -> list[tuple[str, KillTarget]]:
    """Every point with each of its targets, for a job whose operators are not distinguished."""
    return [(p.name, v) for p in POINTS if p.takeover == takeover for v in p.targets]


def fits(point: KillPoint, operator: str, stateless: Collection[str]) -> bool:
    """Whether a process of this operator can be identified at the point."""
    return point.of == "writer" or (point.of == "state" and operator not in stateless)


def matrix(
    point: KillPoint, target: KillTarget, operators: Collection[str], stateless: Collection[str]
) -> list[Kill]:
    """Returns the deaths of all targets that can be identified at the point."""
    if point.of == "job":
        return [Kill(point, target)]
    return [Kill(point, target, name) for name in operators if fits(point, name, stateless)]


def drawn(
    chance: random.Random, operators: Collection[str], stateless: Collection[str]
) -> list[Kill]:
    """Draws one death of each operator, and deaths at some points of the job as a whole."""
    names = chance.sample(sorted(operators), len(operators))
    own = [
        Kill(chance.choice([p for p in POINTS if fits(p, name, stateless)]), "self", name)
        for name in names
    ]
    of_job = chance.sample([p for p in POINTS if p.of == "job"], OF_THE_JOB)
    return [*own, *(Kill(point, point.targets[0]) for point in of_job)]


def together(wanted: Sequence[Kill], at_once: int) -> Iterator[list[Kill]]:
    """Groups deaths that one test can await together: `at_once` of operators and one of the job.

    Those that move the job to another driver, or happen only then, come last.
    """
    last = [kill for kill in wanted if kill.moves]
    own = [kill for kill in wanted if not kill.moves and kill.operator]
    job = [kill for kill in wanted if not kill.moves and not kill.operator]
    while own or job:
        yield [*own[:at_once], *job[:1]]
        del own[:at_once], job[:1]
    if last:
        yield last
