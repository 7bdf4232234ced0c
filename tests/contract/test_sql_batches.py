"""Row-wise SQL over all column types gives what plain Spark SQL gives in batch, on any host."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

RECORDS = 12
COLUMNS = {
    "s": "string", "i": "int64", "f": "float64", "b": "bool", "r": "binary", "t": "timestamp",
}  # fmt: skip
TEXTS = ["", "a b c", "u1", "buy now or never", "Größe", "🚀 up", "it's", "%", "  x ", "*", "-- no"]
TIMES = [
    "2026-11-01T05:30:00Z", "2026-03-08T07:59:59.999999Z", "1969-12-31T23:59:59Z",
    "2026-11-21T02:30:00Z", "0001-01-02T00:00:00Z", "9999-12-30T23:59:59Z", "1883-11-18T17:00:00Z",
]  # fmt: skip


class Grammar:
    """Row-wise expressions by type that have an answer for every record, and queries of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def query(self) -> tuple[str, str]:
        """A query, and the same one for Spark, where nothing is hidden from `*`."""
        pick = self._chance
        star = pick.random() < 0.3
        columns = [f"{self.any_(2)} AS c{n}" for n in range(pick.randint(1, 4))]
        where = f" WHERE {self.bool_(2)}" if pick.random() < 0.6 else ""
        form = pick.choice([
            "SELECT {star}{columns} FROM input{where}",
            "SELECT {star}{columns} FROM input -- SELECT * of now()\n{where}",
            "SELECT /* rand() * 2 */ {star}{columns} FROM input{where}",
            "SELECT {star}{columns}, explode(split(s, ' ')) AS word FROM input{where}",
            "SELECT {columns}, part FROM input LATERAL VIEW explode(array(i, 2)) l AS part{where}",
            "WITH w AS (SELECT *, s AS other FROM (SELECT {star}i AS j, {own} FROM input) q) "
            "SELECT other, j FROM w" + (" WHERE j IS NOT NULL" if where else ""),
            "SELECT q.* FROM (SELECT {star}{columns} FROM input{where}) q",
            "SELECT {named}{columns} FROM input AS x{where}",
        ])  # fmt: skip

        def filled(all_: str, of_alias: str) -> str:
            return form.format(
                star=f"{all_}, " if star else "", named=f"{of_alias}, " if star else "",
                columns=", ".join(columns), where=where, own="s" if not star else "b AS d",
            )  # fmt: skip

        listed = ", ".join(COLUMNS)
        return filled("*", "x.*"), filled(listed, ", ".join(f"x.{c}" for c in COLUMNS))

    def any_(self, depth: int) -> str:
        kinds = [self.text, self.whole, self.real, self.bool_, self.time, self.other]
        return self._chance.choice(kinds)(depth)

    def text(self, depth: int) -> str:
        pick = self._chance
        if depth == 0:
            return pick.choice(["s", "s", "'u.*'", "'%buy now%'", "'it''s'", "'now()'", "'🚀'"])
        a, b, n = self.text(depth - 1), self.text(depth - 1), self.whole(depth - 1)
        return pick.choice([
            f"upper({a})", f"lower({a})", f"trim({a})", f"concat({a}, {b})", f"{a} || {b}",
            f"substring({a}, 2, 3)", f"replace({a}, 'u', '*')", f"coalesce({a}, {b})",
            f"CASE WHEN {self.bool_(depth - 1)} THEN {a} ELSE {b} END", f"CAST({n} AS STRING)",
            f"date_format({self.time(depth - 1)}, 'yyyy-MM-dd HH:mm:ss EEE')",
            f"CAST({self.time(depth - 1)} AS STRING)", f"CAST({self.bool_(depth - 1)} AS STRING)",
            f"regexp_replace({a}, '[a-m].*', '*')", f"lpad({a}, 8, '-')", f"initcap({a})",
            f"reverse({a})", "base64(r)", "hex(r)", f"md5({a})", f"concat_ws('-', {a}, {b})",
            f"split_part({a}, ' ', 1)", f"translate({a}, 'abc', 'xyz')", "CAST(key AS STRING)",
            f"from_unixtime({n} % 100000)", f"nullif({a}, {b})", f"format_string('%s!', {a})",
            f"CAST(CAST({n} AS DECIMAL(38,2)) AS STRING)", f"repeat({a}, 2)", f"soundex({a})",
            f"CAST(CAST({self.time(depth - 1)} AS DATE) AS STRING)", "decode(r, 'UTF-8')",
            f"to_json(named_struct('a', {n}, 't', {self.time(depth - 1)}))",
        ])  # fmt: skip

    def whole(self, depth: int) -> str:
        pick = self._chance
        if depth == 0:
            return pick.choice(["i", "i", "7", "-3", "0", "offset", "CAST(partition AS BIGINT)"])
        a, b, t = self.whole(depth - 1), self.whole(depth - 1), self.time(depth - 1)
        s = self.text(depth - 1)
        return pick.choice([
            f"try_add({a}, {b})", f"try_multiply({a}, {b})", f"try_subtract({a}, 2)", "i * 2",
            f"({a}) % 7", f"pmod({a}, 5)", f"length({s})", f"hour({t})", f"year({t})",
            f"day({t})", f"month({t})", f"dayofweek({t})", f"minute({t})", f"quarter({t})",
            f"ascii({s})", f"instr({s}, 'a')", f"coalesce({a}, {b})", f"unix_timestamp({t})",
            f"CASE WHEN {self.bool_(depth - 1)} THEN {a} ELSE {b} END", "unix_millis(timestamp)",
            f"CAST({self.bool_(depth - 1)} AS INT)", "crc32(r)", f"xxhash64({s}, {a})",
            f"size(split({s}, ' '))", f"try_cast({s} AS BIGINT)", f"bit_count({a})", "length(r)",
            f"datediff({t}, {self.time(depth - 1)})", f"weekofyear({t})", f"greatest({a}, {b})",
            f"CAST(sign({a}) AS BIGINT)", "shiftleft(7, 2)",
        ])  # fmt: skip

    def real(self, depth: int) -> str:
        pick = self._chance
        if depth == 0:
            return pick.choice(["f", "f", "0.5D", "1e3D", "2.25BD"])
        a, n = self.real(depth - 1), self.whole(depth - 1)
        return pick.choice([
            f"round({a}, 2)", f"try_divide({a}, {n})", f"CAST({n} AS DOUBLE)", f"floor({a})",
            f"sqrt(abs({a}))", f"greatest({a}, {self.real(depth - 1)})", f"({n}) * 0.25D",
            f"CAST({a} AS FLOAT)", f"coalesce({a}, 1D)", f"nanvl(CAST({a} AS DOUBLE), 0D)",
            f"try_cast({self.text(depth - 1)} AS DOUBLE)", f"CAST({n} AS DECIMAL(38,6))",
        ])  # fmt: skip

    def bool_(self, depth: int) -> str:
        pick = self._chance
        if depth == 0:
            return pick.choice(["b", "i > 3", "s IS NULL", "timestamp > '2020'", "offset > 4"])
        a, s, n = self.bool_(depth - 1), self.text(depth - 1), self.whole(depth - 1)
        return pick.choice([
            f"NOT ({a})", f"({a} AND {self.bool_(depth - 1)})", f"({a} OR b)", f"{n} > 4",
            f"{s} LIKE '%buy now%'", f"{s} RLIKE 'u.*'", f"{s} LIKE 'a_%' ESCAPE '!'",
            f"{s} IN ('u1', '*', 'now()')", f"{n} BETWEEN 0 AND 9", f"{s} IS NOT NULL",
            f"startswith({s}, 'u')", f"contains({s}, ' ')", f"{self.time(depth - 1)} >= t",
            f"{self.real(depth - 1)} < 10", f"i <=> {n}", f"{s} ILIKE '%BUY%'", "r = X'616263'",
            f"CAST({self.time(depth - 1)} AS DATE) = DATE '2026-11-01'",
        ])  # fmt: skip

    def time(self, depth: int) -> str:
        pick = self._chance
        if depth == 0:
            return pick.choice(["t", "t", "timestamp", "TIMESTAMP '2026-03-29 02:30:00'"])
        a = self.time(depth - 1)
        return pick.choice([
            f"date_trunc('HOUR', {a})", f"date_trunc('WEEK', {a})", f"{a} - INTERVAL '90' MINUTE",
            "timestamp_millis(i)", "make_timestamp(2026, 3, 8, 2, 30, 0)", f"coalesce({a}, t)",
            "CAST('2026-11-01 01:30:00' AS TIMESTAMP)", "to_timestamp('2026/11/01', 'yyyy/MM/dd')",
            f"CASE WHEN {self.bool_(depth - 1)} THEN {a} ELSE timestamp END",
            f"from_utc_timestamp({a}, 'America/New_York')", "timestamp_seconds(offset)",
        ])  # fmt: skip

    def other(self, depth: int) -> str:
        """Dates, decimals, arrays, maps, structs, binary, nothing."""
        pick = self._chance
        a, n, s = self.time(depth - 1), self.whole(depth - 1), self.text(depth - 1)
        return pick.choice([
            f"CAST({a} AS DATE)", f"last_day({a})", f"date_sub({a}, 3)", f"split({s}, ' ')",
            f"array({n}, i)", f"map('a', {n}, 'b', i)", f"named_struct('x', {s}, 'y', {n})",
            f"CAST({n} AS DECIMAL(38,2))", "r", "key", "NULL", f"struct({s}, r)", "i * 1.5BD",
            f"transform(array({n}, i), v -> v IS NULL)", f"filter(split({s}, ' '), w -> w > 'b')",
            f"{a} - t", f"CAST({a} AS TIMESTAMP_NTZ)", f"try_element_at(array({s}), 1)",
            f"array_sort(array({n}, 3))", f"encode({s}, 'UTF-8')", "CAST(partition AS SMALLINT)",
        ])  # fmt: skip


def records(chance: random.Random) -> list[dict[str, Any]]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    return [
        {
            "s": maybe(chance.choice(TEXTS)), "i": maybe(chance.choice([0, 1, -5, 12, 10**9])),
            "f": maybe(chance.choice([0.0, -1.5, 3.14159, 1e16])),
            "b": maybe(chance.random() < 0.5),
            "r": maybe(chance.choice(["abc", "", "Größe"])), "t": maybe(chance.choice(TIMES)),
        }
        for _ in range(RECORDS)
    ]  # fmt: skip


# Runs each query on the records as an epoch would, and on plain rows; answers with both.
SCRIPT = """
import json, os, sys
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
os.dup2(os.open("log", os.O_CREAT | os.O_WRONLY), 2)
from pyspark.sql import functions as F
from perseid.errors import PerseidError
from support import sql_batch
from perseid.topics.columns import Records
from perseid.worker.spark import spark_types, sql
from perseid.worker.spark.session import open_session
from perseid.worker.dataflow.source import SourcePlan

given = json.load(sys.stdin)
columns, rows, queries = given["columns"], given["rows"], given["queries"]
spark = open_session("local[2]", 2, "sql", Path("spark"))
epoch = [(n, 1793511000000 + n * 1000, b"k%d" % n, json.dumps(row).encode())
         for n, row in enumerate(rows)]
plan = SourcePlan("input", "json", columns, None, (), False)
frame, plan = sql_batch.source(spark, plan, Records.of(3, epoch), [q for q, _ in queries])

def instant(text):
    return text and datetime.fromisoformat(text.replace("Z", "+00:00"))

if given["plain"]:
    ddl = ("s string, i bigint, f double, b boolean, r binary, t timestamp, key binary, "
           "timestamp timestamp, partition int, offset bigint")
    origin = datetime(1970, 1, 1, tzinfo=timezone.utc)
    plain = [(row["s"], row["i"], row["f"], row["b"],
              None if row["r"] is None else bytearray(row["r"].encode()), instant(row["t"]),
              bytearray(key), origin + timedelta(milliseconds=ms), 3, n)
             for row, (n, ms, key, _) in zip(rows, epoch)]
    spark.createDataFrame(plain, ddl).coalesce(1).createOrReplaceTempView("input")

def shown(number, found):  # every type has a text there, and no Python process is needed for it
    text = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    return found.select(F.lit(number).alias("query"), text.alias("row"))

def collected(frames):
    rows = [[str(f.dtypes)] for f in frames]
    union = reduce(lambda a, b: a.union(b), [shown(n, f) for n, f in enumerate(frames)])
    for query, row in union.collect():
        rows[query].append(row)
    return rows

ours, theirs, wrong = [], [], []
frame = frame.persist()
for start in range(0, len(queries), 30):
    answers, plains = [], []
    for query, same in queries[start : start + 30]:
        try:
            answers.append(sql.answer(frame, query, "input", "o", plan.metadata))
            if given["plain"]:
                plains.append(spark.sql(same))
        except PerseidError as error:
            wrong.append([query, str(error)])
    if given["plain"]:
        both = collected([found for found, _ in answers] + plains)
        ours += both[: len(answers)]
        theirs += both[len(answers) :]
    else:
        ours += [[row.decode() for row in rows] for rows in sql_batch.values(answers)]
print("\\n" + json.dumps({"wrong": wrong, "ours": ours, "theirs": theirs}))
spark.stop()
"""


@pytest.mark.drawn(group="queries")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.matrix)])
def test_generated_queries_give_what_spark_gives_in_batch(
    in_spark: Callable[..., Any], seed: int, count: int
) -> None:
    chance = random.Random(seed)
    grammar = Grammar(chance)
    queries = [grammar.query() for _ in range(count)]
    given = {"columns": COLUMNS, "rows": records(chance), "queries": queries, "plain": True}
    found = in_spark(SCRIPT, json.dumps(given), timeout_s=1000)
    assert found["wrong"] == []
    different = [
        (query, ours, theirs)
        for (query, _), ours, theirs in zip(queries, found["ours"], found["theirs"], strict=True)
        if ours != theirs
    ]
    assert different == []
    assert sum(len(rows) > 1 for rows in found["ours"]) > count / 2  # after the types


ANYWHERE = [
    "SELECT s, i, f, b, base64(r) AS r, t FROM input",  # every type in and out
    "SELECT * EXCEPT (r), CAST(key AS STRING) AS k, partition, offset, timestamp FROM input",
    "SELECT date_format(t, 'yyyy-MM-dd HH:mm') AS d, hour(t) AS h, CAST(t AS STRING) AS s "
    "FROM input",
    "SELECT CAST(CAST(t AS DATE) AS STRING) AS day, date_trunc('DAY', t) AS start FROM input",
    "SELECT to_timestamp('2026-11-01 01:30:00') AS a, from_unixtime(i) AS b FROM input",
    "SELECT upper(s) AS u, lower('TITLE I') AS l, encode(s, 'UTF-8') = CAST(s AS BINARY) AS e, "
    "format_number(i, 2) AS n, date_format(t, 'EEEE MMMM') AS w, '${env:TZ}' AS z FROM input",
]
HOSTS = (
    {"TZ": "UTC", "LC_ALL": "C.UTF-8"},
    {"TZ": "America/New_York", "LC_ALL": "C", "LANG": "tr_TR", "SPARK_ANSI_SQL_MODE": "false",
     "JAVA_TOOL_OPTIONS": "-Dfile.encoding=ISO-8859-9 -Duser.language=tr -Duser.country=TR"},
)  # fmt: skip


@pytest.mark.drawn(group="queries")
def test_the_same_query_gives_the_same_bytes_on_hosts_that_differ(
    in_spark: Callable[..., Any],
) -> None:
    rows = records(random.Random(1))
    queries = [[query, query] for query in ANYWHERE]
    given = {"columns": COLUMNS, "rows": rows, "queries": queries, "plain": False}
    one, other = (in_spark(SCRIPT, json.dumps(given), **host) for host in HOSTS)
    assert one["wrong"] == []
    assert one == other
    places = [n for n, row in enumerate(rows) if row["t"] == "2026-11-21T02:30:00Z"]
    assert places
    for place in places:
        assert json.loads(one["ours"][2][place]) == {
            "d": "2026-11-21 02:30", "h": 2, "s": "2026-11-21 02:30:00"
        }  # fmt: skip
    assert json.loads(one["ours"][5][0])["z"] == "${env:TZ}"
    assert list(json.loads(one["ours"][1][3]).items())[-3:] == [
        ("partition", 3), ("offset", 3), ("timestamp", "2026-11-01T05:30:03+00:00"),
    ]  # fmt: skip
