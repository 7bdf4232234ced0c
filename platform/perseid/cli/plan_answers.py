"""Times and prints the answers of `perseid plan`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from perseid.cli import output

_Found = TypeVar("_Found")


def timed(decide: Callable[..., _Found], *arguments: Any) -> tuple[_Found, float]:
    """The decision, and how many milliseconds it took."""
    started_s = time.perf_counter()
    found = decide(*arguments)
    return found, round((time.perf_counter() - started_s) * 1000, 3)


def show(found: dict[str, Any], *, as_json: bool) -> None:
    """One document, or names and values as text."""
    if as_json:
        output.document(found)
    else:
        output.fields({name: _plain(value) for name, value in found.items()})


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > 1 and isinstance(value[1], int):
        name, partition, *where = value
        return " on ".join([f"{name}[{partition}]", *where])
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value) or "-"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_plain(item)}" for name, item in value.items()) or "-"
    return str(value)
