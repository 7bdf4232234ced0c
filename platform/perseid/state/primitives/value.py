"""`Value`: one value per operator partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.divergence import Distance, chosen, differences, unmarked
from perseid.state.primitives.primitive import Primitive
from perseid.state.primitives.undo import Values

COLUMN = "value"


class Value(Primitive):
    """`Value(pa.int64(), default=0)`: read with `get`, written with `set`."""

    def __init__(self, kind: pa.DataType, default: Any = None) -> None:
        self._kind = kind
        self._default = default
        self._now = self._committed = self._scalar(default)
        self._changed = False
        self._marked: pa.Scalar | None = None

    def fresh(self) -> Value:
        return Value(self._kind, self._default)

    def schema(self) -> dict[str, Any]:
        return {"kind": "value", "type": str(self._kind)}

    def get(self) -> Any:
        """The value as a Python object."""
        return self._now.as_py()

    def set(self, value: Any) -> None:
        """Replaces the value; a Python object or an Arrow scalar."""
        self._now = self._scalar(value)
        self._changed = True

    @property
    def rows(self) -> int:
        return 1

    @property
    def size_bytes(self) -> int:
        value = self._now
        if pa.types.is_string(self._kind) or pa.types.is_binary(self._kind):
            return 4 + (value.as_buffer().size if value.is_valid else 0)
        return int(self.snapshot().nbytes)

    def delta(self) -> pa.Table | None:
        return self.snapshot() if self._changed else None

    def commit(self) -> None:
        self._committed, self._changed = self._now, False

    def rollback(self) -> None:
        self._now, self._changed = self._committed, False

    def apply(self, delta: pa.Table) -> None:
        assert not self._changed, "apply on uncommitted changes"
        self._load(delta)

    def snapshot(self) -> pa.Table:
        return pa.table({COLUMN: pa.array([self._now.as_py()], type=self._kind)})

    def restore(self, snapshot: pa.Table) -> None:
        self._load(snapshot)
        self._marked = None

    def mark_backup(self) -> None:
        assert not self._changed, "mark_backup on uncommitted changes"
        self._marked = self._now

    def divergence(self, kind: str) -> float:
        """The difference of two numbers; a null counts as zero."""
        known = (Distance.DIFFERENCE,) if self._is_number else ()
        chosen(kind, known, f"value of type {self._kind}")
        if self._marked is None:
            raise unmarked("value")
        return float(differences(*map(self._as_array, (self._committed, self._marked)))[0])

    @property
    def _is_number(self) -> bool:
        return bool(pa.types.is_integer(self._kind) or pa.types.is_floating(self._kind))

    def _as_array(self, value: pa.Scalar) -> Values:
        plain = value.as_py() if value.is_valid else 0
        return np.array([plain], self._kind.to_pandas_dtype())

    def _load(self, rows: pa.Table) -> None:
        if rows.schema.names != [COLUMN] or len(rows) != 1:
            raise BadInputError(f"state with {rows.schema.names} is not of a Value")
        self._now = self._committed = self._scalar(rows[COLUMN][0])
        self._changed = False

    def _scalar(self, value: Any) -> pa.Scalar:
        plain = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            return pa.scalar(plain, type=self._kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            found = type(plain).__name__
            raise BadInputError(f"set() of a Value: expected {self._kind}, found {found}") from None
