"""Checkpoint parts, written behind the job's back: from an immutable snapshot file to the store.

The task of the flagged epoch has put a snapshot into the state log; a thread of this process
copies it to the checkpoint store while later epochs run, and tells the coordinator through the
progress topic. A process that dies takes its upload with it: that checkpoint stays incomplete.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from perseid.state.checkpoint import checkpoint_folder, part_path, write_part
from perseid.state.store import open_store
from perseid.topics.log import KafkaLogWriter, ProgressLog
from perseid.topics.records import PartDone, PartFailed

if TYPE_CHECKING:
    from perseid.jobs.layout import Task
    from perseid.state.log import StateLog
    from perseid.worker.context import EpochOrder, FragmentContext


@cache
def _uploads() -> ThreadPoolExecutor:
    """One upload at a time in a process: they compete with the operators for its one core."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


@cache
def _progress(bootstrap: str, job: str) -> ProgressLog:
    return ProgressLog(job, writer=KafkaLogWriter(bootstrap))


def upload_soon(
    context: FragmentContext, order: EpochOrder, task: Task, log: StateLog
) -> None:
    """Starts the upload of the snapshot of the order's epoch, and returns at once."""
    _uploads().submit(_upload, context, order.token.epoch, task, log)


def _upload(context: FragmentContext, epoch: int, task: Task, log: StateLog) -> None:
    progress = _progress(context.deployment.kafka, context.job)
    try:
        progress.append(_write(context, epoch, task, log))
    except Exception as error:  # every failure must be told: the coordinator waits for the part
        failed = PartFailed(
            context.job_uuid, context.generation, epoch, task.operator, task.partition,
            f"{type(error).__name__}: {error}",
        )  # fmt: skip
        progress.append(failed)


def _write(context: FragmentContext, epoch: int, task: Task, log: StateLog) -> PartDone:
    started = time.monotonic()
    entry = log.snapshot(epoch)
    folder = checkpoint_folder(context.job, context.job_uuid, epoch, context.generation)
    path = part_path(folder, task.operator, task.partition)
    store = open_store(context.deployment.store)
    size, crc = write_part(store, path, entry.header, entry.sections)
    return PartDone(
        job_uuid=context.job_uuid,
        generation=context.generation,
        epoch=epoch,
        layout=context.layout.number,
        operator=task.operator,
        partition=task.partition,
        path=path,
        bytes=size,
        crc=crc,
        seconds=time.monotonic() - started,
    )
