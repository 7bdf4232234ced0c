"""A seed's faults and their times: a schedule that can be replayed against real servers.

Read from the trace, so that it holds only faults that happened. Faults that only a model can make
(a write without an answer, a damaged file) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perseid.testing.simulation.scenario import Outcome, run

_LINE = re.compile(r"\s*(?P<at>[\d.]+) (?P<who>\S+)(?: [^:]*)?: (?P<what>[A-Z].*)")
_CUT = re.compile(r"CUT (?P<lost>\w+) of \S+ and (?P<part>kafka|zookeeper) for (?P<s>[\d.]+) s")
_PAUSED = re.compile(r"PAUSED for (?P<s>[\d.]+) s")


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault. `what`: "kill", "pause", "kill-task", or the direction of a link that is cut.

    `target`: "worker", "leader", "kafka" or "zookeeper".
    """

    at_s: float
    what: str
    target: str
    lasts_s: float = 0.0


def strikes(lines: Iterable[str]) -> list[Strike]:
    """The faults in the trace of a seed, in order."""
    found = []
    for line in lines:
        if parts := _LINE.fullmatch(line):
            strike = _strike(float(parts["at"]), parts["who"], parts["what"])
            if strike is not None:
                found.append(strike)
    return found


def worst(seeds: Iterable[int], count: int) -> list[tuple[Outcome, list[Strike]]]:
    """The seeds with the most strikes, worst first."""
    played = [(outcome, strikes(outcome.lines)) for outcome in map(run, seeds)]
    return sorted(played, key=lambda pair: -len(pair[1]))[:count]


def _strike(at_s: float, who: str, what: str) -> Strike | None:
    target = "leader" if who.startswith("c") else "worker"
    if cut := _CUT.match(what):
        return Strike(at_s, cut["lost"], cut["part"], float(cut["s"]))
    if paused := _PAUSED.match(what):
        return Strike(at_s, "pause", target, float(paused["s"]))
    if what.startswith("TASK KILLED"):
        return Strike(at_s, "kill-task", "worker")
    if what.startswith(("KILLED", "POWER FAILURE")):
        return Strike(at_s, "kill", target)
    return None
