"""Scripts that a model and the real server must answer alike, so that the models stay correct.

A script takes a handle, acts in an order that allows exactly one answer, and yields plain
observations. `tests/contract/test_conformance_*.py` plays each on both sides and compares them with
each other and with the expected answers. The scripts are here because tests do not import each
other, and because one test counts them and the methods they reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perseid.errors import ReplayDataLost

Handle = TypeVar("Handle")
Play = Callable[[Handle], Iterable[object]]


@dataclass(frozen=True, slots=True)
class Script(Generic[Handle]):
    """`expected` is what both sides must yield."""

    play: Play[Handle]
    expected: tuple[object, ...]

    @property
    def name(self) -> str:
        return self.play.__name__

    def observe(self, handle: Handle) -> list[object]:
        return list(self.play(handle))


class Scripts(list[Script[Handle]]):
    """The scripts of one module, in order."""

    def add(self, *expected: object) -> Callable[[Play[Handle]], Play[Handle]]:
        """Decorator for a script; the arguments are its expected observations."""

        def note(play: Play[Handle]) -> Play[Handle]:
            self.append(Script(play, expected))
            return play

        return note


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> object:
    """Returns the call's result, or the name of its error's type."""
    try:
        return call(*arguments, **named)
    except ReplayDataLost as error:
        return f"ReplayDataLost: {error.needed} is below {error.earliest}"
    except Exception as error:  # an error of a wrong type is an observation, too
        return type(error).__name__
