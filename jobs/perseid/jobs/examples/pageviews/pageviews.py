"""Page views with the country of their user, and running counts per country."""

from perseid.jobs import Emitter, Operator, Table, pa

UNKNOWN = "unknown"  # the country of a user who was not announced before his view's epoch ended


class Enrich(Operator):
    """Joins each view with what is known of its user, that epoch's announcements included."""

    output = pa.schema(
        [("user", pa.string()), ("page", pa.string()), ("ms", pa.int64()), ("country", pa.string())]
    )
    metadata = ()  # the records' own keys, times and offsets are not read
    users = Table(key=pa.string(), country=pa.string())

    def process(self, inputs: dict[str, pa.Table], out: Emitter) -> None:
        announced, views = inputs["users"], inputs["views"]
        self.users.upsert(announced["user"], country=announced["country"])
        country = self.users.lookup(views["user"])["country"].fill_null(UNKNOWN)
        out.emit(views.select(["user", "page", "ms"]).append_column("country", country))


class Countries(Operator):
    """Views per country and the milliseconds that they took together."""

    output = pa.schema([("country", pa.string()), ("views", pa.int64()), ("ms", pa.int64())])
    seen = Table(key=pa.string(), views=pa.int64(), ms=pa.int64())

    def combine(self, batch: pa.Table) -> pa.Table:
        summed = batch.group_by("country").aggregate([([], "count_all"), ("ms", "sum")])
        return summed.rename_columns(["country", "views", "ms"])

    def process(self, batch: pa.Table, out: Emitter) -> None:
        changed = self.seen.add(batch["country"], views=batch["views"], ms=batch["ms"])
        out.emit(changed.rename_columns(["country", "views", "ms"]))
