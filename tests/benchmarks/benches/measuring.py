"""What the benchmarks on a cluster share: the order of sides, when a run ends, latency, rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from benches.bench_cluster import Place
from benches.host_stall import steady
from benches.results import median_row, ratios
from benches.sides import EXACT, Side, running
from perseid.cli import output
from perseid.cli.scenario.bed import Names
from perseid.cli.scenario.load_generator import LoadGenerator, measure
from perseid.errors import PermanentError

DRAIN_S = 8.0  # outputs after the window, so that its end is not cut
_FIRST_OUTPUT_S = 120.0
STALLED_S = 40.0  # a worker that loses its session is replaced in half of that
IDLE_S = 12.0  # no output for so long: the topic is used up. Quix commits each 5 s

_FAULTS = ("lost", "duplicated", "reordered", "wrong")  # of a verdict

Found = TypeVar("Found")
Runs = dict[str, list[dict[str, Any]]]  # system -> its row of each run
RATIOS = {"rows_per_s": "ratio", "p50_ms": "p50_ratio", "p99_ms": "p99_ratio"}


class Window(Protocol):
    """From when on latency is taken, counted from the first output, and for how long."""

    @property
    def warm_up_s(self) -> float: ...
    @property
    def window_s(self) -> float: ...


def in_turn(sides: Sequence[Side], run: int) -> Iterator[tuple[Side, dict[str, Any]]]:
    """The sides with the first columns of their rows.

    The order changes with each run, so that neither side always has the warmer machine.
    """
    for side in sides if run % 2 else sides[::-1]:
        yield side, {
            "system": side.system, "version": side.version, "guarantee": side.guarantee,
        }  # fmt: skip


def steadily(side: Side, what: str, run: Callable[[], Found]) -> Found:
    """What a run of a side gives in which the machine did not stand still; see `steady`."""
    exact = side.guarantee == EXACT
    return steady(f"{side.system}, {what}", run, output.note, exact=exact)


def refuse_faults(system: str, found: Mapping[str, Any], what: str) -> None:
    """PermanentError when a verdict has faults, or nothing was put out. Pure."""
    faults = {kind: found[kind] for kind in _FAULTS if found[kind]}
    if faults or not found["output_records"]:
        raise PermanentError(
            f"{system}: missing or wrong {what}: {faults}: {found['examples'][:3]}"
        )


def rows(runs: Runs) -> list[dict[str, Any]]:
    """Median rows with ratios: the first system's figure over that system's, within a run. Pure."""
    ours = next(iter(runs.values()))
    found = []
    for theirs in runs.values():
        row = median_row(theirs)
        for column, name in RATIOS.items():
            if all(column in run for run in (*ours, *theirs)):
                row[name] = ratios([r[column] for r in ours], [r[column] for r in theirs])
        found.append(row)
    return found


def run_window(place: Place, sink: str, seconds: float, idle_s: float = IDLE_S) -> bool:
    """Returns `seconds` after the first output (True), or `idle_s` after the last (False)."""
    started_s = changed_s = time.monotonic()
    first_s: float | None = None
    last = 0
    while True:
        time.sleep(0.25)
        now_s = time.monotonic()
        end = place.records(sink)
        if end is None:
            changed_s = now_s  # not known to be idle
        elif end != last:
            last, changed_s = end, now_s
            first_s = now_s if first_s is None else first_s
        if first_s is None and now_s - started_s > _FIRST_OUTPUT_S:
            raise PermanentError(f"no output within {_FIRST_OUTPUT_S:.0f} s; see the logs")
        if first_s is not None and now_s - first_s > seconds:
            return True
        if first_s is not None and now_s - changed_s > idle_s:
            return False


def latency(
    place: Place, side: Side, names: Names, window: Window, rate: float, *flags: str
) -> dict[str, Any]:
    """Ages on arrival of what is sent at `rate` records a second; `flags` choose what is sent."""
    place.make_topics(names.source, names.sink)
    extra = ("--stamped", *flags)
    with (
        running(side, names),
        LoadGenerator(place.kafka, names.source, records=2**31, seed=2, extra=extra) as feed,
    ):
        feed.await_seed()
        feed.order(rate, 2**31)
        found = measure(
            "latency", place.kafka, names.sink,
            warm_up=window.warm_up_s, seconds=window.window_s,
        )  # fmt: skip
    place.topics.delete([names.source, names.sink])
    if not found["samples"]:
        raise PermanentError(f"{side.system} put out no stamped record")
    return {key: found[key] for key in ("p50_ms", "p99_ms", "samples")}
