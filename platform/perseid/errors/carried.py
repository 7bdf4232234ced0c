"""A perseid error's way from a Spark task to the driver, inside another exception's text. Pure.

Only text gets to the driver, and the text also has data: an exception quotes records, and a record
may contain anything, including this mark. So the mark has a random token, new for each life of a
fragment, that no data can contain; after it, kind and text are one line of JSON.
"""

from __future__ import annotations

import json
from typing import Any

from perseid.errors import (
    BadInputError,
    DamagedFile,
    FencedError,
    InputChanged,
    LedgerGap,
    PermanentError,
    PerseidError,
    ProcessDied,
    RefusedError,
    RetryableError,
    TransientAnswer,
    UndecidedTransaction,
    UnexpectedError,
    UsageError,
)
from perseid.errors.texts import cut, text_of

_KINDS: dict[str, type[PerseidError]] = {
    c.__name__: c
    for c in (
        RetryableError, ProcessDied, TransientAnswer, UndecidedTransaction, UnexpectedError,
        FencedError, PermanentError, BadInputError, UsageError, RefusedError, LedgerGap,
        DamagedFile, InputChanged,
    )
}  # fmt: skip


def describe(error: PerseidError, token: str) -> str:
    """The error as one line of ASCII that `parse` finds inside a stack trace."""
    return f"{_mark(token)}{json.dumps([known_kind(error), cut(text_of(error))])}"


def parse(text: str, token: str) -> PerseidError | None:
    """The error that `describe` wrote into `text` with the same token, or None."""
    _, mark, rest = text.partition(_mark(token))
    if not mark:
        return None
    try:
        kind, text = json.JSONDecoder().raw_decode(rest)[0]
    except ValueError:  # the text was cut
        return None
    return made(kind, text)


def known_kind(error: PerseidError) -> str:
    """The nearest class of the tree that `made` can make from a text alone."""
    return next(c.__name__ for c in (*type(error).__mro__, PermanentError) if c.__name__ in _KINDS)


def made(kind: Any, text: str) -> PerseidError:
    """The error of that kind; classes with fields of their own arrive as their base class."""
    return _KINDS[kind](text)


def _mark(token: str) -> str:
    return f"perseid-error-{token}: "
