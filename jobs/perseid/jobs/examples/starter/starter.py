"""What each customer has spent so far."""

from perseid.jobs import Emitter, Operator, Table, pa


class Spent(Operator):
    """Emits one record for each customer with orders in the epoch."""

    output = pa.schema([("customer", pa.string()), ("total", pa.int64())])
    state = Table(key=pa.string(), total=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        changed = self.state.add(batch["customer"], total=batch["amount"])
        out.emit(changed.rename_columns(["customer", "total"]))
