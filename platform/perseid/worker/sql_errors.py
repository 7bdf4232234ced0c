"""An operator's SQL that raises: told without the record on which it did. Pure.

Spark's own words quote the value that it could not cast. Of them only the condition, the SQLSTATE
and the place in the query are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from perseid.errors import BadInputError, PermanentError, parse

# SQLSTATE class 22, data exceptions, and what raise_error raises: of the record and the query
# alone, so they come again. Everything else may pass.
STATES = r"SQLSTATE: (22\w{3}|P0001)"
_OF_DATA = re.compile(rf"\[([A-Z][A-Z0-9_.]*)\](?:(?!SQLSTATE: ).)*{STATES}", re.DOTALL)
_PLACE = re.compile(r"== SQL \((?P<place>line \d+, position \d+)\) ==\n(?P<line>[^\n]*)")
_CUT = "..."  # Spark shortens a long line at both ends


def on_data(text: str, queries: Mapping[str, str], epoch: int) -> PermanentError | None:
    """What to tell of an epoch that ended with `text`; None unless a record made it.

    `queries`: those of the job by operator.
    """
    found = _OF_DATA.search(text)
    if found is None or not queries or parse(text) is not None:
        return None
    place = _PLACE.search(text, found.end())
    names = _operators(place["line"] if place is not None else "", queries)
    where = f" at {place['place']}" if place is not None else ""
    return PermanentError(
        f"operator {' or '.join(names)}: its SQL raised {found[1]} (SQLSTATE "
        f"{found[2]}){where}, on a record of epoch {epoch} (what it says is left out). "
        "Expected a query with an answer for every record: write try_cast, try_divide, try_add or "
        "try_element_at, which give NULL, or CASE WHEN. The job is stopped and its state is kept; "
        "correct the query and `perseid jobs apply` it again"
    )


def of_query(operator: str, text: str) -> BadInputError:
    """The error for a query that Spark cannot parse or resolve, in which case it read nothing."""
    said = text.strip().partition("\n")[0].rstrip(".; ")
    return BadInputError(
        f"SQL of operator {operator}: {said}. Expected a query of the columns of its input; "
        "correct it and `perseid jobs apply` the job again"
    )


def _operators(line: str, queries: Mapping[str, str]) -> list[str]:
    part = line.removeprefix(_CUT).removesuffix(_CUT).strip()
    return [name for name, sql in queries.items() if part and part in sql] or list(queries)
