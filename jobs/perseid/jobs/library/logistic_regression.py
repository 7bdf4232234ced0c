"""A classifier that learns while it runs: `LogisticRegression` (AF-Stream, experiment 5).

    model: {input: clicks, key: user, use: "library:LogisticRegression",
            with: {features: [age, price], label: bought, rate: 0.1}}
    sinks:
      model: {input: model, topic: models, format: json, order: free}

`label` is 0 or 1 (or a bool), `features` are numbers of about the same size. Each partition has
`models` (20) local models, to which its records are dealt in turn; each makes one step of
stochastic gradient descent with `rate` (0.1) per record. After every `every` (1000) records the
models are averaged and go on from the average, which is emitted: `partition`, `records` (seen so
far), `loss` (mean log loss of these records, each predicted before it was learnt from), `bias`,
and the weight of each feature. The key only says which partition sees a record.

Averages are those of one partition: models of several partitions are not brought together, as the
paper's are by feedback from a common operator. With `parallelism: 1` there is one model.

What is learnt does not depend on where epochs end. Hosts with different processors may differ in
the last bit of `tanh`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.floats import matrix
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.times import need, one_array
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.jobs.spec import OperatorSpec
from perseid.state import Matrix, Value, Vector
from perseid.state.undo import Values

NAME = "LogisticRegression"
EMITTED = ("partition", "records", "loss", "bias")
EXAMPLES = {
    "features": "[age, price]", "label": "bought", "rate": "0.1", "models": "20", "every": "1000",
}  # fmt: skip


def logistic_regression(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `features` and `label`; `rate`, `models` and `every`."""
    given = Parameters(spec, NAME, EXAMPLES)
    features = given.columns("features")
    label = given.column("label")
    given.distinct(f"{', '.join(EMITTED)} and the features", [*EMITTED, *features])
    if label in features:
        raise given.wrong("label", "a column that is no feature")
    rate = given.number("rate", 0.1, 0, 1000)
    every = given.whole("every", 1000, 1, 10**9)
    models = given.whole("models", min(20, every), 1, min(every, 1000))

    class LogisticRegression(Operator):
        """Local models, averaged every so many records."""

        output = pa.schema(
            [
                *((name, pa.int64()) for name in EMITTED[:2]),
                *((name, pa.float64()) for name in (*EMITTED[2:], *features)),
            ]
        )
        metadata = metadata_among([label, *features])
        weights = Matrix(pa.float64(), 1 + len(features), models)  # the bias comes first
        losses = Vector(pa.float64(), models)  # of each model since the last average
        seen = Value(pa.int64(), default=0)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            inputs = np.vstack([np.ones(batch.num_rows), matrix(batch, features, NAME)])
            wanted = labels(batch, label)
            weights, losses = self.weights.values.copy(), self.losses.values.copy()
            seen = self.seen.get()
            done = 0
            while done < len(wanted):
                upto = min(done + every - seen % every, len(wanted))
                part = slice(done, upto)
                learn(weights, losses, inputs[:, part], wanted[part], seen % every, rate)
                seen, done = seen + upto - done, upto
                if seen % every == 0:
                    weights[:] = weights.mean(axis=1, keepdims=True)
                    out.emit(self._model(seen, losses.sum() / every, weights[:, 0]))
                    losses[:] = 0
            self.weights.set(weights)
            self.losses.set(losses)
            self.seen.set(seen)

        def _model(self, seen: int, loss: float, weights: Values) -> pa.Table:
            row = [self.partition, seen, loss, *weights]
            names = [*EMITTED, *features]
            return pa.table({name: [value] for name, value in zip(names, row, strict=True)})

    return LogisticRegression


def labels(batch: pa.Table, column: str) -> Values:
    """The label of each row as 0.0 or 1.0; BadInputError for others."""
    need(batch, [column], NAME)
    found = one_array(batch[column])
    plain = found.cast(pa.int8()) if pa.types.is_boolean(found.type) else found
    wrong = ~np.isin(plain.to_numpy(zero_copy_only=False), [0, 1])
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInputError(
            f"library:{NAME}: column {column!r} is {found[row]} in row {row}, expected 0 or 1; "
            "turn it into one of them in the operator before"
        )
    return np.asarray(plain.to_numpy(zero_copy_only=False), np.float64)


def learn(
    weights: Values, losses: Values, inputs: Values, wanted: Values, place: int, rate: float
) -> None:
    """Steps of gradient descent, in `weights` and `losses`; record r is of model (place + r) % m.

    Shapes: weights (features, m), inputs (features, n). All models make their steps side by side.
    They do not know of each other, so it does not matter with which step of the others a model's
    falls together; those that have no record in a step have zeros for one.
    """
    size, models = weights.shape
    before = place % models
    steps = -(-(before + len(wanted)) // models)
    padding = (before, steps * models - before - len(wanted))
    rows = np.pad(inputs, ((0, 0), padding)).reshape(size, steps, models)
    ones = np.pad(wanted, padding).reshape(steps, models)
    there = np.pad(np.ones(len(wanted)), padding).reshape(steps, models)
    for step in range(steps):
        x, y = rows[:, step], ones[step]
        z = (weights * x).sum(axis=0)
        losses += there[step] * (np.logaddexp(0, z) - y * z)
        error = 0.5 * (1 + np.tanh(0.5 * z)) - y  # tanh, for exp(-z) overflows
        weights -= rate * (error * there[step]) * x
