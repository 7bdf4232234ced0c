"""What JSON costs on its way to Arrow columns and back, here and in other libraries that can do it.

Run with `python tests/benchmarks/json_formats.py [--records N] [--runs N]`. polars, duckdb and
msgspec are no dependencies of perseid: `pip install polars duckdb msgspec` first; one that is not
there is left out of the tables. Prints the median over the runs of the process's CPU time, in
nanoseconds a record. The ways take turns within each run.

Each way reads an Arrow array of bytes, as a fetched batch is, and returns the columns of the
source. A library whose columns differ from perseid's is left out, and so are all where perseid
refuses a record: they then have no columns at all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # a task of a job has one core

import orjson
import pyarrow as pa
import pyarrow.json as pj

from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.worker.formats import decode, encode

Row = dict[str, Any]
Way = Callable[[Any], Any]
AWKWARD = 1000  # one record of so many
CITIES = ["Zürich", "東京都", "São Paulo", "Αθήνα", "Łódź", "Москва", "القاهرة"]
TEXTS = ['call "hi"', "C:\\data\\in", "two\nlines", "tab\there", "path/to", "caf\u00e9", "plain"]
PAYMENT = {"account": "string", "amount": "int64"}
ORDER = {f"{kind[0]}{i}": kind for kind in ("string", "int64", "float64", "bool") for i in range(5)}
EVENT = {"id": "int64", "user": "string", "at": "timestamp", "price": "float64"}
TEXT = {"id": "int64", "title": "string", "note": "string", "city": "string"}


def payment(chance: random.Random) -> Row:
    return {"account": f"a{chance.randrange(10_000)}", "amount": chance.randrange(1, 1000)}


def order(chance: random.Random) -> Row:
    makers: dict[str, Callable[[], Any]] = {
        "string": lambda: f"value-{chance.randrange(10**6)}",
        "int64": lambda: chance.randrange(10 ** chance.randrange(1, 19)),
        "float64": lambda: chance.choice([chance.random() * 100, chance.randrange(999) / 4]),
        "bool": lambda: chance.random() < 0.5,
    }
    return {name: makers[k]() if chance.random() < 0.95 else None for name, k in ORDER.items()}


def event(chance: random.Random) -> Row:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**12))
    items = [{"sku": f"s{chance.randrange(999)}", "n": chance.randrange(9), "tags": ["a", "b"]}
             for _ in range(3)]  # fmt: skip
    return {
        "id": chance.randrange(2**62), "meta": {"source": "web", "trace": {"span": [1, 2, 3]}},
        "user": f"u{chance.randrange(10**5)}", "items": items, "at": at.isoformat(),
        "price": round(chance.random() * 100, 2),
    }  # fmt: skip


def text(words: list[str]) -> Callable[[random.Random], Row]:
    def made(chance: random.Random) -> Row:
        return {
            "id": chance.randrange(10**9), "title": " ".join(chance.choices(words, k=2)),
            "note": " ".join(chance.choices(words, k=8)), "city": chance.choice(words),
        }  # fmt: skip

    return made


def lines(maker: Callable[[random.Random], Row], count: int, *, ascii_only: bool) -> list[bytes]:
    chance = random.Random(7)
    return [json.dumps(maker(chance), ensure_ascii=ascii_only).encode() for _ in range(count)]


def payloads(count: int) -> Iterator[tuple[str, dict[str, str], list[bytes]]]:
    """A name, the source's columns, and the records."""
    flat = lines(payment, count, ascii_only=False)
    yield "flat", PAYMENT, flat
    yield "20 fields", ORDER, lines(order, count, ascii_only=False)
    yield "nested", EVENT, lines(event, count, ascii_only=False)
    yield "escapes", TEXT, lines(text(TEXTS + CITIES), count, ascii_only=True)
    yield "Unicode", TEXT, lines(text(CITIES), count, ascii_only=False)
    odd_ones = (
        b'{"account": "a", "amount": 5.0}', b'{"account": "a", "amount": 1, "amount": 2}',
        b'{"account": "a", "amount": "x"}', b'{"account": ',
    )  # fmt: skip
    for name, odd in zip(("5.0", "doubled", "misfit", "broken"), odd_ones, strict=True):
        yield f"flat, 1 in {AWKWARD} {name}", PAYMENT, [
            odd if i % AWKWARD == AWKWARD // 2 else line for i, line in enumerate(flat)
        ]  # fmt: skip


def perseid_reads(columns: dict[str, str]) -> Way:
    return lambda values: decode.make("json", columns, None).decode(values)[0]


def arrow_reads(columns: dict[str, str]) -> Way:
    wanted = schema_of(columns)
    options = pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")

    def read(values: pa.BinaryArray) -> pa.Table:
        joined = b"\n".join(values.to_pylist())
        reading = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        return pj.read_json(pa.BufferReader(joined), reading, options)

    return read


def polars_reads(columns: dict[str, str]) -> Way:
    import polars as pl

    kinds = {"string": pl.String, "int64": pl.Int64, "float64": pl.Float64, "bool": pl.Boolean,
             "timestamp": pl.String}  # fmt: skip
    wanted = {name: kinds[kind] for name, kind in columns.items()}

    def read(values: pa.BinaryArray) -> pa.Table:
        joined = b"\n".join(values.to_pylist())
        return pl.read_ndjson(joined, schema=wanted).to_arrow().cast(schema_of(columns))

    return read


def duckdb_reads(columns: dict[str, str]) -> Way:
    import duckdb

    kinds = {"string": "VARCHAR", "int64": "BIGINT", "float64": "DOUBLE", "bool": "BOOLEAN",
             "timestamp": "TIMESTAMPTZ"}  # fmt: skip
    shape = json.dumps({name: kinds[kind] for name, kind in columns.items()})
    base = duckdb.connect(config={"threads": 1})
    base.execute("SET TimeZone = 'UTC'")
    query = f"SELECT unnest(from_json(v::VARCHAR, '{shape}')) FROM batch"

    def read(values: pa.BinaryArray) -> pa.Table:
        base.register("batch", pa.table({"v": values.cast(pa.string())}))
        return base.sql(query).to_arrow_table().cast(schema_of(columns))

    return read


def msgspec_reads(columns: dict[str, str]) -> Way:
    import msgspec

    kinds: dict[str, Any] = {"string": str, "int64": int, "float64": float, "bool": bool,
                             "timestamp": datetime}  # fmt: skip
    fields = [(name, kinds[kind] | None, None) for name, kind in columns.items()]
    decoder = msgspec.json.Decoder(list[msgspec.defstruct("Row", fields, gc=False)])  # type: ignore[misc]
    schema = schema_of(columns)

    def read(values: pa.BinaryArray) -> pa.Table:
        rows = decoder.decode(b"[" + b",".join(values.to_pylist()) + b"]")
        arrays = [pa.array([getattr(r, f.name) for r in rows], f.type) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    return read


def polars_writes(table: pa.Table) -> Any:
    import polars as pl

    frame = pl.from_arrow(table)
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_arrow()


def duckdb_writes(table: pa.Table) -> Any:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as base:
        base.register("batch", table)
        return base.sql("SELECT to_json(batch) FROM batch").to_arrow_table()


def msgspec_writes(table: pa.Table) -> Any:
    import msgspec

    encoder = msgspec.json.Encoder()
    return pa.array([encoder.encode(row) for row in table.to_pylist()], pa.binary())


def orjson_writes(table: pa.Table) -> Any:
    return pa.array([orjson.dumps(row) for row in table.to_pylist()], pa.binary())


def schema_of(columns: dict[str, str]) -> pa.Schema:
    return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in columns.items()])


READERS: dict[str, Callable[[dict[str, str]], Way]] = {
    "perseid": perseid_reads, "pyarrow": arrow_reads, "polars": polars_reads,
    "duckdb": duckdb_reads, "msgspec": msgspec_reads,
}  # fmt: skip
WRITERS: dict[str, Way] = {
    "perseid": encode.json_values, "orjson": orjson_writes, "polars": polars_writes,
    "duckdb": duckdb_writes, "msgspec": msgspec_writes,
}  # fmt: skip


def measured(ways: dict[str, Way], given: Any, runs: int) -> dict[str, float]:
    """Median CPU seconds of each way that can do it; the first run only warms up."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs + 1):
        for name in list(spent):
            start = time.process_time()
            try:
                ways[name](given)
            except MemoryError:
                raise
            except Exception:
                del spent[name]
            else:
                spent[name].append(time.process_time() - start)
    return {name: statistics.median(times[1:]) for name, times in spent.items()}


def same(ways: dict[str, Way], values: pa.BinaryArray) -> dict[str, Way]:
    """The ways that give the same columns as perseid for these records."""
    wanted = ways["perseid"](values)
    if wanted.num_rows < len(values):  # one is refused, which no other can do
        return {"perseid": ways["perseid"]}

    def agrees(way: Way) -> bool:
        try:
            return bool(way(values).equals(wanted))
        except MemoryError:
            raise
        except Exception:
            return False

    return {name: way for name, way in ways.items() if agrees(way)}


def available(makers: dict[str, Callable[[dict[str, str]], Way]], columns: dict[str, str]) -> Any:
    found = {}
    for name, maker in makers.items():
        try:
            found[name] = maker(columns)
        except ModuleNotFoundError:
            continue
    return found


def show(title: str, names: list[str], rows: list[tuple[str, int, int, dict[str, float]]]) -> None:
    print(f"\n{title}: ns of CPU a record\n")
    print(f"| payload | bytes | {' | '.join(names)} | perseid MB/s |")
    print("|---" * (len(names) + 3) + "|")
    for payload, size, count, spent in rows:
        cells = [f"{spent[n] / count * 1e9:,.0f}" if n in spent else "-" for n in names]
        speed = size / spent["perseid"] / 1e6
        print(f"| {payload} | {size // count} | {' | '.join(cells)} | {speed:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000, help="of a batch")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    read, written = [], []
    for name, columns, records in payloads(options.records):
        values = pa.array(records, pa.binary())
        size = sum(map(len, records))
        ways = same(available(READERS, columns), values)
        read.append((name, size, len(records), measured(ways, values, options.runs)))
        table = perseid_reads(columns)(values)
        spent = measured(WRITERS, table, options.runs)
        written.append((name, encode.json_values(table).nbytes, len(records), spent))
    show("JSON to columns", list(READERS), read)
    show("columns to JSON", list(WRITERS), written)


if __name__ == "__main__":
    main()
