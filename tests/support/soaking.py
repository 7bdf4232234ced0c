"""The soak's plan of kills. Pure, given its random numbers.

Kinds come in shuffled rounds, so each is killed about equally often, however long the soak is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from perseid.cli.scenario.kills import KINDS, STANDALONE_ONLY, KillReport

SOAK_KINDS = tuple(kind for kind in KINDS if kind not in STANDALONE_ONLY)
PERIOD_S = 20.0


def rounds(chance: random.Random, kinds: Sequence[str] = SOAK_KINDS) -> Iterator[str]:
    """Kinds without end. The same kind never twice in a row."""
    last = ""
    while True:
        order = list(kinds)
        chance.shuffle(order)
        if order[0] == last and len(order) > 1:
            order.append(order.pop(0))
        yield from order
        last = order[-1]


def wanted_kills(duration_s: float) -> int:
    """How many kills a soak of this length must have had: 60 in 30 minutes, 2/3 of the maximum."""
    return int(duration_s / PERIOD_S * 2 / 3)


def complaints(reports: Sequence[KillReport], duration_s: float) -> list[str]:
    """The failures of a soak; empty when all checks held."""
    wanted = wanted_kills(duration_s)
    found = [] if len(reports) >= wanted else [f"{len(reports)} kills, {wanted} are needed"]
    counts = Counter(report.what for report in reports)
    each = min(wanted // len(SOAK_KINDS), 4)
    found += [
        f"{kind} was killed {counts[kind]} times, {each} are needed"
        for kind in SOAK_KINDS
        if counts[kind] < each
    ]
    return found
