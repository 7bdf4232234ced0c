"""`bench latency`: age of a record's answer on arrival, at a slow and a quick steady rate.

Every side keeps the balances of accounts. Each payment carries its time of sending, every answer
hands it on, and a read_committed reader takes its age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benches.bench_cluster import Place
from benches.measuring import Runs, in_turn, latency, rows, steadily
from benches.memory import PeakMemory, trees
from benches.sides import Side
from perseid.cli import output
from perseid.cli.scenario.bed import Names


@dataclass(frozen=True, slots=True)
class Settings:
    """`rates` in records a second; the window begins `warm_up_s` after the first output."""

    rates: tuple[float, ...] = (500.0, 5_000.0)
    warm_up_s: float = 15.0
    window_s: float = 20.0
    runs: int = 5


def run(place: Place, sides: Sequence[Side], settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a rate and side, ours first."""
    runs: dict[float, Runs] = {r: {side.system: [] for side in sides} for r in settings.rates}
    for number in range(settings.runs):
        for rate in settings.rates:
            for side, row in in_turn(sides, number):
                row["setting"] = f"{rate:,.0f} records/s"
                once = partial(_once, place, side, settings, rate)
                row.update(steadily(side, row["setting"], once))
                output.note(f"run {number + 1} of {settings.runs}: {row}")
                runs[rate][side.system].append(row)
    return [row for found in runs.values() for row in rows(found)]


def _once(place: Place, side: Side, settings: Settings, rate: float) -> dict[str, Any]:
    with PeakMemory(trees(side.roots)) as peak:
        found = latency(place, side, Names.fresh("bench"), settings, rate, "--payments")
    return {**found, "rss_mb": peak.mb}


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "rates": list(settings.rates), "partitions": 4}
