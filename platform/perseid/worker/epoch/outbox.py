"""Sends the rows of a task to the buffer topics of their consumers (`perseid.engine.levels`)."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from perseid.records import crashpoints
from perseid.topics.records import BufferRecord
from perseid.worker.dataflow.buffered import outgoing, place_of
from perseid.worker.epoch import flow

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import Buffered
    from perseid.jobs.model.layout import Layout
    from perseid.records.access import Bootstrap
    from perseid.topics.buffers import SetWriter
    from perseid.worker.dataflow.buffered import Fragment
    from perseid.worker.dataflow.context import FragmentContext
    from perseid.worker.dataflow.edges import Row

FLUSH_S = 25.0  # longer than the client tries to deliver a record
ATTEMPT_BITS = 62


class BufferOutbox:
    """`perseid.engine.levels.Outbox`, of one task. `whole`: all operator partitions of the job."""

    def __init__(self, context: Fragment, whole: Layout, writer: SetWriter) -> None:
        self._context, self._layout, self._writer = context, whole, writer

    def send(self, order: EpochOrder, rows: Sequence[Row]) -> Buffered:
        """Of partitions that have committed the epoch."""
        crashpoints.reach("levels.before-send")
        sent = self.deliver(order, rows)
        crashpoints.reach("levels.after-send")
        return sent

    def deliver(self, order: EpochOrder, rows: Sequence[Row]) -> Buffered:
        """Returns once all sets of `rows` are durable. RetryableError: some may be."""
        context, token = self._context, order.token
        layout = self._layout
        sent: Counter[tuple[str, int, int]] = Counter()
        for one in outgoing(rows):
            head = BufferRecord(
                job_uuid=context.job_uuid, revision=context.revision, layout=layout.number,
                epoch=token.epoch, token_offset=order.token_offset, input=one.input,
                origin=one.origin, generation=order.generation, attempt=0, chunk=0, chunks=1,
                rows_crc=one.rows_crc, data=b"",
            )  # fmt: skip
            place = place_of(context.job, layout, one.target)
            reader = layout.task(one.target).operator
            sent[reader, one.input, one.origin] += self._writer.send(place, head, one.blobs)
        if rows:
            self._writer.flush(FLUSH_S)
        return dict(sent)


def outbox_of(context: FragmentContext) -> BufferOutbox:
    """With the producer of this process."""
    return BufferOutbox(context, flow.whole_layout(context), _writer(context.brokers))


@cache
def _writer(bootstrap: Bootstrap) -> SetWriter:
    """Attempts are drawn: no process knows the numbers of those that ran the epoch before it."""
    from perseid.topics.buffers import KafkaBufferWriter, SetWriter

    return SetWriter(KafkaBufferWriter(bootstrap), partial(secrets.randbits, ATTEMPT_BITS))
