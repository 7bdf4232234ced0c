"""Calls a user's operator and reports its errors to the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perseid.errors import (
    BadInputError,
    PermanentError,
    PerseidError,
    RetryableError,
    UnexpectedError,
)
from perseid.errors.texts import QUOTED_MAX, cut, kind_of, named
from perseid.errors.untyped import is_lost
from perseid.jobs.model.problems import raised_at
from perseid.jobs.operator import as_table, ends_epochs
from perseid.state.primitives.timers import due_of
from perseid.worker.dead_letters.poison import Raised, guarded

if TYPE_CHECKING:
    from perseid.jobs.operator import Emitter, Operator
    from perseid.state.primitives.primitive import Primitive
    from perseid.topics.records import Token
    from perseid.worker.dead_letters.places import Places
    from perseid.worker.dead_letters.poison import Sieve

# errors name the row, and `poison` removes its values from the text
OF_ROWS = ("process", "combine")
LEFT_OUT = "its text is left out, since it may quote rows or the state"


def call(
    operator: Operator,
    token: Token,
    inputs: dict[str, pa.Table],
    out: Emitter,
    live: Mapping[str, Primitive] | None = None,
) -> None:
    """Runs `on_timer` for due timers, `process` if there are rows, and `on_epoch_end`.

    Timers come first, since the token's watermark precedes its rows. `live` is the operator's
    state. A single input named "input" is passed as a table. An operator without work is not
    entered.

    Raises:
        PermanentError: the user's code raised; the text has its traceback.
        RetryableError: a service that it calls is unavailable, or memory was short
            (UnexpectedError).
    """
    rows = any(table.num_rows for table in inputs.values())
    ends = ends_epochs(type(operator))
    due = due_of(live or {}, token.watermark_ms, token.time_ms)
    if rows or ends or due:
        _enter(operator, token)
    for timers in due:
        _run(operator, token.epoch, "on_timer", timers, out)
    if rows:
        argument = inputs["input"] if set(inputs) == {"input"} else inputs
        _run(operator, token.epoch, "process", argument, out)
    if ends:
        _run(operator, token.epoch, "on_epoch_end", out)


def combine(
    made: Callable[[], Operator],
    token: Token,
    table: pa.Table,
    sieve: Sieve | None = None,
    places: Places | None = None,
) -> tuple[pa.Table, pa.Table | None]:
    """Runs the combiner for one producing task: the combined rows, and dead letters.

    The table has no columns if there are no rows. `made` gives a new instance: when the combiner
    raises, it runs again on prefixes of the rows. `sieve`: of an operator that bisects; `places`:
    of the rows, if a source is read in the same task.

    Raises:
        PermanentError: the user's code raised; the text also names the row.
        BadInputError: it returned something other than rows.
    """
    found: Any = pa.table({})
    operator: Operator | None = None

    def attempt(inputs: dict[str, pa.Table]) -> None:
        nonlocal found, operator
        found = pa.table({})
        if inputs["input"].num_rows:  # it is not called without rows
            operator = made()
            _enter(operator, token)
            found = _run(operator, token.epoch, "combine", inputs["input"])

    letters = guarded(attempt, {"input": table}, sieve, places)
    if operator is None:
        return found, letters
    returned = f"{who(operator)}, epoch {token.epoch}: combine returned"
    return as_table(found, returned, "end it with `return table`"), letters


def rescale(operator: Operator, old: list[Operator], epoch: int) -> None:
    """Passes `operator` the old partitions at the end of `epoch`, for state without a key."""
    _run(operator, epoch, "rescale", old)


def migrate(operator: Operator, old: dict[str, pa.Table], epoch: int) -> dict[str, pa.Table]:
    """Converts the state `old` of the end of `epoch`, by primitive, for this revision."""
    found: dict[str, pa.Table] = _run(operator, epoch, "migrate", old)
    return found


def _enter(operator: Operator, token: Token) -> None:
    operator.enter(token.epoch, token.time_ms, token.watermark_ms)


def _run(operator: Operator, epoch: int, method: str, *arguments: Any) -> Any:
    try:
        return getattr(operator, method)(*arguments)
    except PerseidError as error:
        kind = type(error)
        if kind not in (BadInputError, PermanentError):
            raise
        # Raised by a primitive or the library, which do not know the place, or by the user's code.
        raise kind(f"{who(operator)}, epoch {epoch}: {error}") from error
    except BaseException as error:  # SystemExit, too: signals end the process (`sticky_workers`)
        raised = _as_error(operator, epoch, method, error)
        if method in OF_ROWS and isinstance(raised, Raised):
            raise raised from error
        raise raised from None  # or a trace would quote the error


def _as_error(operator: Operator, epoch: int, method: str, error: BaseException) -> PerseidError:
    before = f"{who(operator)}, epoch {epoch}: {method} raised "
    trace = cut(raised_at(error), QUOTED_MAX)
    if is_lost(error):
        return RetryableError(
            f"{before}{kind_of(error)}: what it asks is away ({LEFT_OUT})\n{trace}"
        )
    if isinstance(error, MemoryError):
        return UnexpectedError(f"{before}{kind_of(error)}\n{trace}")
    after = (
        f"\n{trace}The job is stopped and its state is kept; correct the operator and "
        "`perseid jobs apply` it again"
    )
    if method in OF_ROWS:
        return Raised(before, named(error), after)
    return PermanentError(f"{before}{kind_of(error)} ({LEFT_OUT}){after}")


def who(operator: Operator) -> str:
    """The operator partition, for messages."""
    kind = type(operator).__name__
    return f"operator {operator.name} ({kind}), partition {operator.partition}"
