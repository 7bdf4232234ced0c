"""One producer for all jobs, and another where a broker does not take what one of them appends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from perseid.coordinator.loading import SharedWriter
from perseid.errors import RetryableError
from perseid.testing.wait import until

LIMIT_S = 20.0


class Writer:
    """Its append to `stuck` lasts until `abandoned`, and fails."""

    aborted: Event

    def __init__(self, made: list[Writer]) -> None:
        self.topics: list[str] = []
        self.closed = False
        made.append(self)

    def append(self, topic: str, partition: int, value: bytes) -> int:
        self.topics.append(topic)
        if topic == "stuck":
            assert self.aborted.wait(LIMIT_S)
            raise RetryableError("append was not acknowledged")
        return len(self.topics)

    def close(self) -> None:
        self.closed = True


def test_an_append_that_is_not_acknowledged_holds_up_no_other_job() -> None:
    made = list[Writer]()
    Writer.aborted = Event()
    shared = SharedWriter(lambda: Writer(made), patience_s=0.01)
    shared.append("tokens", 0, b"")
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(shared.append, "stuck", 0, b"")
        try:
            until(lambda: "stuck" in made[0].topics, LIMIT_S, "the append that hangs")
            shared.append("tokens", 0, b"")
        finally:
            Writer.aborted.set()
        with pytest.raises(RetryableError):
            stuck.result(LIMIT_S)
    shared.append("tokens", 0, b"")
    assert [one.topics for one in made] == [["tokens", "stuck"], ["tokens", "tokens"]]
    shared.close()
    assert all(one.closed for one in made)


def test_while_all_goes_well_there_is_one() -> None:
    made = list[Writer]()
    shared = SharedWriter(lambda: Writer(made))
    with ThreadPoolExecutor(4) as pool:
        offsets = list(pool.map(lambda _: shared.append("tokens", 0, b""), range(100)))
    assert sorted(offsets) == list(range(1, 101))
    assert len(made) == 1
