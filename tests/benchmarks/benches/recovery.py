"""`bench recovery`: seconds from `kill -9` of the driver to new output, with a large state.

Per side: 1. a topic of words that occur once makes the state; 2. a steady input continues while the
driver is killed again and again, each time after the same pause, long enough for a checkpoint;
3. the input ends, both must reach the right totals, judged by the verifier.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from benches.bench_cluster import Place
from benches.memory import PeakMemory, trees
from benches.results import median_row, ratios
from benches.sides import RecoveringSide, running
from perseid.cli import output
from perseid.cli.scenario.bed import Names
from perseid.cli.scenario.load_generator import LoadGenerator, judge, measure
from perseid.errors import PermanentError

WORD_BYTES = 88
# A row of the snapshot as Arrow keeps it: the word, its offset (4 bytes), the count (8 bytes).
ROW_BYTES = WORD_BYTES + 12
_WORDS_PER_LINE = 10
# A request that was under way at the kill may still be appended; no system is back so soon.
_UNDER_WAY_MS = 250
_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """`settle_s`: between state and first kill, for both sides to write a full checkpoint."""

    state_bytes: int = 100_000_000
    rate: float = 1_000.0
    settle_s: float = 75.0
    pause_s: float = 25.0
    runs: int = 5
    seed: int = 3

    @property
    def state_lines(self) -> int:
        return max(self.state_bytes // ROW_BYTES // _WORDS_PER_LINE, 1)


def run(place: Place, sides: list[RecoveringSide], settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a side, ours first."""
    found = [_side(place, side, settings) for side in sides]
    ours = found[0]
    for row in found:
        row["ratio"] = ratios([ours["seconds"]], [row["seconds"]])
    return found


class _Counted:
    """Words that a sink shows, kept up to date by a process of its own."""

    def __init__(self, kafka: str, sink: str) -> None:
        self.words = 0
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "perseid.testing.meter", "follow",
                "--kafka", kafka, "--sink", sink,
            ],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def await_lines(self, lines: int, what: str) -> None:
        """Waits until `lines` lines are counted."""
        deadline_s = time.monotonic() + _WAIT_S
        while self.words < lines * _WORDS_PER_LINE:
            if time.monotonic() > deadline_s:
                raise PermanentError(
                    f"{what}: {self.words:,} of {lines * _WORDS_PER_LINE:,} words counted after "
                    f"{_WAIT_S:.0f} s"
                )
            time.sleep(0.1)

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            self.words = json.loads(line)["words"]


def _side(place: Place, side: RecoveringSide, settings: Settings) -> dict[str, Any]:
    names = Names.fresh("bench")
    place.make_topics(names.source, names.sink)
    output.note(f"{side.system}: {settings.state_lines * _WORDS_PER_LINE:,} words of state")
    place.fill(names.source, settings.state_lines, f"--unique={WORD_BYTES}")
    with PeakMemory(trees(side.roots)) as peak, running(side, names):
        moments, state_bytes = _kill_again_and_again(place, side, names, settings)
    after = _commas([moment + _UNDER_WAY_MS for moment in moments])
    seconds = _seconds(measure("rises", place.kafka, names.sink, moments=after), moments)
    verdict = judge(place.kafka, names.source, names.sink)
    place.topics.delete([names.source, names.sink])
    row = {
        "system": side.system,
        "version": side.version,
        "guarantee": side.guarantee,
        "seconds": round(statistics.median(seconds), 3),
        "rss_mb": peak.mb,
        "state_bytes": state_bytes,
        **{key: verdict[key] for key in ("lost", "duplicated", "reordered", "wrong")},
        "totals_right": not (verdict["lost"] or verdict["wrong"]),
    }
    output.note(f"{side.system}: {seconds} s, {row}")
    return {**median_row([row]), "seconds_each": seconds, "runs": len(seconds)}


def _kill_again_and_again(
    place: Place, side: RecoveringSide, names: Names, settings: Settings
) -> tuple[list[int], int]:
    """The moments of the kills and the size of the state at the first of them."""
    chance = random.Random(settings.seed)
    moments: list[int] = []
    state_bytes = 0
    with (
        _Counted(place.kafka, names.sink) as counted,
        LoadGenerator(place.kafka, names.source, records=2**31, seed=settings.seed) as feed,
    ):
        counted.await_lines(settings.state_lines, f"{side.system}, building the state")
        feed.order(settings.rate, 2**31)
        time.sleep(settings.settle_s)
        state_bytes = side.state_bytes()
        for _ in range(settings.runs):
            # Not always at the same place between two checkpoints or triggers.
            time.sleep(chance.uniform(0, 3))
            sent = feed.sent
            moments.append(side.kill())
            counted.await_lines(settings.state_lines + sent, f"{side.system}, after a kill")
            time.sleep(settings.pause_s)
        feed.close()
        counted.await_lines(settings.state_lines + feed.sent, f"{side.system}, at the end")
    return moments, state_bytes


def _seconds(first_ms: list[int | None], moments: list[int]) -> list[float]:
    if None in first_ms:
        raise PermanentError(f"no output after the kill at {moments[first_ms.index(None)]} ms")
    return [(n - m) / 1000 for n, m in zip(first_ms, moments, strict=True) if n is not None]


def _commas(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "words": settings.state_lines * _WORDS_PER_LINE}
