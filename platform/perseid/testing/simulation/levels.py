"""The epochs of a simulated fragment of a spread job: its rows cross buffer topics of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from perseid.engine.levels import run_and_send
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import TaskReport
from perseid.testing.simulation import mishaps
from perseid.testing.simulation.engine import Defect
from perseid.testing.simulation.ports import SimulatedBufferWriter, SimulatedLogReader
from perseid.testing.simulation.tasks import Context, ProcessCache, concurrently, source_rows
from perseid.topics.buffers import SetWriter
from perseid.worker.dataflow.edges import Row
from perseid.worker.epoch.inbox import BufferInbox, Surroundings, Whole
from perseid.worker.epoch.outbox import BufferOutbox

if TYPE_CHECKING:
    from perseid.testing.simulation.fragment import Fragment

Work = Callable[[ProcessCache], TaskReport]


class Levels:
    """The tasks of a fragment's levels (`perseid.engine.levels.LevelTasks`)."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment, self._context = fragment, fragment.context
        self.inbox = inbox(fragment)

    def read(self, order: EpochOrder) -> TaskReport:
        split = self._context.split
        assert split is not None, "a fragment of a spread job"

        def work(_: ProcessCache) -> TaskReport:
            rows, report = source_rows(self._context, order, split)
            return replace(report, buffered=outbox(self._context).deliver(order, rows))

        return self._fragment.attempted(order, f"split {split}", lambda: work)

    def run(
        self, order: EpochOrder, level: int, gids: Sequence[int], rows: Sequence[Row]
    ) -> TaskReport:
        done = TaskReport(order.token.epoch)
        chance = self._context.world.simulation.random
        for gid in chance.sample(gids, len(gids)):
            mine = [row for row in rows if row.target == gid]
            done = done.merged(self._run(order, level, gid, mine))
        return done

    def _run(self, order: EpochOrder, level: int, gid: int, rows: list[Row]) -> TaskReport:
        def begun() -> Work:
            given = mishaps.shuffled(self._context.world, rows)
            box = outbox(self._context)
            return lambda cache: run_and_send(cache.partitions, order, given, level, box)

        return self._fragment.attempted(order, self._context.whole.task(gid).label, begun)


def outbox(context: Context) -> BufferOutbox:
    """Of one attempt at a task."""
    writer = SetWriter(SimulatedBufferWriter(context.world.broker), context.world.next_attempt)
    return BufferOutbox(context, context.whole, writer)


def inbox(fragment: Fragment) -> BufferInbox:
    """Raises Defect on divergence: all attempts at a set have the same rows, whatever fails."""
    context, world = fragment.context, fragment.world

    def warn(event: str) -> None:
        if event.startswith("divergence"):
            raise Defect(event)
        world.simulation.note(event)

    def continues() -> bool:
        world.gates.hit("waited for sets")
        return not fragment.stopping

    around = Surroundings(
        world.topics, lambda _: SimulatedLogReader(world.broker), continues, warn,
        lambda: fragment.pointers, partial(concurrently, context, "trim"), context.clock,
    )  # fmt: skip
    return BufferInbox(context, Whole(context.whole, context.graph), around)
