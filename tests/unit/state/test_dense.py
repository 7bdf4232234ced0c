"""Vector and Matrix: what operators see, and that they are plain lists at every commit."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.state import Matrix, Vector, schema_of
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

ROWS, COLUMNS = 3, 5
CELL = st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1))
AMOUNT = st.integers(-8, 8).map(lambda n: n / 2) | st.just(math.inf)
CELLS = st.lists(st.tuples(CELL, AMOUNT), max_size=7)
STEP: st.SearchStrategy[tuple[str, list[Any]]] = st.one_of(
    st.tuples(st.sampled_from(["add", "set", "min", "max"]), CELLS),
    st.tuples(st.sampled_from(["commit", "rollback", "mark", "fill"]), CELLS),
)


def test_a_vector_is_read_and_written_as_a_whole_and_by_index() -> None:
    weights = Vector(pa.float64(), 4)
    weights.set([1, 2, 3, 4])
    seen = weights.values
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 9
    weights.set(weights.values * 2 - 1)
    weights.add_at(pa.array([3, 0, 3]), pa.array([0.5, 1, 0.25]))
    assert weights.values.tolist() == [2, 3, 5, 7.75]
    assert weights.take([[0], [3]]).tolist() == [[2], [7.75]]
    weights.set_at([1, 1], [8, 9])
    weights.max_at([0, 1], 5)
    weights.min_at(2, -1)
    weights.add(0.25)
    assert weights.values.tolist() == [5.25, 9.25, -0.75, 8]
    assert (len(weights), weights.rows, weights.size_bytes) == (4, 4, 32)


def test_a_count_min_sketch_never_counts_too_little() -> None:
    chance = np.random.default_rng(3)
    sketch, lines = Matrix(pa.int64(), rows=4, columns=50), np.arange(4)[:, None]
    items, counts = chance.integers(0, 200, 5000), chance.integers(1, 1500, 5000)
    hashes = chance.integers(0, 50, (4, 200))  # a table of random functions of 200 items
    sketch.add_at(lines, hashes[:, items], counts)
    exact = np.bincount(items, counts, 200)
    estimates = sketch.take(lines, hashes).min(axis=0)
    assert (estimates >= exact).all()
    assert sketch.values.sum() == 4 * counts.sum()
    assert sketch.row(2).sum() == counts.sum()
    sketch.commit()
    sketch.add(7)  # what a loss may have taken from every counter
    assert (sketch.take(lines, hashes).min(axis=0) == estimates + 7).all()


def test_a_delta_is_sparse_and_net() -> None:
    matrix = Matrix(pa.int64(), 100, 10)
    matrix.add_at([5, 5, 9], [1, 1, 0], [2, 3, 1])
    matrix.add_at(9, 0, -1)  # as if nothing had been
    delta = matrix.delta()
    assert delta is not None
    assert delta.to_pydict() == {"index": [51], "value": [5]}
    matrix.set_row(3, range(10))
    assert matrix.row(3).tolist() == list(range(10))
    matrix.set(np.arange(1000).reshape(100, 10))
    whole = matrix.delta()
    assert whole is not None and whole.schema.names == ["value"]
    copy = matrix.fresh()
    copy.apply(whole)
    assert copy.snapshot().equals(matrix.snapshot())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v, m: v.set_at([0, 1], [1, math.nan]), r"vector: the value at \[1\] would be nan"),
        (lambda v, m: v.set([0, 0, math.inf]), r"\[2\] would be inf; keep such numbers out, or"),
        (lambda v, m: m.set_at(1, 2, -math.inf), r"matrix: the value at \[1, 2\] would be -inf"),
        (lambda v, m: v.add_at([2, 0, 2], 1.7e308), r"\[2\] would be inf"),
        (lambda v, m: v.set_at([0, 3], 1), "vector: index in place 1 is not from 0 to 2"),
        (lambda v, m: m.take([0, -1], 0), "matrix: row in place 1 is not from 0 to 1"),
        (lambda v, m: m.add_at(0, [[0], [3]], 1), "matrix: column in place 1"),
        (lambda v, m: v.set_at([0, None], 1), "index in place 1"),
        (lambda v, m: v.set_at(0.5, 1), "vector: index: expected int64"),
        (lambda v, m: v.set([1, 2]), r"set\(\): expected the shape \(3,\)"),
        (lambda v, m: v.add_at([0, 1], pa.array([1.0, None])), "with 1 nulls; fill them first"),
        (lambda v, m: v.add_at([0, 1], [1.0, None]), "with 1 nulls; fill them first"),
        (lambda v, m: v.set("x"), r"vector: set\(\): expected double"),
        (lambda v, m: m.add_at([0, 1], [0, 1, 2], 1), "do not fit together"),
    ],
)
def test_refused_input_changes_nothing(call: Any, message: str) -> None:
    vector, matrix = Vector(pa.float64(), 3), Matrix(pa.float64(), 2, 3)
    with pytest.raises(BadInputError, match=message), np.errstate(over="ignore"):
        call(vector, matrix)
    assert (vector.delta(), matrix.delta()) == (None, None)


def test_of_two_zeros_the_old_one_stays() -> None:
    zeros = Vector(pa.float64(), 64)
    zeros.min_at(np.arange(64), -0.0)
    assert bits(zeros.values) == bits([0.0] * 64)
    zeros.set(-0.0)
    zeros.max_at([*range(64), 0], 0.0)
    assert bits(zeros.values) == bits([-0.0] * 64)
    zeros.min_at([5, 5], [-1.0, -2.0])
    assert zeros.values[5] == -2


def test_integers_that_do_not_fit_are_refused() -> None:
    counts = Vector(pa.int8(), 2)
    counts.add_at([0, 0], [100, 27])
    with pytest.raises(BadInputError, match="a sum does not fit into int8"):
        counts.add_at([1, 0], 1)
    with pytest.raises(BadInputError, match="a sum does not fit into int8"):
        counts.add_at([1, 1], 100)
    with pytest.raises(BadInputError, match="expected int8"):
        counts.set([1, 200])
    assert counts.values.tolist() == [127, 0]


def test_declarations_and_state_that_cannot_be() -> None:
    with pytest.raises(BadInputError, match="vector of string: expected an integer or floating"):
        Vector(pa.string(), 3)
    with pytest.raises(BadInputError, match=r"matrix of the shape \(0, 3\): expected 1 or more"):
        Matrix(pa.int64(), 0, 3)
    with pytest.raises(BadInputError, match=r"state of 2 rows .* is not of a matrix of the shape"):
        Matrix(pa.int64(), 1, 3).restore(Vector(pa.int64(), 2).snapshot())
    with pytest.raises(BadInputError, match="is not of a vector"):
        Vector(pa.int64(), 2).apply(pa.table({"key": [1]}))


def test_schemas() -> None:
    class Sketch:
        counters = Matrix(pa.int64(), rows=4, columns=8000)
        registers = Vector(pa.int8(), 2048)

    assert schema_of(Sketch) == {
        "counters": {"kind": "matrix", "type": "int64", "rows": 4, "columns": 8000},
        "registers": {"kind": "vector", "type": "int8", "size": 2048},
    }


def run(live: Matrix, model: list[list[float]], name: str, given_cells: list[Any]) -> None:
    cells = [cell for cell, _ in given_cells]
    amounts = [amount for _, amount in given_cells]
    if name == "fill":
        level = amounts[0] if amounts else 0.0
        live.set(level)
        model[:] = [[level] * COLUMNS for _ in range(ROWS)]
        return
    {"add": live.add_at, "set": live.set_at, "min": live.min_at, "max": live.max_at}[name](
        [r for r, _ in cells], [c for _, c in cells], amounts
    )
    for (r, c), amount in given_cells:
        old = model[r][c]
        model[r][c] = {"add": old + amount, "set": amount,
                       "min": min(old, amount), "max": max(old, amount)}[name]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_base_and_deltas_are_the_state_at_every_commit(steps: list[tuple[str, Any]]) -> None:
    live, follower = (Matrix(pa.float64(), ROWS, COLUMNS, nonfinite=True) for _ in range(2))
    model = [[0.0] * COLUMNS for _ in range(ROWS)]
    committed, marked = copy.deepcopy(model), None
    bases: list[tuple[pa.Table, list[pa.Table]]] = [(live.snapshot(), [])]
    for name, cells in [*steps, ("commit", [])]:
        if name == "commit":
            delta = live.delta()
            assert (delta is None) == (bits(model) == bits(committed))
            if delta is not None:
                delta = ipc_table(ipc_bytes(delta))
                follower.apply(delta)
                for _, later in bases:
                    later.append(delta)
            live.commit()
            committed = copy.deepcopy(model)
            bases.append((ipc_table(ipc_bytes(live.snapshot())), []))
        elif name in ("rollback", "mark"):
            live.rollback()
            assert live.delta() is None
            model = copy.deepcopy(committed)
            if name == "mark":
                live.mark_backup()
                follower.mark_backup()
                marked = copy.deepcopy(model)
        else:
            with np.errstate(invalid="ignore"):
                run(live, model, name, cells)
        assert bits(live.values) == bits(model)
        if marked is not None:
            expected = divergences(committed, marked)
            assert {kind: live.divergence(kind) for kind in expected} == expected
            assert {kind: follower.divergence(kind) for kind in expected} == expected
    for base, deltas in bases:
        restored = Matrix(pa.float64(), ROWS, COLUMNS, nonfinite=True)
        restored.restore(base)
        restored.apply_all(deltas)
        assert bits(restored.values) == bits(follower.values) == bits(model)


def bits(numbers: Any) -> list[str]:
    """As text: every NaN is the same, and zero has a sign."""
    return [float(n).hex() for n in np.asarray(numbers).reshape(-1)]


def divergences(now: Any, then: Any) -> dict[str, float]:
    pairs = zip(np.reshape(now, -1).tolist(), np.reshape(then, -1).tolist(), strict=True)
    apart = [0.0 if bits([a]) == bits([b]) else abs(a - b) for a, b in pairs]
    apart = [math.inf if math.isnan(a) else a for a in apart]
    return {
        "manhattan": sum(apart), "euclidean": math.sqrt(sum(a * a for a in apart)),
        "maximum": max(apart),
    }  # fmt: skip
