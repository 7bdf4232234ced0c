"""Nexmark q3: auctions of a category with their seller, when he lives in certain states."""

import pyarrow.compute as pc

from perseid.jobs import Emitter, Operator, Pool, Table, pa

STATES = pa.array(["OR", "ID", "CA"])
CATEGORY = 10
PERSON = ("name", "city", "state")


class Sellers(Operator):
    """Persons of the states."""

    output = pa.schema([("seller", pa.int64()), *((n, pa.string()) for n in PERSON)])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        local = batch.filter(pc.is_in(batch["state"], STATES))
        out.emit(local.select(["id", *PERSON]).rename_columns(["seller", *PERSON]))


class Items(Operator):
    """Auctions of the category."""

    output = pa.schema([("seller", pa.int64()), ("auction", pa.int64())])
    metadata = ()

    def process(self, batch: pa.Table, out: Emitter) -> None:
        kept = batch.filter(pc.equal(batch["category"], CATEGORY))
        out.emit(kept.select(["seller", "id"]).rename_columns(["seller", "auction"]))


class Local(Operator):
    """Joins them, whichever comes first. Auctions wait for a seller who is not known yet."""

    output = pa.schema(
        [("seller", pa.int64()), *((n, pa.string()) for n in PERSON), ("auction", pa.int64())]
    )
    people = Table(key={"seller": pa.int64()}, **{n: pa.string() for n in PERSON})
    waiting = Pool(
        {"seller": pa.int64(), "auction": pa.int64(), "epoch": pa.int64()},
        time="epoch", key=["seller"],
    )  # fmt: skip

    def process(self, inputs: dict[str, pa.Table], out: Emitter) -> None:
        sellers, items = inputs["sellers"], inputs["items"]
        if sellers.num_rows:
            known = self.people.lookup(sellers.select(["seller"]))["found"]
            new = sellers.filter(pc.invert(known))
            places, found = self.waiting.match(new.select(["seller"]))
            people = new.take(pa.array(places)).select(["seller", *PERSON])
            out.emit(people.append_column("auction", found["auction"]))
            self.people.upsert(new.select(["seller"]), **{n: new[n] for n in PERSON})
        if items.num_rows:
            seen = self.people.lookup(items.select(["seller"]))
            here = seen.append_column("auction", items["auction"]).filter(seen["found"])
            out.emit(here.select(["seller", *PERSON, "auction"]))
            missing = items.filter(pc.invert(seen["found"]))
            epoch = pa.array([self.epoch] * missing.num_rows, pa.int64())
            self.waiting.append(missing.append_column("epoch", epoch))
