"""The interface of all state primitives, and how an operator gets its own.

A primitive is declared as a class attribute of an operator (`total = Table(...)`), and `bind` gives
each operator instance, that is each operator partition, a live copy. All changes go through the
primitive, so that it can return the *net* change since the last `commit`: the delta. The state of
epoch e-1 and the delta of epoch e give the state of epoch e, including the order of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from perseid.errors import BadInputError


class Primitive(ABC):
    """One piece of an operator partition's state. Vectorised: Arrow in, Arrow out."""

    @abstractmethod
    def fresh(self) -> Self:
        """An empty primitive of the same declaration."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The declaration as JSON data; primitives with equal schemas can exchange state."""

    def shard_key(self, key: Sequence[str]) -> Mapping[str, pa.DataType] | None:
        """The columns of a snapshot that hold the `key` of the operator, in its order.

        They determine the partition of each row when rows are redistributed; None without such
        columns.
        """
        return None

    @abstractmethod
    def delta(self) -> pa.Table | None:
        """The net change since the last `commit`, None when there is none. Changes nothing."""

    @abstractmethod
    def commit(self) -> None:
        """Forgets the change set: the present state is the base of the next delta."""

    @abstractmethod
    def apply(self, delta: pa.Table) -> None:
        """Brings a copy without uncommitted changes to the state after `delta`."""

    def rollback(self) -> None:
        """Reverts everything since the last commit; an earlier epoch comes from the log."""
        raise BadInputError(f"{type(self).__name__} cannot roll back: restore it from its log")

    def apply_all(self, deltas: Sequence[pa.Table]) -> None:
        """Like `apply` for each in turn."""
        for delta in deltas:
            self.apply(delta)

    @abstractmethod
    def snapshot(self) -> pa.Table:
        """The whole state, uncommitted changes included."""

    @abstractmethod
    def restore(self, snapshot: pa.Table) -> None:
        """Replaces the whole state; forgets the change set and the marked backup."""

    def fits(self, snapshot: pa.Table) -> bool:
        """Whether `snapshot` matches this declaration, as far as its columns show."""
        return bool(snapshot.schema.equals(self.fresh().snapshot().schema))

    def mark_backup(self) -> None:
        """Marks the last commit as the backup from which `divergence` is measured.

        Without a mark, divergence costs nothing. Call it without uncommitted changes.
        """
        raise BadInputError(f"{type(self).__name__} keeps no divergence")

    def divergence(self, kind: str) -> float:
        """The last commit's distance from the marked backup; `kind` is a `Distance`.

        Its cost depends only on what changed since the mark.
        """
        raise BadInputError(f"{type(self).__name__} keeps no divergence")

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Approximate bytes of a snapshot, in constant time."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of a snapshot, in constant time."""


def declared(operator: type) -> dict[str, Primitive]:
    """The primitives that a class declares, base classes first, in the order of the source."""
    found: dict[str, Primitive] = {}
    for base in reversed(operator.__mro__):
        for name, value in vars(base).items():
            if Primitive in type(value).__mro__:  # isinstance of an ABC takes five times as long
                found[name] = value
            else:
                found.pop(name, None)  # a subclass uses the name for something else
    return found


def bind(operator: Any) -> dict[str, Primitive]:
    """Gives `operator` (an instance) an empty live copy of each declared primitive.

    They become instance attributes and are returned by name.
    """
    live = {name: primitive.fresh() for name, primitive in declared(type(operator)).items()}
    for name, primitive in live.items():
        setattr(operator, name, primitive)
    return live


def keyless(operator: type, key: Sequence[str]) -> list[str]:
    """The primitives of a class whose rows cannot be distributed by the operator's `key`."""
    return [n for n, primitive in declared(operator).items() if primitive.shard_key(key) is None]


def schema_of(operator: type) -> dict[str, Any]:
    """The state schema of an operator class as JSON data: equal schemas can keep their state."""
    return {name: primitive.schema() for name, primitive in declared(operator).items()}
