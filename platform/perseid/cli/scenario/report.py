"""The output of the demo: a live view on a terminal, else lines, and one document at the end."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perseid.cli import output
from perseid.cli.scenario.kills import KillReport

if TYPE_CHECKING:
    from rich.table import Table

_RATE_WINDOW_S = 2.0
_LINE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Sight:
    """The values shown at one moment."""

    now_s: float
    total: int
    sent: int
    committed: int
    output_records: int
    epoch: int
    committed_epoch: int
    checkpoint: int | None
    owner: str | None


class View:
    """Shows observations and kills: on a terminal as a live table, else as occasional lines.

    Always on stderr, so that stdout holds the document alone.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._past: deque[tuple[float, int]] = deque()
        self._notes: deque[str] = deque(maxlen=12)
        self._shown_s = float("-inf")
        self._live: Live | None = None
        if sys.stderr.isatty():
            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()

    def note(self, text: str) -> None:
        """Prints an event, which stays visible."""
        self._notes.append(text)
        if self._live is None:
            output.note(text)

    def show(self, sight: Sight) -> None:
        self._past.append((sight.now_s, sight.committed))
        while len(self._past) > 2 and self._past[0][0] < sight.now_s - _RATE_WINDOW_S:
            self._past.popleft()
        every_s = 0.1 if self._live is not None else _LINE_EVERY_S
        if sight.now_s - self._shown_s < every_s:
            return
        self._shown_s = sight.now_s
        if self._live is None:
            output.note(_line(sight, self._rate()))
        else:
            self._live.update(self._table(sight), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _rate(self) -> float:
        (then_s, then), (now_s, now) = self._past[0], self._past[-1]
        return (now - then) / (now_s - then_s) if now_s > then_s else 0.0

    def _table(self, sight: Sight) -> Table:
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold", min_width=14)
        table.add_column()
        done = sight.committed / sight.total if sight.total else 1.0
        bar = "#" * int(40 * done) + "." * (40 - int(40 * done))
        table.add_row("wordcount", f"{bar} {done:6.1%}")
        table.add_row("lines", f"{sight.sent:,} sent, {sight.committed:,} committed")
        table.add_row("throughput", f"{self._rate():,.0f} lines/s")
        table.add_row("lag", f"{sight.sent - sight.committed:,} lines")
        table.add_row("output", f"{sight.output_records:,} records")
        table.add_row("epoch", f"{sight.epoch} open, {sight.committed_epoch} committed")
        table.add_row(
            "checkpoint", "-" if sight.checkpoint is None else f"epoch {sight.checkpoint}"
        )
        table.add_row("worker", sight.owner or "none at this moment")
        for text in self._notes:
            table.add_row("", text)
        return table


def _line(sight: Sight, rate: float) -> str:
    return (
        f"{sight.now_s:6.1f} s  {sight.committed:,} of {sight.total:,} lines committed, "
        f"{rate:,.0f}/s, lag {sight.sent - sight.committed:,}, epoch {sight.committed_epoch}, "
        f"worker {sight.owner or 'none at this moment'}"
    )


def complaints(document: dict[str, Any], kills: list[KillReport], epochs_after: int | None,
               epochs_after_min: int) -> list[str]:  # fmt: skip
    """Why the demo failed, in sentences; empty when everything held. Pure."""
    found = [
        f"{document[kind]:,} records {kind}"
        for kind in ("lost", "duplicated", "reordered", "wrong")
        if document[kind]
    ]
    for kill in kills:
        if kill.pid is None:
            found.append(f"the kill of {kill.what} met no process")
        elif kill.epoch_in_flight is None:
            found.append(f"the kill of {kill.what} met no epoch in flight")
        elif kill.seconds_to_output is None:
            found.append(f"no output came after the kill of {kill.what}")
    if kills and epochs_after is not None and epochs_after < epochs_after_min:
        found.append(
            f"only {epochs_after} epochs were committed after the last kill, {epochs_after_min} "
            "are needed; give it more --records"
        )
    return found
