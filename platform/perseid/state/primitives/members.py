"""`Set`: members; for duplicates, distinct counts and memberships."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.state.primitives.divergence import Distance
from perseid.state.primitives.keyed import Keyed


class Set(Keyed):
    """`Set(pa.string())`, or `Set({"user": pa.string(), "page": pa.string()})`.

    Members are given like the keys of a `Table`. With `ttl=` they expire, see `advance`.
    """

    kind = "set"
    distances = (Distance.KEYS,)

    def __init__(
        self, member: pa.DataType | Mapping[str, pa.DataType], *, ttl: timedelta | None = None
    ) -> None:
        super().__init__(member, {}, ttl)

    def fresh(self) -> Set:
        return Set(self._keys.types, ttl=self._ttl)

    def add(self, members: Any) -> pa.BooleanArray:
        """Adds members; true for the first row of each new member.

        So `batch.filter(seen.add(batch["id"]))` leaves out duplicates.
        """
        self._check_time()
        distinct = self._keys.distinct(members)
        slots = self._rows.find(distinct)
        new = self._rows.insert(distinct, slots)
        self._wrote(slots if self._ttl is not None else slots[new])
        brought = np.zeros(distinct.rows_given, bool)
        brought[distinct.first_rows()[new]] = True
        return pa.array(brought)

    def discard(self, members: Any) -> int:
        """Removes members, existing or not; returns how many existed."""
        return self._rows.remove(self._keys.distinct(members))

    def contains(self, members: Any) -> pa.BooleanArray:
        """For each row, whether its member exists."""
        distinct = self._keys.distinct(members)
        return pa.array(distinct.spread(self._rows.find(distinct) >= 0))
