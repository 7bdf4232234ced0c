"""Builds the command that repeats a history: seed, and shape, script and defect where given.

Fields that differ from a dataclass's defaults are written as `name=value,name=value`.
"""

from __future__ import annotations

import shlex
from dataclasses import Field, fields
from typing import Any, TypeVar

from perseid.errors import UsageError
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scripts import SCRIPTS
from perseid.testing.simulation.swarm import Script

MODULE = "perseid.testing.simulation"
Written = TypeVar("Written")

active: list[str] = []  # planted defects; set by `support.mutants.planting.planted`


def command(
    seed: int, shape: Shape | None = None, script: Script | None = None, *,
    approximate: bool = False, spread: bool = False, replicas: bool = False,
) -> str:  # fmt: skip
    """Returns a shell command for the repository's environment."""
    words = ["python", "-m", MODULE, str(seed)]
    if approximate:
        words.append("--approximate")
    if spread:
        words.append("--spread")
    if replicas:
        words.append("--replicas")
    if shape is not None:
        words += ["--shape", differing(shape)]
    if script is not None:
        words += ["--script", f"{script.name}:{differing(script)}"]
    for name in active:
        words += ["--planted", name]
    return shlex.join(words)


def differing(written: Any) -> str:
    """Writes the fields of a dataclass that differ from their defaults."""
    return ",".join(
        f"{f.name}={getattr(written, f.name)}" for f in fields(written)
        if getattr(written, f.name) != f.default
    )  # fmt: skip


def parsed(kind: type[Written], text: str) -> Written:
    """Parses what `differing` wrote. Raises UsageError."""
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if name not in known:
            raise UsageError(f"{kind.__name__} has no {name!r}: there are {', '.join(known)}")
        found[name] = _value(known[name], value)
    return kind(**found)


def script_of(text: str) -> Script:
    """Parses the value of --script that `command` wrote. Raises UsageError."""
    name, _, rest = text.partition(":")
    if name not in SCRIPTS:
        raise UsageError(f"there is no script {name!r}: there are {', '.join(SCRIPTS)}")
    return parsed(SCRIPTS[name], rest)


def _value(field: Field[Any], text: str) -> Any:
    kind: Any = type(field.default)
    try:
        return {"True": True, "False": False}[text] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        expected = kind.__name__
        raise UsageError(f"{field.name}={text}: expected {expected}") from error
