"""Reads the buffer partitions of a fragment, in its driver (`perseid.engine.levels`).

All sets since the oldest kept checkpoint are known, those of epochs that have run included: only so
is known what may be trimmed, and whether a set that comes again has the same rows.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.clocks import Clock, SystemClock
from perseid.errors import FencedError, PermanentError, RetryableError
from perseid.topics import buffer_limits, buffer_topics
from perseid.topics.buffers import SetReader, SetsLate, Trimmed
from perseid.topics.sets import BYTES_MAX, Sets
from perseid.worker.dataflow.barriers import expected
from perseid.worker.dataflow.buffered import incoming, place_of
from perseid.worker.epoch import flow

if TYPE_CHECKING:
    from perseid.engine.feed import TokenHistory
    from perseid.engine.order import EpochOrder
    from perseid.jobs.model.layout import Layout
    from perseid.records import CheckpointPointer
    from perseid.topics.admin import Partition
    from perseid.topics.buffer_topics import BufferTopic
    from perseid.topics.buffers import Blobs
    from perseid.topics.log import LogReader
    from perseid.topics.sets import Place
    from perseid.worker.dataflow.buffered import Fragment
    from perseid.worker.dataflow.context import FragmentContext
    from perseid.worker.dataflow.edges import Row
    from perseid.worker.dataflow.graph import Graph

log = logging.getLogger("perseid.worker")

LOOK_S = 5.0  # of a wait for sets, until it is looked whether they are lost; and so on
LATE_LOOKS = 12  # until users hear of it
FRAGMENT_BYTES_MAX = 256 << 20  # of the rows of all partitions that are kept before their epoch

Cuts = Mapping[str, Mapping[int, int]]  # topic -> partition -> the first offset that stays


@dataclass(frozen=True)
class Surroundings:
    """What the driver provides.

    `open`: a reader of these partitions, each from its offset on. `continues`: false once the
    fragment is asked to end. `warn`: an event for users. `known`: the complete checkpoints. `soon`:
    runs something in another thread.
    """

    topics: buffer_topics.Topics
    open: Callable[[Mapping[Partition, int]], LogReader]
    continues: Callable[[], bool]
    warn: Callable[[str], None]
    known: Callable[[], Iterable[CheckpointPointer]]
    soon: Callable[[Callable[[], None]], object]
    clock: Clock


@dataclass(frozen=True)
class Whole:
    """The job that the fragment is a part of: all operator partitions, and their edges."""

    layout: Layout
    graph: Graph

    @classmethod
    def of(cls, context: FragmentContext) -> Whole:
        return cls(flow.whole_layout(context), flow.graph_of(context))


class BufferInbox:
    """`perseid.engine.levels.Inbox`. `close` after the last epoch."""

    def __init__(self, context: Fragment, job: Whole, around: Surroundings) -> None:
        self._context, self._job, self._around = context, job, around
        self._readers: dict[int, SetReader] = {}  # by gid
        self._topics: dict[str, BufferTopic] = {}
        self._valid: set[int] = set()  # offsets of the tokens on the chain
        self._end = 0  # the token log is known up to this offset
        self._floor = 0  # offset of the token up to which nothing is needed
        self._logs: LogReader | None = None
        self._refused: PermanentError | None = None  # by a trim

    def begin(self, past: TokenHistory, done_epoch: int) -> None:
        """Raises as `buffer_topics.check` does."""
        context, around = self._context, self._around
        whole = self._job.layout
        operators = {self._place(task.gid)[0]: task.operator for task in context.layout.tasks}
        counts = {topic: len(whole.of(operator)) for topic, operator in operators.items()}
        self._topics = buffer_topics.found(around.topics, counts)
        self._valid, self._end = set(past.offsets.values()), past.end
        self._floor = past.base.offset
        gids = [task.gid for task in context.layout.tasks]
        starts = buffer_topics.check_starts(around.topics, {self._place(gid): None for gid in gids})
        self._logs = around.open(starts)
        bytes_max = min(BYTES_MAX, FRAGMENT_BYTES_MAX // max(1, len(gids)))
        for gid in gids:
            place = self._place(gid)
            sets = Sets(context.job_uuid, whole.number, self._floor, bytes_max=bytes_max)
            sets.done(past.offsets[done_epoch])
            operator = whole.task(gid).operator
            self._readers[gid] = SetReader(
                operator, place, sets, self._logs, starts[place], around.clock
            )

    def rows(self, order: EpochOrder, gids: Sequence[int]) -> list[Row]:
        if self._refused is not None:
            raise self._refused
        self._valid.add(order.token_offset)
        self._end = max(self._end, order.token_offset + 1)
        return [row for gid in gids for row in self._rows(order, gid)]

    def done(self, order: EpochOrder) -> None:
        """Deletes, soon, what no restore needs any more."""
        for reader in self._readers.values():
            reader.sets.done(order.token_offset)
        cuts = self._cuts(order.token_offset)
        if cuts:
            self._around.soon(lambda: self._trim(cuts))

    def close(self) -> None:
        if self._logs is not None:
            self._logs.close()

    def _place(self, gid: int) -> Partition:
        return place_of(self._context.job, self._context.layout, gid)

    def _rows(self, order: EpochOrder, gid: int) -> list[Row]:
        reader = self._readers[gid]
        reader.sets.judge(self._valid, self._end)
        wanted = expected(self._job.graph, order.token, gid)
        found = self._awaited(reader, order, wanted.sets)
        for event in reader.divergences():
            self._around.warn(f"divergence: {event}")
        topic, partition = self._place(gid)
        return incoming(gid, found, f"{topic}[{partition}], epoch {order.token.epoch}")

    def _awaited(
        self, reader: SetReader, order: EpochOrder, wanted: Mapping[Place, str]
    ) -> Mapping[Place, Blobs]:
        offset, places = order.token_offset, frozenset(wanted)
        for looks in itertools.count(1):
            try:
                return reader.wait(offset, places, LOOK_S, self._refuse_to_wait)
            except SetsLate as late:
                reader.refuse_lost(offset, places, order.generation)
                if looks == LATE_LOOKS:
                    self._around.warn(f"epoch {order.token.epoch} waits: {late}")
            except Trimmed as gone:
                raise RetryableError(f"the fragment reads its buffers again: {gone}") from gone
        raise AssertionError("unreachable")

    def _refuse_to_wait(self) -> None:
        if not self._around.continues():
            raise FencedError("the fragment was asked to end while it waited for rows of others")

    # Trimming -----------------------------------------------------------------------------------

    def _cuts(self, done: int) -> Cuts:
        """What to delete, once for each complete checkpoint that lets the oldest one go."""
        oldest = [pointer.token_offset for pointer in self._around.known()]
        floor = buffer_limits.floor(oldest, [done])
        if floor is None or floor <= self._floor:
            return {}
        self._floor = floor
        self._valid = {offset for offset in self._valid if offset > floor}
        cuts: dict[str, dict[int, int]] = {}
        for gid, reader in self._readers.items():
            topic, partition = self._place(gid)
            cuts.setdefault(topic, {})[partition] = reader.sets.needed_from(floor)
            reader.sets.trim(floor)
        return cuts

    def _trim(self, cuts: Cuts) -> None:
        """Runs in another thread, between `begin` and `close` the only one to ask for topics."""
        for topic, before in cuts.items():
            try:
                buffer_topics.trim(self._around.topics, self._topics[topic], before)
            except PermanentError as error:
                self._refused = error
            except Exception as error:  # raised nowhere else: the thread is the pool's
                log.warning("%s is trimmed after the next checkpoint: %s", topic, error)


def kafka_inbox(
    context: FragmentContext,
    continues: Callable[[], bool],
    warn: Callable[[str], None],
    known: Callable[[], Iterable[CheckpointPointer]],
    soon: Callable[[Callable[[], None]], object],
) -> BufferInbox:
    """With clients of its own. See `Surroundings`."""
    from perseid.topics.admin import TopicAdmin
    from perseid.topics.shared_log import SharedLogReader

    brokers = context.brokers
    around = Surroundings(
        TopicAdmin(brokers), lambda starts: SharedLogReader(brokers, starts), continues, warn,
        known, soon, SystemClock(),
    )  # fmt: skip
    return BufferInbox(context, Whole.of(context), around)
