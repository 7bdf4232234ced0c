"""`Vector` and `Matrix`: weights, centroids, sketches, registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.state.primitives.dense import Dense
from perseid.state.primitives.undo import Slots, Values


class Vector(Dense):
    """`Vector(pa.float64(), 100)`: a fixed number of numbers, all zero at first.

    NaN and infinity are refused, with their place, unless declared with `nonfinite=True`. An index
    is an array of any shape; several values for one index are applied in order.
    """

    kind = "vector"

    def __init__(self, of: pa.DataType, size: int, *, nonfinite: bool = False) -> None:
        super().__init__(of, (size,), nonfinite=nonfinite)

    def fresh(self) -> Vector:
        return Vector(self._type, self.rows, nonfinite=self._nonfinite)

    def schema(self) -> dict[str, Any]:
        return {"kind": self.kind, "type": str(self._type), "size": self.rows}

    def __len__(self) -> int:
        return self.rows

    def take(self, index: Any) -> Values:
        """The values at `index`, a copy of its shape."""
        return self._take(self._at(index))

    def set_at(self, index: Any, values: Any) -> None:
        """Replaces the values at `index`; of a repeated index the last value stays."""
        self._set_at(self._at(index), values)

    def add_at(self, index: Any, amounts: Any) -> None:
        """Adds at `index`; an integer that does not fit is refused without any change."""
        self._fold_at("add", self._at(index), amounts)

    def min_at(self, index: Any, amounts: Any) -> None:
        """Keeps the smaller of value and amount at `index`."""
        self._fold_at("min", self._at(index), amounts)

    def max_at(self, index: Any, amounts: Any) -> None:
        """Keeps the larger of value and amount at `index`."""
        self._fold_at("max", self._at(index), amounts)

    def _at(self, index: Any) -> Slots:
        return self._index(index, self.rows, "index")


class Matrix(Dense):
    """`Matrix(pa.int64(), rows=4, columns=8000)`: like `Vector`, with two indexes.

    The two are broadcast against each other, and amounts against both. A Count-Min sketch adds its
    counts with `add_at(np.arange(4)[:, None], hashes, counts)`, where `hashes` has the shape (4,
    n), and reads them with `take(np.arange(4)[:, None], hashes).min(axis=0)`.
    """

    kind = "matrix"

    def __init__(
        self, of: pa.DataType, rows: int, columns: int, *, nonfinite: bool = False
    ) -> None:
        super().__init__(of, (rows, columns), nonfinite=nonfinite)

    def fresh(self) -> Matrix:
        return Matrix(self._type, *self._shape, nonfinite=self._nonfinite)

    def schema(self) -> dict[str, Any]:
        rows, columns = self._shape
        return {"kind": self.kind, "type": str(self._type), "rows": rows, "columns": columns}

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self._shape

    def row(self, row: int) -> Values:
        """One row, as a read-only view like `values`."""
        found: Values = self.values[int(self._index(row, self._shape[0], "row"))]
        return found

    def set_row(self, row: int, values: Any) -> None:
        """Replaces one row; a single number fills it."""
        self.set_at(row, np.arange(self._shape[1]), values)

    def take(self, rows: Any, columns: Any) -> Values:
        """The values at the indexes, a copy of their common shape."""
        return self._take(self._at(rows, columns))

    def set_at(self, rows: Any, columns: Any, values: Any) -> None:
        """Replaces values; of a repeated index pair the last value stays."""
        self._set_at(self._at(rows, columns), values)

    def add_at(self, rows: Any, columns: Any, amounts: Any) -> None:
        """Adds; an integer that does not fit is refused without any change."""
        self._fold_at("add", self._at(rows, columns), amounts)

    def min_at(self, rows: Any, columns: Any, amounts: Any) -> None:
        """Keeps the smaller of value and amount."""
        self._fold_at("min", self._at(rows, columns), amounts)

    def max_at(self, rows: Any, columns: Any, amounts: Any) -> None:
        """Keeps the larger of value and amount."""
        self._fold_at("max", self._at(rows, columns), amounts)

    def _at(self, rows: Any, columns: Any) -> Slots:
        row = self._index(rows, self._shape[0], "row")
        column = self._index(columns, self._shape[1], "column")
        try:
            cells: Slots = row * self._shape[1] + column
        except ValueError as error:
            raise BadInputError(f"matrix: rows and columns do not fit together: {error}") from error
        return cells
