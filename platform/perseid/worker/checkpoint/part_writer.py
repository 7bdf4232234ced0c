"""The process that writes checkpoint parts: `python -m perseid.worker.checkpoint.part_writer`.

Reads one order per line from standard input and writes one answer per line to standard output. A
replica's order has no store: its state log is folded, and no part is made. An
empty line (`HURRY`) announces a final order after the pending ones. The process exits when its
input ends, even in the middle of a part.
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
from contextlib import contextmanager, nullcontext
from functools import cache

import orjson

from perseid.errors.carried import known_kind, made
from perseid.errors.texts import cut, text_of
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.store import Store, open_store
from perseid.topics import codec
from perseid.topics.records import PartDone
from perseid.worker.checkpoint.parts import PartOrder, fold, make
from perseid.worker.dataflow.failures import typed
from perseid.worker.process.priority import set_share

NICE = 19  # the epochs have priority; with 10 this process slowed them down (decisions/0007)
# Even at low priority it slows epochs down: they share memory bandwidth and parts of the cores. So
# a part of a running job uses at most CORE_SHARE of a core for its first PACED_S.
CORE_SHARE = 0.15
PACED_S = 20.0
_SLICE_S = 0.005  # processor time after which it pauses
_LOOK_S = 0.05  # how often a pause checks for HURRY (polled: a signal handler takes no lock)
HURRY = b"\n"

# Whether a job waits for its final part while another one is being written: HURRY sets it, the
# start of a final order clears it. If that order never comes, it stays set until the next final
# order.
_awaited = threading.Event()


def request(store: str | None, order: PartOrder) -> bytes:
    """An order as a line; without a store, to fold a replica's log."""
    return orjson.dumps([store, order.encode().decode()]) + b"\n"


def answered(line: bytes) -> PartDone | None:
    """Decodes an answer line, None of a fold; raises its error when the order failed."""
    done, failed = orjson.loads(line)
    if failed is not None:
        raise made(*failed)
    if done is None:
        return None
    record = codec.decode(base64.b64decode(done))
    assert isinstance(record, PartDone)
    return record


@contextmanager
def paced(share: float = CORE_SHARE, paced_s: float = PACED_S) -> Iterator[None]:
    """Pauses the process so often that it uses `share` of a core, for at most `paced_s`.

    Ends early once a job waits for a final part. For the main thread only; a longer stretch without
    signal handling is compensated afterwards.
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
    signal.siginterrupt(signal.SIGPROF, False)  # waits for a disk or a store are restarted
    signal.setitimer(signal.ITIMER_PROF, _SLICE_S, _SLICE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # by default a late signal would end the process
        signal.signal(signal.SIGPROF, signal.SIG_IGN)


def give_way() -> None:
    """Gives every other process of this host priority.

    A nice value counts within one session only (`priority`), and a broker next to the worker would
    wait for this process. So the process gets a session of its own, and the nice value is set for
    the session too. PermissionError when it already leads a process group, so that no other session
    gets the value.
    """
    os.setsid()
    os.nice(NICE)
    set_share(NICE)


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
    store, text = orjson.loads(line)
    try:
        order = PartOrder.decode(text.encode())
        if store is None:
            return _folded(order)
        done = _made(order, store)
    except Exception as error:  # whatever it is, the caller waits for the answer
        failure = typed(error, "the part writer")
        return orjson.dumps([None, [known_kind(failure), cut(text_of(failure))]]) + b"\n"
    return orjson.dumps([base64.b64encode(codec.encode(done)).decode(), None]) + b"\n"


def _folded(order: PartOrder) -> bytes:
    with paced():
        fold(order, LocalFiles(mapped=True))
    return orjson.dumps([None, None]) + b"\n"


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
