"""Calling a user's operator, and telling the user when it raises."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.errors import PermanentError, PerseidError

if TYPE_CHECKING:
    from perseid.jobs.operator import Emitter, Operator
    from perseid.topics.records import Token


def call(operator: Operator, token: Token, inputs: dict[str, pa.Table], out: Emitter) -> None:
    """Runs `process` for one epoch. The single input named "input" is passed as a table.

    Raises:
        PermanentError: the user's code raised; the text has its traceback.
    """
    operator.enter(token.epoch, token.time_ms)
    argument = inputs["input"] if set(inputs) == {"input"} else inputs
    try:
        operator.process(argument, out)
    except PerseidError:
        raise
    except Exception as error:
        raise PermanentError(_told(operator, token, "process", error)) from error


def combine(operator: Operator, token: Token, table: pa.Table) -> pa.Table:
    """Runs the combiner for one producing task; PermanentError when the user's code raised."""
    operator.enter(token.epoch, token.time_ms)
    try:
        found = operator.combine(table)
    except PerseidError:
        raise
    except Exception as error:
        raise PermanentError(_told(operator, token, "combine", error)) from error
    return pa.Table.from_batches([found]) if isinstance(found, pa.RecordBatch) else found


def _told(operator: Operator, token: Token, method: str, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    where = "".join(traceback.format_list(frames)).rstrip()
    who = f"operator {operator.name} ({type(operator).__name__}), partition {operator.partition}"
    return (
        f"{who}, epoch {token.epoch}: {method} raised {type(error).__name__}: {error}\n{where}\n"
        "The job is stopped and its state is kept; correct the operator and "
        "`perseid jobs apply` it again"
    )
