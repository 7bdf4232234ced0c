"""The process that writes checkpoint parts: `python -m perseid.worker.checkpoint.part_writer`.

One order a line on its standard input, one answer a line on its standard output. An empty line
(`HURRY`) says that a final order comes behind those in front. It ends, in the middle of a part if
need be, when its input does.
"""

from __future__ import annotations

import base64
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path

import orjson

from perseid.errors.carried import known_kind, made
from perseid.errors.texts import cut, said
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.store import Store, open_store
from perseid.topics import codec
from perseid.topics.records import PartDone
from perseid.worker.checkpoint.parts import PartOrder, make
from perseid.worker.dataflow.failures import typed

NICE = 19  # what the epochs leave; 10, a tenth of a core, made them wait (decisions/0007)
# Also what they leave slows them down: the memory and what cores share is used by both. So a part
# of a running job takes no more than CORE_SHARE of a core while it is PACED_S old.
CORE_SHARE = 0.15
PACED_S = 20.0
_SLICE_S = 0.005  # of processor time, after which it pauses
_LOOK_S = 0.05  # how often a pause, which as a signal handler takes no lock, looks for a HURRY
HURRY = b"\n"

# Whether a job waits for its final part while the one under way is another: HURRY sets it, a final
# order's turn clears it. One that never comes leaves it set until the next does.
_awaited = threading.Event()


def request(store: str, order: PartOrder) -> bytes:
    """An order as a line."""
    return orjson.dumps([store, order.encode().decode()]) + b"\n"


def answered(line: bytes) -> PartDone:
    """What a line of the writer says; raises its error when the part failed."""
    done, failed = orjson.loads(line)
    if failed is not None:
        raise made(*failed)
    record = codec.decode(base64.b64decode(done))
    assert isinstance(record, PartDone)
    return record


@contextmanager
def paced(share: float = CORE_SHARE, paced_s: float = PACED_S) -> Iterator[None]:
    """The process pauses so often that it takes `share` of a core, for `paced_s` at most.

    No more once a job waits for a part behind this one. For the main thread; what takes longer
    without a look at signals is made up for behind it.
    """
    until_s = time.monotonic() + paced_s
    used_s = time.process_time()

    def pause(*_: object) -> None:
        nonlocal used_s
        took_s, used_s = time.process_time() - used_s, time.process_time()
        pause_until_s = min(time.monotonic() + took_s * (1 / share - 1), until_s)
        while (left_s := pause_until_s - time.monotonic()) > 0 and not _awaited.is_set():
            time.sleep(min(left_s, _LOOK_S))
        if _awaited.is_set() or time.monotonic() >= until_s:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, pause)
    signal.siginterrupt(signal.SIGPROF, False)  # what waits for a disk or a store goes on waiting
    signal.setitimer(signal.ITIMER_PROF, _SLICE_S, _SLICE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # by default a late one would end it


def give_way() -> None:
    """Lets every other process of this host go first.

    Where Linux groups processes by session (autogroup, sched(7)) a nice value counts within one
    alone, and a broker beside the worker would wait for this process. So it has a session of its
    own, and the nice value is the session's, too. PermissionError when it leads a group already:
    nobody else's session is made nice.
    """
    os.setsid()
    os.nice(NICE)
    with suppress(OSError):  # there are no such groups here
        Path("/proc/self/autogroup").write_text(str(NICE))


def main() -> None:
    give_way()
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        sys.stdout.buffer.write(_answer(lines.get()))
        sys.stdout.buffer.flush()


def _read(lines: queue.Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        if line == HURRY:
            _awaited.set()
        else:
            lines.put(line)
    os._exit(0)


def _answer(line: bytes) -> bytes:
    store, order = orjson.loads(line)
    try:
        done = _made(PartOrder.decode(order.encode()), store)
    except Exception as error:  # whatever it is, who waits for the part has to hear of it
        told = typed(error, "the part writer")
        return orjson.dumps([None, [known_kind(told), cut(said(told))]]) + b"\n"
    return orjson.dumps([base64.b64encode(codec.encode(done)).decode(), None]) + b"\n"


def _made(order: PartOrder, store: str) -> PartDone:
    if order.final:
        _awaited.clear()
    with nullcontext() if order.final else paced():
        return make(order, LocalFiles(mapped=True), _store(store))


@cache
def _store(uri: str) -> Store:
    return open_store(uri)


if __name__ == "__main__":
    main()
