"""Reads `with:`: validation checks each parameter, and errors name the wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.model import units
from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.jobs.model.problems import listed, nearest, shown
from perseid.jobs.model.spec import OperatorSpec


def refuse_unknown(given: Iterable[str], name: str, known: Iterable[str]) -> None:
    """BadInputError for a parameter of the operator `name` that is none of `known`."""
    known = list(known)
    for unknown in sorted(set(given) - set(known)):
        close = nearest(unknown, known)
        write = f"; write `{close}`" if close else ""
        raise BadInputError(
            f"library:{name}: found the unknown parameter {shown(unknown)}, expected one of "
            f"{listed(known)}{write}"
        )


class Parameters:
    """`with:` of the library operator `name`. `examples` has every parameter and how to write it.

    Every method raises BadInputError for a wrong value.
    """

    def __init__(self, spec: OperatorSpec, name: str, examples: Mapping[str, str]) -> None:
        self._given, self.name, self._examples = spec.with_, name, examples
        refuse_unknown(self._given, name, examples)

    def __contains__(self, where: str) -> bool:
        return where in self._given

    def get(self, where: str, default: Any = None) -> Any:
        return self._given.get(where, default)

    def wrong(self, where: str, expected: str, found: Any = None) -> BadInputError:
        """The error with what to write for the parameter `where`."""
        value = self._given.get(where) if found is None else found
        has = f"is {shown(value)}" if where in self._given else "is missing"
        return BadInputError(
            f"library:{self.name}: with.{where} {has}, expected {expected}; write "
            f"`{where}: {self._examples[where]}`"
        )

    def inputs_wrong(self, found: Iterable[str], write: str) -> BadInputError:
        """The error of an operator whose inputs have unknown names."""
        return BadInputError(
            f"library:{self.name}: its inputs are called {listed(found)}; write `{write}`"
        )

    def only_for(self, where: str, wanted: bool, whom: str) -> None:
        """Refuses a parameter that would have no effect."""
        if where in self._given and not wanted:
            raise BadInputError(f"library:{self.name}: with.{where} is for {whom} only; remove it")

    def distinct(self, what: str, columns: Iterable[str]) -> None:
        """Refuses emitted rows, that is `what`, with two columns of one name."""
        seen: set[str] = set()
        for name in columns:
            if name in seen:
                raise BadInputError(
                    f"library:{self.name}: two columns would be called {name!r}: its rows have "
                    f"{what}; rename one"
                )
            seen.add(name)

    def choice(self, where: str, allowed: Iterable[str]) -> str:
        value = self._given.get(where)
        if not isinstance(value, str) or value not in allowed:
            raise self.wrong(where, f"one of {', '.join(allowed)}")
        return value

    def milliseconds(self, where: str, default: int | None = None, least: int = 1) -> int:
        """A duration such as "10s"."""
        if where not in self._given and default is not None:
            return default
        try:
            found = round(units.seconds(self._given.get(where)) * 1000)
        except ValueError as error:
            raise self.wrong(where, str(error)) from None
        if found < least:
            raise self.wrong(where, f"at least {least} ms")
        return found

    def column(self, where: str, default: str | None = None) -> str:
        value = self._given.get(where, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(where, "the name of a column")
        return value

    def mapping(self, where: str) -> dict[str, Any]:
        value = self._given.get(where)
        if not isinstance(value, dict) or not value:
            raise self.wrong(where, "names with what they stand for")
        return value

    def types(self, where: str, defaults: Mapping[str, str]) -> dict[str, pa.DataType]:
        """The types of the columns in `defaults`, some overridden by the parameter."""
        value = self._given.get(where, {})
        if not isinstance(value, dict) or value.keys() - defaults.keys():
            raise self.wrong(where, f"types of some of the columns {listed(defaults)}")
        return {name: self.type(where, value.get(name, kind)) for name, kind in defaults.items()}

    def type(self, where: str, kind: Any) -> pa.DataType:
        if not isinstance(kind, str) or kind not in ARROW_TYPES:
            raise self.wrong(where, f"types out of {', '.join(ARROW_TYPES)}", kind)
        return ARROW_TYPES[kind]

    def columns(self, where: str) -> list[str]:
        """One column or a list of different ones."""
        value = self._given.get(where)
        names = [value] if isinstance(value, str) else value
        if not (isinstance(names, list) and names and all(isinstance(n, str) and n for n in names)):
            raise self.wrong(where, "the name of a column, or a list of names")
        if len(set(names)) < len(names):
            raise self.wrong(where, "columns that are different")
        return names

    def text(self, where: str) -> str:
        value = self._given.get(where)
        if not isinstance(value, str) or not value:
            raise self.wrong(where, "a text")
        return value

    def whole(self, where: str, default: int | None, least: int, most: int) -> int:
        """A whole number from `least` to `most`; required if it has no default."""
        value = self._given.get(where, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(where, f"a whole number from {least} to {most}")
        return value

    def number(self, where: str, default: float | None, above: float, most: float) -> float:
        """A number above `above` and up to `most`; required if it has no default."""
        value = self._given.get(where, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if above < value <= most:  # NaN is neither above nor below
                return float(value)
        raise self.wrong(where, f"a number above {above:g} and up to {most:g}")

    def flag(self, where: str) -> bool:
        """True or false; false when it is missing."""
        value = self._given.get(where, False)
        if not isinstance(value, bool):
            raise self.wrong(where, "true or false")
        return value
