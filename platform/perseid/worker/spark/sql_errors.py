"""Errors that an operator's SQL raises, without the record that caused them. Pure.

Spark's message quotes the value that it could not cast. Only the condition, the SQLSTATE and the
place in the query are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perseid.errors import BadInputError, PermanentError
from perseid.errors.carried import parse
from perseid.errors.texts import QUOTED_MAX, cut

# SQLSTATE class 22 (data exceptions), features that Spark lacks (0A000) or has changed (42K0B), and
# raise_error (P0001): they depend on the record and the query alone, so a retry raises them again.
# All other errors may be transient.
_STATE = "SQLSTATE: "
STATES = rf"{_STATE}(22\w{{3}}|0A000|42K0B|P0001)"
_OF_DATA = re.compile(STATES)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]*)\]")
_PLACE = re.compile(r"== SQL \((?P<place>line \d+, position \d+)\) ==\n(?P<line>[^\n]*)")
_CUT = "..."  # Spark shortens a long line at both ends


def on_data(text: str, queries: Mapping[str, str], epoch: int, token: str) -> PermanentError | None:
    """The error of an epoch that ended with `text`; None unless a record caused it.

    `queries`: those of the job by operator. `token`: marks the errors of the fragment's tasks.
    """
    if not queries or parse(text, token) is not None:
        return None
    found = next(_conditions(text), None)
    if found is None:
        return None
    condition, state, end = found
    place = _PLACE.search(text, end)
    names = _operators(place["line"] if place is not None else "", queries)
    where = f" at {place['place']}" if place is not None else ""
    return PermanentError(
        f"operator {' or '.join(names)}: its SQL raised {condition} (SQLSTATE "
        f"{state}){where}, on a record of epoch {epoch} (its text is left out). "
        "Expected a query with an answer for every record: write try_cast, try_divide, try_add or "
        "try_element_at, which give NULL, or CASE WHEN. The job is stopped and its state is kept; "
        "correct the query and `perseid jobs apply` it again"
    )


def of_query(operator: str, text: str) -> BadInputError:
    """The error for a query that Spark cannot parse or resolve; Spark has read no data then."""
    reason = cut(text.strip().partition("\n")[0].rstrip(".; "), QUOTED_MAX)
    return BadInputError(
        f"SQL of operator {operator}: {reason}. Expected a query of the columns of its input; "
        "correct it and `perseid jobs apply` the job again"
    )


def _conditions(text: str) -> Iterator[tuple[str, str, int]]:
    """Condition, SQLSTATE and its end position of each data error, in one pass."""
    for found in _OF_DATA.finditer(text):
        before = text.rfind(_STATE, 0, found.start())  # end of the preceding condition, if any
        condition = _CONDITION.search(text, max(before, 0), found.start())
        if condition is not None:
            yield condition[1], found[1], found.end()


def _operators(line: str, queries: Mapping[str, str]) -> list[str]:
    part = line.removeprefix(_CUT).removesuffix(_CUT).strip()
    return [name for name, sql in queries.items() if part and part in sql] or list(queries)
