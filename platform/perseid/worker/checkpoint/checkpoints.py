"""Checkpoint parts, written behind the job's back, by a process that has nothing else to do.

The flagged epoch's task notes the order down and ends. A thread of its process hands the order to a
process of low priority that takes its time (`part_writer`): it reads the state log's immutable
files. The thread tells the coordinator what came of it through the progress topic. So an epoch
shares neither Python's lock nor the priority of its cores with a checkpoint. A part writer that
dies is started again, and goes on with the upload. When the process of the tasks dies, another one
of the fragment takes over the orders that it had (`part_orders`).

Nobody else reads the old files of a log, so it may be here that damage shows. No checkpoint would
ever complete again: the next epoch ends the fragment's life, and the restore mends the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from perseid import logs
from perseid.errors import PerseidError, RetryableError
from perseid.errors.texts import EVENT_MAX, cut, named
from perseid.records.marks import Mark, alive, mark
from perseid.state.durability.files import LocalFiles
from perseid.topics.log import KafkaLogWriter, ProgressLog
from perseid.topics.records import PartDone, PartFailed
from perseid.worker.checkpoint import part_orders, part_writer
from perseid.worker.process import occupied, spare_memory

if TYPE_CHECKING:
    from perseid.records.access import Bootstrap
    from perseid.state.durability.log import StateLog
    from perseid.worker.checkpoint.parts import PartOrder, StateCopy
    from perseid.worker.dataflow.context import FragmentContext

log = logging.getLogger("perseid.worker")
LIVES_MAX = 3  # of part writers, for one part
REPORT_AGAIN_S = 1.0
REPORTS_MAX = 300  # by then the checkpoint is given up anyway
_newest = part_orders.Newest()
_births = threading.Lock()  # of part writers: uploads and a final epoch's task both want one


@cache
def _uploads() -> ThreadPoolExecutor:
    """One part at a time: they share the one process."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


@cache
def _collects() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="collect")


@cache
def _progress(bootstrap: Bootstrap, job: str) -> ProgressLog:
    return ProgressLog(job, writer=KafkaLogWriter(bootstrap))


def upload_soon(context: FragmentContext, part: PartOrder, copy: StateCopy | None) -> None:
    """Orders a part, and returns at once. `copy`: the state itself, where that is small."""
    part_orders.note(LocalFiles(), part, _me())
    if part.final:  # the job's end waits for it, and it for a part under way that takes its time
        with contextlib.suppress(BrokenPipeError, ValueError):  # dead or closed: none is under way
            _writer().hurry()
    _submit(context, part, copy)


def refuse_damaged(context: FragmentContext) -> None:
    """RetryableError when a part of this life found its log damaged."""
    _newest.refuse_damaged(context.job_uuid, context.generation)


def take_over_orders(context: FragmentContext) -> None:
    """Orders here what processes of this fragment that are dead had not done yet."""
    me, files = _me(), LocalFiles()
    for part in part_orders.take_over(files, context.owned, context.generation, me, alive):
        log.info("the part of epoch %d is taken over from a dead process", part.epoch)
        _submit(context, part)


def _submit(context: FragmentContext, part: PartOrder, copy: StateCopy | None = None) -> None:
    _newest.ordered(part)
    occupied.hold()
    _uploads().submit(_work, context, part, copy)


def _work(context: FragmentContext, order: PartOrder, copy: StateCopy | None) -> None:
    """One order, to its end. One that a later one has overtaken is for nobody any more."""
    who = order.identity
    logs.bind(job=order.job, generation=order.generation, epoch=order.epoch,
              operator=who.operator, partition=who.partition)  # fmt: skip
    try:
        if not _newest.overtaken(order):
            _upload(context, order, copy)
        part_orders.forget(LocalFiles(), order, _me())
    finally:
        occupied.release()


@cache
def _me() -> Mark:
    me = mark(os.getpid())
    assert me is not None, "this process lives"
    return me


def collect_soon(state_log: StateLog, epoch: int) -> None:
    """Has the log collected, and returns at once: to free a large file takes time."""
    _collects().submit(logs.carried(_collect), state_log, epoch)


def _collect(state_log: StateLog, epoch: int) -> None:
    try:
        state_log.collect(epoch)
    except PerseidError as error:  # what is left is taken next time
        log.info("a state log was not collected: %s", error)


def _upload(context: FragmentContext, order: PartOrder, copy: StateCopy | None) -> None:
    told: PartDone | PartFailed
    try:
        if copy is not None:
            copy.write(LocalFiles(), order)
        told = _written(context.deployment.store, order)
    except Exception as error:  # every failure must be told: the coordinator waits for the part
        _newest.failed(order, error)
        told = PartFailed(
            order.identity.job_uuid, order.generation, order.epoch, order.identity.operator,
            order.identity.partition, cut(named(error), EVENT_MAX),
        )  # fmt: skip
    _report_until_acknowledged(_progress(context.brokers, context.job), told)


def _report_until_acknowledged(progress: ProgressLog, told: PartDone | PartFailed) -> None:
    """Nobody else knows what came of the part: the checkpoint would wait until it is given up."""
    for _ in range(REPORTS_MAX):
        try:
            progress.append(told)
        except PerseidError as error:
            log.warning("a checkpoint's part is not told yet: %s", error)
            time.sleep(REPORT_AGAIN_S)
        else:
            return


def _written(store: str, order: PartOrder) -> PartDone:
    for _ in range(LIVES_MAX):
        writer = _writer()
        try:
            return writer.write(store, order)
        except (EOFError, BrokenPipeError) as error:
            log.warning("a part writer died: %r", error)
            writer.close()
            _born.cache_clear()
    raise RetryableError(f"{LIVES_MAX} part writers died one after another; look into the log")


def _writer() -> PartWriter:
    with _births:
        return _born()


@cache
def _born() -> PartWriter:
    return PartWriter()


class PartWriter:
    """The other process. It ends when this one does, since its input does then."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**spare_memory.PART_WRITER, **os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            [sys.executable, "-m", part_writer.__name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip

    def write(self, store: str, order: PartOrder) -> PartDone:
        """Raises what the writer says of the part; EOFError or BrokenPipeError when it died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(part_writer.request(store, order))
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer.endswith(b"\n"):
            raise EOFError(f"exit code {self._process.wait()}")
        return part_writer.answered(answer)

    def hurry(self) -> None:
        """A final order comes: what is in front of it is to take no time. From any thread."""
        assert self._process.stdin is not None
        self._process.stdin.write(part_writer.HURRY)
        self._process.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self._process.poll()

    def close(self) -> None:
        """Ends it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()
