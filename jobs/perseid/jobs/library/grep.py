r"""Rows whose column matches a pattern: `Grep`.

    errors: {input: lines, use: "library:Grep", with: {column: value, pattern: "(?i)error|fatal"}}

Keeps each row in which the regular expression is found anywhere in the string column; with `invert:
true` each row in which it is not. A null matches neither way. No state, no key.

Patterns are RE2's (https://github.com/google/re2/wiki/Syntax), which Arrow uses: matching takes
time proportional to the text for every pattern. Validation refuses patterns that RE2 does not have,
such as `(a)\1` or `(?=a)`, and repetitions that would need much memory. `\w`, `\d` and `\b` match
ASCII only; letters of all scripts are `\pL`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.model.problems import shown
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among

EXAMPLES = {"column": "value", "pattern": '"error|fatal"', "invert": "true"}


def grep(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `column` and `pattern`, and `invert`."""
    given = Parameters(spec, "Grep", EXAMPLES)
    if spec.key:
        raise BadInputError(
            "library:Grep: has a key, expected none: it looks at each row by itself, and a shuffle "
            "would be for nothing; remove the line `key:`"
        )
    column = given.column("column")
    pattern = given.text("pattern")
    invert = given.flag("invert")
    _check(pattern)

    class Grep(Operator):
        """The rows that match."""

        metadata = metadata_among([column])

        def process(self, batch: pa.Table, out: Emitter) -> None:
            kind = batch.schema.field(column).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise BadInputError(
                    f"library:Grep: column {column!r} is of type {kind}, expected a string; "
                    "cast it in the operator before"
                )
            found = pc.match_substring_regex(batch[column], pattern)
            out.emit(batch.filter(pc.invert(found) if invert else found))

    return Grep


def _check(pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise BadInputError(
            f"library:Grep: with.pattern is {shown(pattern)}, which RE2 does not take ({error}); "
            "write it without look-around and back-references, and with smaller repetitions"
        ) from None
