"""Checkpoint parts, written in the background by a separate process of low priority.

The task of the flagged epoch records the order and ends. A thread of its process passes the order
to the part writer (`part_writer`), which reads the state log's immutable files, and reports the
result to the coordinator on the progress topic. So an epoch shares neither Python's lock nor its
cores' priority with a checkpoint. A part writer that dies is restarted and resumes the upload. When
the process of the tasks dies, another one of the fragment takes over its orders (`part_orders`).

Only part writers read a log's old files, so they may be the first to find damage. No checkpoint
would then complete: the next epoch ends the fragment's life, and the restore repairs the log.
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
from perseid.engine.acknowledged import report_until_acknowledged
from perseid.errors import PerseidError, RetryableError
from perseid.errors.texts import EVENT_MAX, cut, named, text_of
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
LIVES_MAX = 3  # part writers tried for one part
REPORT_AGAIN = "report again"  # the name of such threads
REPORTS_MAX = 300  # by then the checkpoint is aborted anyway
_newest = part_orders.Newest()
_births = threading.Lock()  # of part writers: an upload and a final epoch's task may both start one


@cache
def _uploads() -> ThreadPoolExecutor:
    """One part at a time: all use the same part writer."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


@cache
def _collects() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="collect")


def _opened(bootstrap: Bootstrap, job: str) -> ProgressLog:
    return ProgressLog(job, writer=KafkaLogWriter(bootstrap))


@cache
def _progress(bootstrap: Bootstrap, job: str) -> ProgressLog:
    """For the uploading thread: a writer is one thread's."""
    return _opened(bootstrap, job)


def upload_soon(context: FragmentContext, part: PartOrder, copy: StateCopy | None) -> None:
    """Orders a part and returns at once. `copy`: the state itself, if it is small."""
    part_orders.note(LocalFiles(), part, _me())
    # the job's end waits for this part, and this part for the running one, which is slowed down
    if part.final:
        with contextlib.suppress(BrokenPipeError, ValueError):  # dead or closed: no part is running
            _writer().hurry()
    _submit(context, part, copy)


def refuse_damaged(context: FragmentContext) -> None:
    """RetryableError when a part of this life found its log damaged."""
    _newest.refuse_damaged(context.owned)


def take_over_orders(context: FragmentContext, generation: int) -> None:
    """Takes over the pending orders of dead processes of this fragment.

    `generation`: the fragment's now, which a promotion has raised.
    """
    me, files = _me(), LocalFiles()
    for part in part_orders.take_over(files, context.owned, generation, me, alive):
        log.info("the part of epoch %d is taken over from a dead process", part.epoch)
        _submit(context, part)


def _submit(context: FragmentContext, part: PartOrder, copy: StateCopy | None = None) -> None:
    _newest.ordered(part)
    occupied.hold()
    _uploads().submit(_work, context, part, copy)


def _work(context: FragmentContext, order: PartOrder, copy: StateCopy | None) -> None:
    """Processes one order; a superseded order is only removed.

    A failed report is repeated in a thread of its own: its topic may be gone for good with its job,
    and the parts of the other jobs must not wait for it.
    """
    who = order.identity
    logs.bind(job=order.job, generation=order.generation, epoch=order.epoch,
              operator=who.operator, partition=who.partition)  # fmt: skip
    if _newest.overtaken(order):
        _end(order)
        return
    result = _upload(context, order, copy)
    try:
        _progress(context.brokers, context.job).append(result)
    except PerseidError as error:
        log.warning("a checkpoint's part is not reported yet: %s", error)
        threading.Thread(
            target=logs.carried(_report_again), args=(context, order, result), daemon=True,
            name=REPORT_AGAIN,
        ).start()  # fmt: skip
    else:
        _end(order)


def _end(order: PartOrder) -> None:
    part_orders.forget(LocalFiles(), order, _me())
    occupied.release()


@cache
def _me() -> Mark:
    me = mark(os.getpid())
    assert me is not None, "this process lives"
    return me


def collect_soon(state_log: StateLog, epoch: int) -> None:
    """Collects the log in the background, since freeing a large file takes time."""
    _collects().submit(logs.carried(_collect), state_log, epoch)


def _collect(state_log: StateLog, epoch: int) -> None:
    try:
        state_log.collect(epoch)
        state_log.release(epoch)
    except PerseidError as error:  # the next collection takes the rest
        log.info("a state log was not collected: %s", error)


def _upload(
    context: FragmentContext, order: PartOrder, copy: StateCopy | None
) -> PartDone | PartFailed:
    try:
        if copy is not None:
            copy.write(LocalFiles(), order)
        return _written(context.deployment.store, order)
    except Exception as error:  # every failure must be reported: the coordinator waits for the part
        _newest.failed(order, error)
        return PartFailed(
            order.identity.job_uuid, order.generation, order.epoch, order.identity.operator,
            order.identity.partition, cut(named(error), EVENT_MAX),
        )  # fmt: skip


def _report_again(
    context: FragmentContext, order: PartOrder, result: PartDone | PartFailed
) -> None:
    """Repeats the report: only this process knows the result, and the checkpoint waits for it.

    Ends without it when the checkpoint is out of date: a later part was ordered, the job was
    removed, or its logs have another owner.
    """
    left = iter(range(REPORTS_MAX - 1))

    def unwanted(wait_s: float) -> bool:
        time.sleep(wait_s)
        waited_for = part_orders.pending(LocalFiles(), order, _me())
        return _newest.overtaken(order) or not waited_for or next(left, None) is None

    try:
        report_until_acknowledged(_opened(context.brokers, context.job).append, result, unwanted)
    except PerseidError as error:
        log.error("a checkpoint's part is not reported: %s", error)
    finally:
        _end(order)


def fold_soon(order: PartOrder, copy: StateCopy | None) -> None:
    """Bounds a replica's state log and returns at once: no part is made, and none reported."""
    _newest.ordered(order)
    occupied.hold()
    _uploads().submit(logs.carried(_fold), order, copy)


def _fold(order: PartOrder, copy: StateCopy | None) -> None:
    """What fails is done by the next checkpoint's token; damage ends the life, as of a part."""
    try:
        if copy is not None:
            copy.write(LocalFiles(), order)
        else:
            _answer(None, order)
    except Exception as error:  # of the file system, or of a writer that died
        _newest.failed(order, error)
        log.warning("a replica's state log is not folded yet: %s", text_of(error))
    finally:
        occupied.release()


def _written(store: str, order: PartOrder) -> PartDone:
    done = _answer(store, order)
    assert done is not None, "an order with a store gives a part"
    return done


def _answer(store: str | None, order: PartOrder) -> PartDone | None:
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
    """The part writer's process. It ends with this process, which closes its input."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**spare_memory.PART_WRITER, **os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            [sys.executable, "-m", part_writer.__name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip

    def write(self, store: str | None, order: PartOrder) -> PartDone | None:
        """As `part_writer.answered`.

        Raises the writer's error for the order; EOFError or BrokenPipeError when it died.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(part_writer.request(store, order))
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer.endswith(b"\n"):
            raise EOFError(f"exit code {self._process.wait()}")
        return part_writer.answered(answer)

    def hurry(self) -> None:
        """Announces a final order: the writer finishes pending parts at full speed. Thread safe."""
        assert self._process.stdin is not None
        self._process.stdin.write(part_writer.HURRY)
        self._process.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        """None while the process runs."""
        return self._process.poll()

    def close(self) -> None:
        """Ends the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()
