"""Around a `FragmentLife` in a unit test: a token log, a host that never waits, what is reported.

A test's world adds what it restores, runs and reads; it is runtime, host, log and topics in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perseid.engine.fragment import at_once
from perseid.errors import PerseidError
from perseid.topics import codec
from perseid.topics.log import Entry
from perseid.topics.records import Begin, ProgressRecord, TokenRecord

FIRST = 1  # the offset of the Begin


class Around:
    """See the module docstring. The token log begins with a Begin of epoch `base`."""

    stopping = False

    def __init__(self, base: int) -> None:
        self.records: list[TokenRecord] = [Begin(1, "u", base)]
        self.reported: list[ProgressRecord] = []
        self.tokens = self.topics = self

    # Token log

    def ends(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, len(self.records) + FIRST)

    def read_range(self, _t: str, _p: int, start: int, end: int, **_: Any) -> list[Entry]:
        found = list(enumerate(self.records, FIRST))
        return [Entry(at, codec.encode(r), 0) for at, r in found if start <= at < end]

    # Runtime

    def now_s(self) -> float:
        return 0.0

    def fence(self) -> None: ...

    def prepare(self, _base_offset: int) -> Callable[[], None]:
        return lambda: None

    def begin(self, *_: object) -> None: ...

    def after(self, _order: Any) -> None: ...

    def take_over_orders(self) -> None: ...

    # Host

    def wait(self, _seconds: float) -> bool:
        return True

    meanwhile = staticmethod(at_once)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        yield self

    def classified(self, error: BaseException) -> PerseidError:
        if isinstance(error, PerseidError):
            return error
        raise error

    # Progress

    def append(self, record: ProgressRecord) -> int:
        self.reported.append(record)
        return len(self.reported)
