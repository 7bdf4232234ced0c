"""Mistakes in a job file, with messages that explain how to correct them."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

from perseid.errors import BadInputError, RefusedError

FOUND_CHARS_MAX = 60  # of a value that is quoted in a message; a megabyte would hide the message


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake. `refused`: the file is well-formed, but requests an unsupported feature."""

    file: str
    line: int
    text: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


class JobFileErrors(BadInputError):
    """All mistakes in a job's files, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


class JobFileRefused(RefusedError):
    """A well-formed job file that requests unsupported features, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


def shown(value: object) -> str:
    """`value` as a message quotes it: on one line, escaped, not too long."""
    text = repr(value)
    return text if len(text) <= FOUND_CHARS_MAX else text[: FOUND_CHARS_MAX - 3] + "..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to `word`, or None."""
    folded = {k.lower().replace("_", "").replace("-", ""): k for k in known}
    plain = word[:100].lower().replace("_", "").replace("-", "")
    found = difflib.get_close_matches(plain, folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def listed(words: Iterable[str]) -> str:
    """Names in a message: all of a few, the first of many."""
    names = sorted(words)
    if not names:
        return "none"
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def raised_at(error: BaseException) -> str:
    """The lines of code that raised `error`, without the frame that caught it."""
    return "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[1:]))
