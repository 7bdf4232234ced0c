"""Averages the models of all partitions: `ModelAverage` (AF-Stream, experiment 5).

    model: {inputs: {rows: clicks, average: {from: average.replies, feedback: {delay: 1}}},
            key: user, use: "library:LogisticRegression", with: {features: [age, price],
            label: bought}}
    average: {input: model.local, key: user, parallelism: 1, use: "library:ModelAverage",
              with: {features: [age, price]}}
    sinks:
      models: {input: average, topic: models, format: json, order: free}

The models of one epoch are averaged, each weighted by the records that it has learnt from since its
partition sent the last one (as federated averaging, McMahan et al. 2017, section 2). The average is
emitted: `models` (their number), `records` (all so far), `bias`, and the weight of each feature.
The output `replies` has it once for each partition that has ever sent a model, under a key of that
partition, so that a feedback edge delivers it there.

Its own key is that of the models, because replies are addressed by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.library.floats import matrix
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator
from perseid.state import Table, Value

NAME = "ModelAverage"
EMITTED = ("models", "records", "bias")
EXAMPLES = {"features": "[age, price]", "types": "{user: int64}"}


def model_average(spec: OperatorSpec) -> type[Operator]:
    """`with:` has `features`, those of the models, and `types` of the key columns."""
    given = Parameters(spec, NAME, EXAMPLES)
    features = given.columns("features")
    given.distinct(f"{', '.join(EMITTED)} and the features", [*EMITTED, *features])
    types = given.types("types", dict.fromkeys(spec.key, "string"))
    given.distinct("the key, bias and the features", [*spec.key, "bias", *features])
    if spec.parallelism > 1:
        raise BadInputError(
            f"library:{NAME}: parallelism {spec.parallelism}, but only one partition can know the "
            "models of all; write `parallelism: 1` in this operator"
        )
    weights = [(name, pa.float64()) for name in ("bias", *features)]
    places = {f"key_{number}": kind for number, kind in enumerate(types.values())}

    class ModelAverage(Operator):
        """Averages each epoch's models, and keeps the addresses for the replies."""

        output = pa.schema([*((name, pa.int64()) for name in EMITTED[:2]), *weights])
        outputs: ClassVar[Mapping[str, pa.Schema]] = {
            "replies": pa.schema([*types.items(), *weights])
        }
        metadata = ()
        addresses = Table(key=pa.int64(), **places)  # by partition: one of its keys
        records = Value(pa.int64(), default=0)

        def process(self, batch: pa.Table, out: Emitter) -> None:
            each = batch["records"].to_numpy()
            models = matrix(batch, ["bias", *features], NAME)
            average = (models * each).sum(axis=1) / each.sum()  # no matrix product: README.md
            self.records.set(self.records.get() + int(each.sum()))
            counts = [[batch.num_rows], [self.records.get()]]
            out.emit(pa.table([*counts, *average[:, None]], names=self.output.names))
            keys = dict(zip(places, (batch[name] for name in types), strict=True))
            self.addresses.upsert(batch["partition"], **keys)
            known = self.addresses.scan().sort_by("key")
            copies = np.repeat(average[:, None], known.num_rows, axis=1)
            replies = [*(known[name] for name in places), *copies]
            names = self.outputs["replies"].names
            out.emit(pa.table(replies, names=names), to="replies")

    return ModelAverage
