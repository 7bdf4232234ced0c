"""Rows on feedback edges: the output of an operator in epoch e is input of epoch e + 1.

1. The output of a partition in e goes into the delta of e, also in a log that retains outputs.
2. A checkpoint's snapshot of such an operator includes the output of its epoch.
3. In e + 1 the source stage reads the outputs of e from the logs and distributes them to the
   consumers by key, in the order of the producer's partitions.

So the rows are stored with the state: an owner that can resume after e has the state of e, and with
it its output, from the log or the checkpoint. The log entry must belong to the token that the token
of e + 1 follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.errors import RetryableError
from perseid.jobs.model.spec import MAIN, output_of, producer
from perseid.state.primitives.arrow import ipc_table
from perseid.worker.dataflow.edges import Row, deal
from perseid.worker.dataflow.partition import partitions
from perseid.worker.epoch.partition_state import mended_by_a_restore, section_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from perseid.jobs.model.layout import Layout, Task
    from perseid.state.durability.log import StateLog
    from perseid.topics.records import Token
    from perseid.worker.dataflow.graph import Graph


def rows(
    graph: Graph,
    layout: Layout,
    token: Token,
    log_of: Callable[[Task], StateLog],
    columns_of: Callable[[str], pa.Schema],
) -> Iterator[Row]:
    """The rows of all feedback edges for the token's epoch. `columns_of`: columns of a stream."""
    for edge in graph.feedback:
        for task in layout.of(producer(edge.stream)):
            found = last_output(log_of(task), token, output_of(edge.stream))
            table = found if found.num_columns else columns_of(edge.stream).empty_table()
            parts = partitions(table, edge.route.key, len(edge.route.targets))
            yield from deal(table, edge.route, task.gid, parts)


def last_output(log: StateLog, token: Token, output: str = MAIN) -> pa.Table:
    """What the log's partition emitted to `output` in the epoch before `token`.

    The table has no columns if there was no output. After a restore, or once the log was collected,
    only the snapshot has the output.
    """
    epoch = token.epoch - 1
    with mended_by_a_restore():
        entry = log.find(epoch)
        if entry is None and epoch in log.snapshots():
            entry = log.snapshot(epoch)
    if entry is None:
        raise RetryableError(
            f"the state log does not have epoch {epoch}, whose output is input of {token.epoch}: "
            "it has to be restored"
        )
    if entry.header.token_offset != token.previous_offset:
        raise RetryableError(
            f"the state log has epoch {epoch} of the token at offset {entry.header.token_offset}, "
            f"and epoch {token.epoch} follows the one at {token.previous_offset}"
        )
    section = entry.sections.get(section_of(output))
    return ipc_table(section) if section is not None else pa.table({})
