"""The shipped jobs `audience` and `orders` against loops over plain lists."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from perseid.jobs.repository import job_folders
from perseid.testing.operators import Harness

MINUTE = 60_000
HOUR = 60 * MINUTE
Row = dict[str, Any]

VIEWS = pa.schema([("user", pa.string()), ("page", pa.string()), ("ms", pa.int64())])
ORDERS = pa.schema(
    [("order", pa.string()), ("customer", pa.string()), ("item", pa.string()),
     ("pieces", pa.int64()), ("ms", pa.int64())]
)  # fmt: skip
PRICES = pa.schema([("item", pa.string()), ("cents", pa.int64()), ("ms", pa.int64())])
PAYMENTS = pa.schema([("customer", pa.string()), ("cents", pa.int64()), ("ms", pa.int64())])


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def test_visitors_and_hot_pages_are_those_of_the_pages_alone() -> None:
    pages, visitors, hot = (
        Harness(job_folders.example("audience"), name) for name in ("pages", "visitors", "hot")
    )
    chance = random.Random(8)
    seen: dict[str, set[str]] = {}
    times: dict[str, list[int]] = {}
    for epoch in range(5):
        views = [
            {"user": f"u{chance.randrange(30)}", "ms": epoch * MINUTE + second * 1000,
             "page": chance.choice(["/", "/news", "/news.css", "/about", "/logo.png"])}
            for second in range(60)
        ]  # fmt: skip
        found = pages.epoch(table(views, VIEWS), splits=3)
        assert found == [row for row in views if row["page"] in ("/", "/news", "/about")]
        for row in found:
            seen.setdefault(row["page"], set()).add(row["user"])
            times.setdefault(row["page"], []).append(row["ms"])
        rows = table(found, VIEWS)
        emitted = {row["page"]: row["distinct"] for row in visitors.epoch(rows)}
        assert emitted.items() <= {page: len(users) for page, users in seen.items()}.items()
        for row in hot.epoch(rows):
            ages = [max(times[row["page"]]) - ms for ms in times[row["page"]]]
            assert row["sum"] == pytest.approx(sum(0.5 ** (age / (10 * MINUTE)) for age in ages))
        visitors.crash()
        hot.crash()
    counts = {row["page"]: row["distinct"] for row in visitors.rows("counts")}
    assert counts == {page: len(users) for page, users in seen.items()}


def test_orders_meet_the_price_of_their_time_and_the_payments_of_their_hour() -> None:
    priced, paid, pairs = (
        Harness(job_folders.example("orders"), name, parallelism=2)
        for name in ("priced", "paid", "pairs")
    )
    chance = random.Random(9)
    orders: list[Row] = []
    prices: list[Row] = []
    payments: list[Row] = []
    found: dict[str, list[Row]] = {"priced": [], "paid": [], "pairs": []}
    for epoch in range(30):  # of ten minutes each
        start = epoch * 10 * MINUTE

        def moment(start: int = start) -> int:
            return start + chance.randrange(10 * MINUTE)

        some = [
            {"order": f"o{epoch}-{i}", "customer": f"c{chance.randrange(4)}", "ms": moment(),
             "item": chance.choice("xyz"), "pieces": chance.randint(1, 5)}
            for i in range(20)
        ]  # fmt: skip
        changed = [{"item": chance.choice("xyz"), "cents": chance.randint(1, 99), "ms": moment()}]
        money = [
            {"customer": f"c{chance.randrange(4)}", "cents": i, "ms": moment()} for i in range(15)
        ]
        orders, prices, payments = orders + some, prices + changed, payments + money
        priced.watermark = paid.watermark = start - 5000
        left = table(some, ORDERS)
        found["priced"] += priced.epoch({"left": left, "right": table(changed, PRICES)})
        found["paid"] += paid.epoch({"left": left, "right": table(money, PAYMENTS)})
        found["pairs"] = pairs.epoch({"left": left, "right": table(money, PAYMENTS)})
        if epoch % 7 == 0:
            priced.crash()
            paid.crash()
            pairs.crash()
    priced.watermark = 10**9
    found["priced"] += priced.epoch()

    def price(order: Row) -> int | None:
        """Of the item's newest change at or before the order, None without one."""
        known = [p for p in prices if p["item"] == order["item"] and p["ms"] <= order["ms"]]
        return max(known, key=lambda p: p["ms"])["cents"] if known else None

    assert {row["order"]: row["cents"] for row in found["priced"]} == {
        order["order"]: price(order) for order in orders
    }
    assert len(found["priced"]) == len(orders)
    met = [
        (order["order"], payment["cents"], payment["ms"]) for order in orders
        for payment in payments
        if order["customer"] == payment["customer"] and order["ms"] // HOUR == payment["ms"] // HOUR
    ]  # fmt: skip
    emitted = [(row["order"], row["cents"], row["right_ms"]) for row in found["paid"]]
    assert sorted(emitted) == sorted(met)
    truth = sum(o["customer"] == p["customer"] for o in orders for p in payments)
    estimate = sum(row["estimate"] for row in found["pairs"])
    error = sum(row["error"] ** 2 for row in found["pairs"]) ** 0.5
    assert abs(estimate - truth) < 2 * error < truth
