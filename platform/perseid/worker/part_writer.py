"""The process that writes checkpoint parts: `python -m perseid.worker.part_writer`.

One order a line on its standard input, one answer a line on its standard output. It ends, in the
middle of a part if need be, when its input does.
"""

from __future__ import annotations

import base64
import os
import queue
import sys
import threading
from functools import cache

import orjson

from perseid.errors import PerseidError, RetryableError, describe, parse
from perseid.state.files import LocalFiles
from perseid.state.store import Store, open_store
from perseid.topics import codec
from perseid.topics.records import PartDone
from perseid.worker.parts import PartOrder, make

NICE = 19  # what the epochs leave; 10, a tenth of a core, made them wait (README)


def request(store: str, order: PartOrder) -> bytes:
    """An order as a line."""
    return orjson.dumps([store, order.encode().decode()]) + b"\n"


def answered(line: bytes) -> PartDone:
    """What a line of the writer says. When the part failed, its error, or RetryableError."""
    done, error = orjson.loads(line)
    if error is not None:
        raise parse(error) or RetryableError(error)
    record = codec.decode(base64.b64decode(done))
    assert isinstance(record, PartDone)
    return record


def main() -> None:
    os.nice(NICE)
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        sys.stdout.buffer.write(_answer(lines.get()))
        sys.stdout.buffer.flush()


def _read(lines: queue.Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _answer(line: bytes) -> bytes:
    store, order = orjson.loads(line)
    try:
        done = make(PartOrder.decode(order.encode()), LocalFiles(mapped=True), _store(store))
    except PerseidError as error:
        return orjson.dumps([None, describe(error)]) + b"\n"
    except Exception as error:  # whatever it is, who waits for the part has to hear of it
        return orjson.dumps([None, f"{type(error).__name__}: {error}"]) + b"\n"
    return orjson.dumps([base64.b64encode(codec.encode(done)).decode(), None]) + b"\n"


@cache
def _store(uri: str) -> Store:
    return open_store(uri)


if __name__ == "__main__":
    main()
