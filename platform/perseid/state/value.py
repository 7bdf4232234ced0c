"""`Value`: one value per operator partition."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives import Primitive

COLUMN = "value"


class Value(Primitive):
    """`Value(pa.int64(), default=0)`: read with `get`, written with `set`."""

    def __init__(self, kind: pa.DataType, default: Any = None) -> None:
        self._kind = kind
        self._default = default
        self._now = self._scalar(default)
        self._changed = False

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
        self._changed = False

    def apply(self, delta: pa.Table) -> None:
        assert not self._changed, "apply on uncommitted changes"
        self.restore(delta)

    def snapshot(self) -> pa.Table:
        return pa.table({COLUMN: pa.array([self._now.as_py()], type=self._kind)})

    def restore(self, snapshot: pa.Table) -> None:
        if snapshot.schema.names != [COLUMN] or len(snapshot) != 1:
            raise BadInputError(f"state with {snapshot.schema.names} is not of a Value")
        self._now = self._scalar(snapshot[COLUMN][0])
        self._changed = False

    def _scalar(self, value: Any) -> pa.Scalar:
        plain = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            return pa.scalar(plain, type=self._kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise BadInputError(f"{plain!r} is not a {self._kind}: {error}") from error
