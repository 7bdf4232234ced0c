"""The core's frozen values as JSON, and back.

A dataclass becomes an object with its class's name under "$" and the fields that differ from their
defaults; what JSON lacks, such as a map with pairs as keys, has a name under "$", too. Only classes
that the core's events, actions and state are made of are read, so a file can do no more than
construct them: it is safe to open. Nothing here knows a field.
"""

from __future__ import annotations

import math
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel

from perseid.coordinator.actions import Action
from perseid.coordinator.events import Event
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.planners.delta_stopping import DeltaStopping
from perseid.coordinator.token_time import Now
from perseid.errors import LogTruncated

KIND = "$"
_AS_IS = frozenset({str, int, bool, types.NoneType})
_PLAIN = (*_AS_IS, float)
_NO_DEFAULT = object()


class _Class(NamedTuple):
    """`read` makes a value; `fields` of a dataclass, with their defaults, else None."""

    read: Callable[..., Any]
    fields: tuple[tuple[str, Any], ...] | None


def encoded(value: Any) -> Any:
    """`value` as JSON's types. TypeError for a class that the core does not use."""
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if kind is tuple:
        return [encoded(one) for one in value]
    if kind is dict:
        return _mapped(value)
    known = _classes().get(kind.__name__)
    if known is None or known.fields is None:
        return _rare(value)
    found: dict[str, Any] = {KIND: kind.__name__}
    for name, default in known.fields:
        one = getattr(value, name)
        if one is not default and not (type(one) in _PLAIN and _same(one, default)):
            found[name] = encoded(one)
    return found


def _same(one: Any, default: Any) -> bool:
    return type(one) is type(default) and bool(one == default)


def _mapped(value: Mapping[Any, Any]) -> Any:
    if all(type(key) is str for key in value) and KIND not in value:
        return {key: encoded(one) for key, one in value.items()}
    return _tagged("map", [[encoded(key), encoded(one)] for key, one in value.items()])


def _rare(value: Any) -> Any:
    for kind, name, content in _ODD:
        if isinstance(value, kind):
            return _tagged(name or type(value).__name__, content(value))
    if isinstance(value, np.generic):
        return encoded(value.item())
    raise TypeError(f"a {type(value).__qualname__} is no value of the core: {str(value)[:80]!r}")


_ODD: tuple[tuple[type[Any], str, Callable[[Any], Any]], ...] = (
    (frozenset, "set", lambda value: sorted(encoded(one) for one in value)),
    (list, "list", lambda value: [encoded(one) for one in value]),
    (Enum, "", lambda value: value.value),
    (BaseModel, "", lambda value: value.model_dump(mode="json", exclude_defaults=True)),
    (LogTruncated, "", lambda value: list(value.args)),
    (DeltaStopping, "", lambda value: encoded(vars(value))),
    (np.ndarray, "array", lambda value: value.tolist()),
)


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {KIND: kind, "is": content}


def decoded(value: Any) -> Any:
    """The value of which `value` is the JSON. ValueError or TypeError where it is none."""
    if type(value) is list:
        return tuple(decoded(one) for one in value)
    if type(value) is not dict:
        return value
    kind = value.get(KIND)
    if kind is None:
        return {key: decoded(one) for key, one in value.items()}
    known = _classes().get(kind)
    if known is not None and known.fields is not None:
        return known.read(**{key: decoded(one) for key, one in value.items() if key != KIND})
    read = known.read if known is not None else _RARE.get(kind)
    if read is None or "is" not in value:
        raise ValueError(f"{str(kind)[:80]!r} is no class of the core's values")
    return read(value["is"])


def _delta_stopping(content: Any) -> DeltaStopping:
    found = object.__new__(DeltaStopping)
    vars(found).update(decoded(content))
    return found


_RARE: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "map": lambda pairs: {decoded(key): decoded(one) for key, one in pairs},
    "set": lambda content: frozenset(decoded(content)),
    "list": lambda content: list(decoded(content)),
    "array": np.array,
    LogTruncated.__name__: lambda content: LogTruncated(*content),
    DeltaStopping.__name__: _delta_stopping,
}


def dumps(value: Any) -> bytes:
    """One line of JSON, with its end."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def digest(value: object) -> str:
    """Eight hex digits that differ if values do, but for one case in four thousand millions."""
    return f"{zlib.crc32(orjson.dumps(encoded(value))):08x}"


@cache
def _classes() -> Mapping[str, _Class]:
    """By name, the classes that events, actions and the state are made of, by their type hints."""
    found: dict[type[Any], _Class] = {}
    waiting: list[Any] = [Event, Action, ClusterState, JobState, Now]
    while waiting:
        one = waiting.pop()
        waiting += typing.get_args(one)
        if not isinstance(one, type) or one in found:
            continue
        if is_dataclass(one):
            found[one] = _Class(one, tuple((f.name, _default(f)) for f in fields(one)))
            waiting += typing.get_type_hints(one).values()
        elif issubclass(one, BaseModel):
            found[one] = _Class(one.model_validate, None)
        elif issubclass(one, Enum):
            found[one] = _Class(one, None)
    names = {one.__name__: made for one, made in found.items()}
    if len(names) < len(found):
        raise TypeError(f"two classes of the core's values share a name: {sorted(map(str, found))}")
    return names


def _default(of: Field[Any]) -> Any:
    if of.default_factory is not MISSING and of.default_factory in (dict, tuple):
        return _NO_DEFAULT
    return of.default if of.default is not MISSING else _NO_DEFAULT
