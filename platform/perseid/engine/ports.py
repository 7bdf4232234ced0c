"""The ports of an epoch's steps: what a process provides to the operator partitions it runs.

Executors are Spark's tasks (`perseid.worker.epoch.tasks`) and the processes of the simulation
(`perseid.testing.simulation.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import Made
    from perseid.jobs.model.layout import Layout, Task
    from perseid.jobs.model.spec import JobSpec, SinkSpec
    from perseid.jobs.operator import Emitter, Operator
    from perseid.state.durability.log import StateLog
    from perseid.topics.records import Token
    from perseid.topics.transactions import SinkBatch

T = TypeVar("T")


class Addressed(Protocol):
    """A row of an edge. `target`: the gid of its consumer, or below 0."""

    @property
    def target(self) -> int: ...


R = TypeVar("R", bound=Addressed)


class Result(Protocol):
    """What an operator partition has made of an epoch (`partition_state.EpochResult`)."""

    @property
    def outputs(self) -> dict[str, pa.Table]: ...
    @property
    def letters(self) -> pa.Table | None: ...
    @property
    def changed_bytes(self) -> int: ...


class State(Protocol):
    """The resident state of a keyed operator partition (`partition_state.PartitionState`)."""

    operator: Operator
    log: StateLog
    epoch: int | None

    @property
    def rows(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...

    def run(
        self, token: Token, token_offset: int, generation: int, inputs: dict[str, pa.Table],
        out: Emitter, others: pa.Table | None, /,
    ) -> Result:  # fmt: skip
        """Once it returns, the state log has the epoch: the commit point."""
        ...

    def ordered(
        self, job: str, generation: int, epoch: int, token_offset: int,
        base: tuple[str, int] | None, /,
    ) -> tuple[Any, Any]:  # fmt: skip
        """The order for a checkpoint's part, a dataclass, and a copy of the state or None."""
        ...

    def bring_to(self, epoch: int, /) -> None: ...
    def check_retained(self, base_epoch: int, /) -> None: ...


class Sink(Protocol):
    """The sinks of one operator partition (`sink.transaction.SinkSession`)."""

    def prepare(self) -> None: ...
    def close(self) -> None: ...

    def commit(
        self, epoch: int, token_offset: int, generation: int, batches: Sequence[SinkBatch], /,
        *, checkpoint: bool,
    ) -> object:  # fmt: skip
        """Writes the epoch exactly once, with its ledger record. `checkpoint`: as the token has."""
        ...

    def compare(self, epoch: int, batches: Sequence[SinkBatch], /) -> tuple[Made, ...]:
        """What `commit` would write, by topic partition; acquires and sends nothing."""
        ...


class Submit(Protocol):
    """Begins work, perhaps in another thread; the returned function waits for its result."""

    def __call__(self, work: Callable[[], T], /) -> Callable[[], T]: ...


class Executor(Protocol[R]):
    """One process and one fragment. All methods but `commits`' work run in the task's thread."""

    job: str
    layout: Layout
    base_epoch: int

    @property
    def spec(self) -> JobSpec: ...

    def begin(self, order: EpochOrder) -> None:
        """Before a task's first partition.

        Takes over the checkpoint orders of dead processes. RetryableError when an upload of this
        life has found a damaged log.
        """
        ...

    def about(self, task: Task, order: EpochOrder) -> AbstractContextManager[object]:
        """Names the partition in log entries and errors of the block."""
        ...

    def now_s(self) -> float:
        """For durations."""
        ...

    def new_state(self, task: Task) -> State: ...
    def new_sink(self, task: Task) -> Sink: ...

    def tables(
        self, task: Task, order: EpochOrder, names: tuple[str, ...], rows: list[R]
    ) -> dict[str, pa.Table]:
        """The rows of one partition by input name. RetryableError unless every set is whole."""
        ...

    def downstream(
        self, task: Task, order: EpochOrder, outputs: Mapping[str, pa.Table]
    ) -> Iterable[R]:
        """A keyed operator's outputs as rows for the following levels."""
        ...

    def refusals(self, letters: pa.Table) -> int:
        """How many of the dead letters operators have refused; the others are of sources."""
        ...

    def letter_batch(self, order: EpochOrder, topic: str, letters: pa.Table) -> SinkBatch: ...

    def batch(self, task: Task, order: EpochOrder, sink: SinkSpec, rows: pa.Table) -> SinkBatch: ...

    def commits(self) -> AbstractContextManager[Submit]:
        """Where transactions are committed; at the block's end all that were begun have ended."""
        ...

    def collect(self, task: Task, log: StateLog, epoch: int) -> None:
        """Drops from the log, soon, what the complete checkpoint of `epoch` covers."""
        ...

    def forget_layouts(self) -> None:
        """Deletes this host's logs of the job's earlier layouts."""
        ...

    def upload(self, part: Any, copy: Any) -> None:
        """Notes the order for a part, and begins to upload it (`State.ordered`)."""
        ...

    def fold(self, part: Any, copy: Any) -> None:
        """Begins to bound a replica's state log, as a part's order would; makes no part."""
        ...
