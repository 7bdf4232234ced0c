"""What a fragment fences and reads of the job's ledger: its own partitions alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from perseid.errors import FencedError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import Assignment, Plan
from perseid.topics.ledger import Each
from perseid.topics.records import LedgerRecord
from perseid.worker.sink.committed import committed_epochs

LAYOUT = Layout(3, (
    Task(0, "a", 0, 1, stateful=True, ledger=None), Task(1, "a", 1, 1, stateful=True, ledger=None),
    Task(2, "b", 0, 2, stateful=True, ledger=0), Task(3, "b", 1, 2, stateful=True, ledger=1),
))  # fmt: skip


class Cluster:
    """Transactions and ledger. `committed`: by ledger partition, generation and epoch."""

    def __init__(self, committed: dict[int, tuple[int, int]]) -> None:
        self.committed = committed
        self.fenced: list[str] = []
        self.read: list[int] = []

    def prepare(self, *_: object) -> None: ...

    def acquire(self, name: str, *_: object) -> Cluster:
        self.fenced.append(name)
        return self

    def close(self) -> None: ...

    def last_of(
        self, _job: str, _uuid: str, partitions: Iterable[int], *, timeout_s: float, each: Each
    ) -> dict[int, LedgerRecord | None]:
        self.read += partitions
        return {p: self._last(p) for p in self.read}

    def _last(self, partition: int) -> LedgerRecord | None:
        if partition not in self.committed:
            return None
        generation, epoch = self.committed[partition]
        return LedgerRecord("u", 3, "b", partition, generation, epoch, 0, ())

    def of(self, *gids: int, generation: int = 5) -> dict[int, int]:
        """What the fragment finds that has these operator partitions."""
        own = Assignment("0", gids, "w1-a", generation, split=0)
        plan = Plan("job", "u", generation, "r", "a", 3, 10, 1, (own,))
        both = cast(Any, self)
        return committed_epochs(plan, LAYOUT.part(gids), both, both)


def test_only_its_own_ledger_partitions_are_fenced_and_read() -> None:
    cluster = Cluster({0: (4, 20), 1: (9, 25)})  # the other one is of a newer generation
    assert cluster.of(0, 2) == {2: 20}
    assert (cluster.fenced, cluster.read) == (["perseid.job.3.b.0"], [0])
    with pytest.raises(FencedError, match="generation 9"):
        cluster.of(1, 3)


def test_a_fragment_that_feeds_no_sink_disturbs_no_one() -> None:
    cluster = Cluster({0: (4, 20), 1: (4, 20)})
    assert cluster.of(0, 1) == {}
    assert (cluster.fenced, cluster.read) == ([], [])


def test_a_partition_without_a_record_is_at_the_base() -> None:
    assert Cluster({0: (4, 20)}).of(2, 3) == {2: 20, 3: 10}
