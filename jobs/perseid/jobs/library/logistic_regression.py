"""An online classifier: `LogisticRegression` (AF-Stream, experiment 5).

    model: {input: clicks, key: user, use: "library:LogisticRegression",
            with: {features: [age, price], label: bought, rate: 0.1}}
    sinks:
      model: {input: model, topic: models, format: json, order: free}

`label` is 0 or 1 (or a bool), `features` are numbers of about the same size. Each partition has
`models` (20) local models, to which its records are assigned in turn; each does one step of
stochastic gradient descent with `rate` (0.1) per record. After every `every` (1000) records the
models are replaced by their average, which is emitted. Its row has `partition`, `records` (seen so
far), `loss` (mean log loss of these records, each predicted before it was learnt from), `bias`, and
the weight of each feature. The key only decides which partition receives a record.

The partitions' models are independent unless they share them by feedback, through
`library:ModelAverage`:

    model: {inputs: {rows: clicks, average: {from: average.replies, feedback: {delay: 1}}},
            key: user, use: "library:LogisticRegression", with: {features: [age, price],
            label: bought}}
    average: {input: model.local, key: user, parallelism: 1, use: "library:ModelAverage",
              with: {features: [age, price]}}

Then an epoch in which a partition averaged its models emits the newest average to the output
`local`. The reply comes in the next epoch, and what was learnt meanwhile is kept: models move by
the difference of the common average and the emitted one (delayed averaging, as in DaSGD, Zhou et
al. 2020). Results then depend on where epochs end, as with all feedback.

`predictions: true` declares the output `predictions`: for each row, in its order, the key,
`partition`, `label`, and the `probability` of 1 before it was learnt from. Without feedback results
do not depend on where epochs end. Hosts with different processors may differ in the last bit of
`tanh`. Under another parallelism each partition starts from the old partitions' models, weighted by
their records; numbers of records are distributed evenly. `types: {user: int64}` names the types of
key columns that are no strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.floats import matrix
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.rescaling import averaged, evenly
from perseid.jobs.library.times import need, one_array
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator, metadata_among
from perseid.records.redaction import like
from perseid.state import Matrix, Value, Vector
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.undo import Values

NAME = "LogisticRegression"
EMITTED = ("partition", "records", "loss", "bias")
COUNTS = [(name, pa.int64()) for name in EMITTED[:2]]
PREDICTED = ("partition", "label", "probability")
EXAMPLES = {
    "features": "[age, price]", "label": "bought", "rate": "0.1", "models": "20", "every": "1000",
    "predictions": "true", "types": "{user: int64}",
}  # fmt: skip
KINDS = (pa.int64(), pa.int64(), pa.float64())  # of PREDICTED
SHARED = {"rows", "average"}  # the inputs where partitions share a model


def logistic_regression(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `features` and `label`; `rate`, `models`, `every`, `predictions` and `types`."""
    given = Parameters(spec, NAME, EXAMPLES)
    features = given.columns("features")
    label = given.column("label")
    given.distinct(f"{', '.join(EMITTED)} and the features", [*EMITTED, *features])
    if label in features:
        raise given.wrong("label", "a column that is no feature")
    rate = given.number("rate", 0.1, 0, 1000)
    every = given.whole("every", 1000, 1, 10**9)
    models = given.whole("models", min(20, every), 1, min(every, 1000))
    shared = _is_shared(spec, given)
    predicts = given.flag("predictions")
    given.only_for("types", shared or predicts, "feedback and predictions")
    types = given.types("types", dict.fromkeys(spec.key, "string"))
    keys = KeyFields(types)
    predictions = _predictions(types, given) if predicts else {}

    class LogisticRegression(Operator):
        """Local models, averaged every so many records."""

        output = pa.schema([*COUNTS, *((n, pa.float64()) for n in (*EMITTED[2:], *features))])
        outputs: ClassVar[Mapping[str, pa.Schema]] = predictions
        metadata = metadata_among([label, *features])
        weights = Matrix(pa.float64(), 1 + len(features), models)  # the bias comes first
        losses = Vector(pa.float64(), models)  # of each model since the last average
        seen = Value(pa.int64(), default=0)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            self.train(batch, out)

        def rescale(self, old: Sequence[Any]) -> None:
            _continue(self, old, every)

        def train(self, batch: pa.Table, out: Emitter) -> Values | None:
            """Learns from the rows; returns the newest average, None if there was none."""
            inputs = np.vstack([np.ones(batch.num_rows), matrix(batch, features, NAME)])
            wanted = labels(batch, label)
            chances, average = _train(self, inputs, wanted, every, rate, out)
            if predicts:
                found = [*keys.arrays(batch), np.full(len(wanted), self.partition), wanted, chances]
                out.emit(pa.table(found, names=predictions["predictions"].names), to="predictions")
            return average

    if not shared:
        return LogisticRegression
    local = local_models(types, features)
    given.distinct("the key, partition, records, bias and the features", local.names)
    return _shared(LogisticRegression, keys, local, features, every)


def _train(
    model: Any, inputs: Values, wanted: Values, every: int, rate: float, out: Emitter
) -> tuple[Values, Values | None]:
    """The chance of each column of `inputs`, before it was learnt from, and the newest average.

    Every `every` records the models are averaged, and the average is emitted.
    """
    weights, losses = model.weights.values.copy(), model.losses.values.copy()
    chances = np.empty(len(wanted))
    seen, done, average = model.seen.get(), 0, None
    while done < len(wanted):
        upto = min(done + every - seen % every, len(wanted))
        part = slice(done, upto)
        chances[part] = learn(weights, losses, inputs[:, part], wanted[part], seen % every, rate)
        seen, done = seen + upto - done, upto
        if seen % every == 0:
            average = weights.mean(axis=1)
            weights[:] = average[:, None]
            row = [model.partition, seen, losses.sum() / every, *average]
            out.emit(pa.table([[value] for value in row], names=model.output.names))
            losses[:] = 0
    model.weights.set(weights)
    model.losses.set(losses)
    model.seen.set(seen)
    return chances, average


def _continue(new: Any, old: Sequence[Any], every: int) -> None:
    """Each model of `new` starts from the old models of its number; losses per record are kept."""
    seen = np.array([one.seen.get() for one in old])
    new.weights.set(averaged([one.weights.values for one in old], seen))
    parts = np.array([(seen // every).sum(), (seen % every).sum()])
    rounds, rest = map(int, evenly(parts, new.partition, new.parallelism))
    new.seen.set(rounds * every + rest)
    lost = np.sum([one.losses.values for one in old], axis=0)
    new.losses.set(lost * (rest % every) / max(parts[1], 1))


def _predictions(types: Mapping[str, pa.DataType], given: Parameters) -> dict[str, pa.Schema]:
    given.distinct(f"the key, {', '.join(PREDICTED)}", [*types, *PREDICTED])
    columns = [*types.items(), *zip(PREDICTED, KINDS, strict=True)]
    return {"predictions": pa.schema(columns)}


def _shared(
    base: Any, keys: KeyFields, local: pa.Schema, features: list[str], every: int
) -> type[Operator]:
    """The same operator, whose partitions learn from each other."""

    class SharedRegression(base):  # type: ignore[misc]
        """The same, and averages of all partitions, one epoch later."""

        outputs: ClassVar[Mapping[str, pa.Schema]] = {**base.outputs, "local": local}
        common = Vector(pa.float64(), 1 + len(features))  # the last average sent or received
        averaged = Value(pa.int64(), default=0)  # records in the last average sent

        def process(self, batch: Mapping[str, pa.Table], out: Emitter) -> None:
            heard, rows = batch["average"], batch["rows"]
            if heard.num_rows:
                self._move(matrix(heard.slice(heard.num_rows - 1), ["bias", *features], NAME)[:, 0])
            average = self.train(rows, out) if rows.num_rows else None
            if average is not None:
                self._send(rows, average, out)

        def rescale(self, old: Sequence[Any]) -> None:
            """Keeps what was learnt since the last average, and what is still to be sent."""
            super().rescale(old)
            seen = np.array([one.seen.get() for one in old])
            self.common.set(averaged([one.common.values for one in old], seen))
            self.averaged.set(self.seen.get() // every * every)

        def _move(self, average: Values) -> None:
            """Moves to the common average and keeps what was learnt since the last one sent."""
            self.weights.set(self.weights.values + (average - self.common.values)[:, None])
            self.common.set(average)

        def _send(self, rows: pa.Table, average: Values, out: Emitter) -> None:
            """Sends the average; the key of any row is an address of this partition."""
            learnt = self.seen.get() // every * every
            address = [array.slice(0, 1) for array in keys.arrays(rows)]
            counts = [[self.partition], [learnt - self.averaged.get()]]
            found = pa.table([*address, *counts, *average[:, None]], names=local.names)
            out.emit(found, to="local")
            self.common.set(average)
            self.averaged.set(learnt)

    return SharedRegression


def local_models(types: Mapping[str, pa.DataType], features: list[str]) -> pa.Schema:
    """Rows of the output `local`. The key is one of the partition's, so that replies reach it.

    `records`: how many the model has learnt from since the last one that was sent.
    """
    return pa.schema([*types.items(), *COUNTS, *((n, pa.float64()) for n in ("bias", *features))])


def _is_shared(spec: OperatorSpec, given: Parameters) -> bool:
    if list(spec.inputs) == ["input"]:
        return False
    if set(spec.inputs) != SHARED or spec.feedback != ("average",):
        back = "{from: average.replies, feedback: {delay: 1}}"
        raise given.inputs_wrong(spec.inputs, f"inputs: {{rows: NAME, average: {back}}}")
    return True


def labels(batch: pa.Table, column: str) -> Values:
    """The label of each row as 0.0 or 1.0; BadInputError for others."""
    need(batch, [column], NAME)
    found = one_array(batch[column])
    plain = found.cast(pa.int8()) if pa.types.is_boolean(found.type) else found
    wrong = ~np.isin(plain.to_numpy(zero_copy_only=False), [0, 1])
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInputError(
            f"library:{NAME}: column {column!r} is {like(found[row])} in row {row}, expected "
            "0 or 1; turn it into one of them in the operator before"
        )
    return np.asarray(plain.to_numpy(zero_copy_only=False), np.float64)


def learn(
    weights: Values, losses: Values, inputs: Values, wanted: Values, place: int, rate: float
) -> Values:
    """Updates `weights` and `losses` by gradient descent; record r is of model (place + r) % m.

    Returns the probability of each record's being 1, from before its step. Shapes: weights
    (features, m), inputs (features, n). All models do their steps in parallel; they are
    independent, so the grouping of steps does not matter. A model without a record in a step gets
    zeros.
    """
    size, models = weights.shape
    before = place % models
    steps = -(-(before + len(wanted)) // models)
    padding = (before, steps * models - before - len(wanted))
    rows = np.pad(inputs, ((0, 0), padding)).reshape(size, steps, models)
    ones = np.pad(wanted, padding).reshape(steps, models)
    there = np.pad(np.ones(len(wanted)), padding).reshape(steps, models)
    chances = np.empty((steps, models))
    for step in range(steps):
        x, y = rows[:, step], ones[step]
        z = (weights * x).sum(axis=0)
        losses += there[step] * (np.logaddexp(0, z) - y * z)
        chances[step] = 0.5 * (1 + np.tanh(0.5 * z))  # tanh, because exp(-z) overflows
        weights -= rate * ((chances[step] - y) * there[step]) * x
    return chances.reshape(-1)[before : before + len(wanted)]
