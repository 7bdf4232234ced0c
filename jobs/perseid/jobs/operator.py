"""`Operator`, the base of a user's class, and `Emitter`, to which it writes.

A worker drives an operator in this order:

1. `open` once, before anything else, with its identity and its parameters.
2. `perseid.state.bind` gives it live state, which is then restored.
3. `enter` at every epoch, then `on_timer` if timers are due, then `process` once if there are rows,
   then `on_epoch_end` if the class has one; a combiner is entered and called per split.

The same input in the same epoch must give the same output, in any process: the only clock is `now`
and the only source of randomness is `random`.
"""

# ruff: noqa: A005 - users know it as perseid.jobs.operator; nothing runs as a script in this folder

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from perseid.errors import BadInputError, PermanentError, PerseidError, RetryableError
from perseid.errors.texts import QUOTED_MAX, cut, named
from perseid.errors.untyped import is_lost
from perseid.jobs.model.problems import listed, nearest, raised_at, shown
from perseid.jobs.model.spec import MAIN

METADATA = ("key", "timestamp", "partition", "offset")  # of each record of a source


@dataclass(frozen=True, slots=True)
class Identity:
    """Which operator partition of which job an instance is."""

    job: str
    operator: str
    partition: int
    parallelism: int


class Emitter:
    """Takes an operator's outputs of one epoch, each in order."""

    def __init__(
        self,
        operator: str,
        output: pa.Schema | None = None,
        outputs: Mapping[str, pa.Schema] | None = None,
    ) -> None:
        self._operator = operator
        self._declared: dict[str, pa.Schema | None] = {MAIN: output, **(outputs or {})}
        self._tables: dict[str, list[pa.Table]] = {name: [] for name in self._declared}

    def emit(self, rows: pa.Table | pa.RecordBatch, to: str = MAIN) -> None:
        """Adds rows to the main output, or to another that the class declares in `outputs`.

        All rows of an output have the same columns.
        """
        rows = as_table(
            rows, f"operator {self._operator} emitted", "write `out.emit(pa.table({...}))`"
        )
        if to not in self._tables:
            raise BadInputError(
                f"operator {self._operator} emitted to {shown(to)}, which is none of its outputs "
                f"({listed(self._tables)}); {_remedy(to, self._tables)}"
            )
        self._tables[to].append(self._conform(rows, to))

    def emitted(self, to: str) -> Sequence[pa.Table]:
        """The tables emitted to an output so far."""
        return self._tables[to]

    def tables(self) -> dict[str, pa.Table]:
        """Returns everything emitted, by output, and empties the emitter.

        If nothing was emitted: no rows of the declared columns, no columns without a declaration.
        """
        found = {
            name: pa.concat_tables(tables) if tables else _empty(self._declared[name])
            for name, tables in self._tables.items()
        }
        self._tables = {name: [] for name in self._declared}
        return found

    def _conform(self, rows: pa.Table, to: str) -> pa.Table:
        declared, before = self._declared[to], self._tables[to]
        expected = declared or (before[0].schema if before else None)
        if expected is None or rows.schema.equals(expected):
            return rows
        try:
            return rows.select(expected.names).cast(expected)
        except (KeyError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            verb = "declares" if declared is not None else "first emitted"
            where = "" if to == MAIN else f" to {to}"
            raise BadInputError(
                f"operator {self._operator} emitted{where} columns {_columns(rows.schema)}, but it "
                f"{verb} {_columns(expected)}: {error}; emit the same columns every time"
            ) from None


class Operator:
    """One operator partition.

    `output` declares the emitted columns. It is checked if declared, and required if a SQL operator
    or one with several inputs reads them, since these need the columns in an epoch without rows.
    `outputs` declares further outputs by name, each with its columns: `out.emit(rows, to="late")`
    writes to one, and `input: OPERATOR.late` reads it. `now` is the token's time and `watermark`
    the event time up to which all rows have arrived (None without event time), both in milliseconds
    since 1970 (UTC) and from the token, so that replays agree.
    """

    output: ClassVar[pa.Schema | None] = None
    outputs: ClassVar[Mapping[str, pa.Schema]] = {}
    # The metadata that the operator reads of a source besides its value columns. Each costs reading
    # speed and is shuffled, so name only what is used: `metadata = ()` for none.
    metadata: ClassVar[tuple[str, ...]] = METADATA
    # Whether it waits for the watermark: a job without event time is refused then.
    needs_watermark: ClassVar[bool] = False
    # With several inputs: whether output needs rows of all (a join) or of any (a union). The
    # planners of replicas use it; a failure of one input stops all output of a join.
    needs_all_inputs: ClassVar[bool] = True
    # The age of the oldest rows that it needs, in milliseconds, such as a window or a join's
    # distance. Source topics with a shorter retention are refused.
    history_ms: ClassVar[int] = 0

    epoch: int
    now: int
    watermark: int | None
    partition: int
    parallelism: int
    parameters: dict[str, Any]
    _random: Random | None = None

    def combine(self, batch: pa.Table) -> pa.Table:
        """Optional: shrinks one split's input before it is shuffled; must keep the key columns."""
        raise NotImplementedError

    def process(self, batch: Any, out: Emitter) -> None:
        """One partition's whole epoch. With several inputs `batch` is a dict of tables by name."""
        raise NotImplementedError(f"{type(self).__name__} has no method process(self, batch, out)")

    def on_timer(self, due: pa.Table, out: Emitter) -> None:
        """Optional: the timers that are due, by time, before the epoch's rows.

        Columns: the key, `at`, and `timer`, the name of the `Timers`. A timer that is set to a past
        time is due in the next epoch.
        """
        raise NotImplementedError

    def on_epoch_end(self, out: Emitter) -> None:
        """Optional: once per epoch after `process`, also in epochs without rows.

        An idle job has an epoch every 10 s.
        """
        raise NotImplementedError

    def rescale(self, old: Sequence[Any]) -> None:
        """Optional: sets the state that has no key, when the operator's parallelism changed.

        `old` are the operator's previous partitions, instances of this class with all of their
        state. State kept by the operator's key is already redistributed.
        """
        raise NotImplementedError

    def migrate(self, old: dict[str, pa.Table]) -> dict[str, pa.Table]:
        """Optional: rows for this revision's primitives, from those of the previous revision.

        `old` has the rows of each primitive by name. The result must name primitives whose columns
        changed and may name new ones (the others start empty); undeclared ones are dropped. A pure
        function of `old`, called once per partition when a revision with other primitives takes
        over, and again after a crash. Rows keep the operator's key, which determines their
        partition.
        """
        raise NotImplementedError

    def open(self, identity: Identity, parameters: dict[str, Any]) -> None:
        """Called once by the worker, before state is bound."""
        self._identity = identity
        self.partition, self.parallelism = identity.partition, identity.parallelism
        self.parameters = parameters
        self.enter(0, 0)

    @property
    def name(self) -> str:
        """The operator's name in job.yaml."""
        return self._identity.operator

    def enter(self, epoch: int, now_ms: int, watermark_ms: int | None = None) -> None:
        """Called by the worker before anything else of an epoch."""
        self.epoch, self.now, self.watermark = epoch, now_ms, watermark_ms
        self._random = None

    @property
    def random(self) -> Random:
        """A random generator, equal in every process that runs this epoch of this partition."""
        if self._random is None:  # seeding takes longer than a small epoch
            self._random = seeded(self._identity, self.epoch)
        return self._random


def outputs_of(operator: type[Operator]) -> dict[str, pa.Schema | None]:
    """The columns of each output of the class; None for a main output without a declaration."""
    return {MAIN: operator.output, **operator.outputs}


def metadata_among(columns: Collection[str | None]) -> tuple[str, ...]:
    """The metadata columns that an operator reads if it reads `columns`."""
    return tuple(name for name in METADATA if name in columns)


def as_table(rows: Any, who: str, remedy: str) -> pa.Table:
    """`rows` of a user's code as a table; BadInputError for other values. `who`: with the verb."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        raise BadInputError(
            f"{who} a {type(rows).__name__}, expected a pyarrow Table or RecordBatch; {remedy}"
        )
    return rows


def opened(kind: type[Operator], identity: Identity, parameters: Mapping[str, Any]) -> Operator:
    """A new instance with its identity; its state is still to be bound.

    Raises:
        PermanentError: the user's `__init__` or `open` raised, and will again.
        RetryableError: a service that it uses is unavailable.
    """
    try:
        operator = kind()
        operator.open(identity, dict(parameters))
    except PerseidError:
        raise
    except BaseException as error:  # SystemExit, too
        quote = cut(named(error), QUOTED_MAX)
        message = (
            f"operator {identity.operator} ({kind.__name__}), partition {identity.partition}: it "
            f"cannot be opened: {quote}\n{cut(raised_at(error), QUOTED_MAX)}"
        )
        if is_lost(error):
            raise RetryableError(f"{message}What it asks is away, so it is opened again") from error
        raise PermanentError(
            f"{message}Expected `open(self, identity, parameters)` to end well with the job's "
            "`with:`. Correct the class or `with:` and `perseid jobs apply` it again"
        ) from error
    return operator


def seeded(identity: Identity, epoch: int) -> Random:
    """The same numbers for the same operator partition and epoch in every process."""
    text = f"{identity.job}/{identity.operator}/{identity.partition}/{epoch}"
    return Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def combines(operator: type[Operator]) -> bool:
    """Whether the class has a combiner of its own."""
    return operator.combine is not Operator.combine


def ends_epochs(operator: type[Operator]) -> bool:
    """Whether the class is to be called in every epoch."""
    return operator.on_epoch_end is not Operator.on_epoch_end


def rescales(operator: type[Operator]) -> bool:
    """Whether the class redistributes its state without a key under another parallelism."""
    return operator.rescale is not Operator.rescale


def migrates(operator: type[Operator]) -> bool:
    """Whether the class takes over state of other primitives."""
    return operator.migrate is not Operator.migrate


def takes_timers(operator: type[Operator]) -> bool:
    """Whether the class has a method for timers."""
    return operator.on_timer is not Operator.on_timer


def _empty(schema: pa.Schema | None) -> pa.Table:
    return pa.table({}) if schema is None else schema.empty_table()


def _remedy(name: str, known: Collection[str]) -> str:
    close = nearest(str(name), known)
    write = f'write `to="{close}"`, or declare' if close else "declare"
    return f"{write} it in the class: `outputs = {{{name!r}: pa.schema([...])}}`"


def _columns(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"
