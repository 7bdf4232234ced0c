"""What a user may write in `with:`: read one by one, each mistake with what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs import units
from perseid.jobs.library.totals import key_types, only
from perseid.jobs.problems import listed, shown
from perseid.jobs.spec import OperatorSpec


@dataclass(frozen=True)
class Parameters:
    """`with:` of one use of `library:name`; each reader raises BadInputError."""

    spec: OperatorSpec
    name: str
    known: frozenset[str] = field(default=frozenset())

    def types(self, *more: str) -> dict[str, pa.DataType]:
        """Key columns and the columns `more` with their types; refuses unknown parameters."""
        return key_types(self.spec, self.name, set(self.known), more)

    def no_types(self) -> None:
        """Refuses unknown parameters, `types` among them."""
        only(self.spec, self.name, set(self.known))

    def has(self, parameter: str) -> bool:
        return parameter in self.spec.with_

    def text(self, parameter: str, meaning: str, example: str) -> str:
        """A text that must be there: a column, a pattern."""
        found = self.spec.with_.get(parameter)
        if not isinstance(found, str) or not found:
            raise self.wrong(parameter, meaning, example)
        return found

    def columns(self, parameter: str, meaning: str, example: str) -> tuple[str, ...]:
        """One column name or a list of different ones."""
        found = self.spec.with_.get(parameter)
        names = [found] if isinstance(found, str) else found
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) and name for name in names)
            or len(set(names)) < len(names)
        ):
            raise self.wrong(parameter, meaning, example)
        return tuple(names)

    def whole(self, parameter: str, default: int | None, low: int, high: int) -> int:
        """A whole number from `low` to `high`; without a default it must be there."""
        found = self.spec.with_.get(parameter, default)
        if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
            example = str(low if default is None else default)
            raise self.wrong(parameter, f"a whole number from {low} to {high}", example)
        return found

    def number(self, parameter: str, default: float | None, low: float, high: float) -> float:
        """A number above `low` and up to `high`."""
        found = self.spec.with_.get(parameter, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not low < found <= high:
            example = str(high if default is None else default)
            raise self.wrong(parameter, f"a number above {low:g} and up to {high:g}", example)
        return float(found)

    def flag(self, parameter: str) -> bool:
        """True or false; false when it is not there."""
        found = self.spec.with_.get(parameter, False)
        if not isinstance(found, bool):
            raise self.wrong(parameter, "true or false", "true")
        return found

    def duration_ms(self, parameter: str, example: str) -> int:
        """A duration of a millisecond or more that must be there."""
        try:
            ms = round(units.seconds(self.spec.with_.get(parameter)) * 1000)
        except ValueError as error:
            raise self.wrong(parameter, str(error), f'"{example}"') from None
        if ms < 1:
            raise self.wrong(parameter, "a duration of 1ms or more", f'"{example}"')
        return ms

    def wrong(self, parameter: str, expected: str, example: str) -> BadInputError:
        """The mistake in one parameter."""
        found = self.spec.with_.get(parameter)
        said = f"is {shown(found)}" if self.has(parameter) else "is missing"
        return BadInputError(
            f"library:{self.name}: with.{parameter} {said}, expected {expected}; "
            f"write `{parameter}: {example}`"
        )

    def all_different(self, columns: Iterable[str], emitted: Iterable[str]) -> None:
        """Refuses input columns that come twice or have the name of an emitted one."""
        seen = set(emitted)
        for column in columns:
            if column in seen:
                raise BadInputError(
                    f"library:{self.name}: the column {column!r} would be emitted twice "
                    f"(it emits {listed(seen)} besides); rename it in the operator before"
                )
            seen.add(column)
