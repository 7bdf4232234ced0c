"""The shipped jobs `audience` and `orders` on a whole cluster, their worker killed on the way.

Their output is computed again here by loops over plain lists. A normal run draws one of them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.stack import example
from perseid.topics.admin import TopicAdmin

MINUTE = 60_000
HOUR = 60 * MINUTE
PARTS = 6  # of the input: it comes in so many pieces, so in several epochs
KILL_AFTER = 2  # of them
END_MS = PARTS * 50 * MINUTE + 10 * HOUR  # after all that is sent, and all windows
Row = dict[str, Any]


def feed(running: RunningCluster, topic: str, found: list[Row]) -> None:
    """In the order of their times, as a shop's system writes them: so none is late."""
    ordered = sorted(found, key=lambda row: row["ms"])
    running.produce(topic, [json.dumps(row).encode() for row in ordered])


def remove(running: RunningCluster, job: str, *sources: str) -> None:
    """With all its topics, so that another test may begin again."""
    running.do("jobs", "remove", job, "--purge")
    TopicAdmin(running.kafka).delete(list(sources))


def visitors_and_hot_pages_are_those_of_all_views(running: RunningCluster, tmp_path: Path) -> None:
    running.topic("site-views", 2)
    running.do("jobs", "apply", str(example(tmp_path / "audience", "audience", {})))
    chance = random.Random(8)
    views: list[Row] = []
    for part in range(PARTS):
        some = [
            {"user": f"u{chance.randrange(300)}", "ms": part * MINUTE + number * 50,
             "page": chance.choice(["/", "/news", "/news.css", "/about", "/logo.png"])}
            for number in range(1000)
        ]  # fmt: skip
        feed(running, "site-views", some)
        views += some
        if part == KILL_AFTER:
            running.kill_owner("audience")
        else:
            running.wait_caught_up("audience")
    running.wait_caught_up("audience")

    read = [row for row in views if row["page"] in ("/", "/news", "/about")]
    counted: dict[str, int] = {}
    for row in running.rows("site-visitors"):
        assert row["distinct"] > counted.get(row["page"], 0), f"{row} sent twice or out of order"
        counted[row["page"]] = row["distinct"]
    users = {row["page"]: {r["user"] for r in read if r["page"] == row["page"]} for row in read}
    assert counted == {page: len(found) for page, found in users.items()}
    hot = {row["page"]: row for row in running.rows("site-hot-pages")}
    assert hot.keys() == users.keys()
    for page, row in hot.items():
        times = [r["ms"] for r in read if r["page"] == page]
        assert row["at"] == max(times)
        halved = sum(0.5 ** ((max(times) - ms) / (10 * MINUTE)) for ms in times)
        assert row["sum"] == pytest.approx(halved)
    remove(running, "audience", "site-views")


class Shop:
    """What a shop's systems write: 50 minutes of orders, prices and payments at a time."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.orders: list[Row] = []
        self.prices: list[Row] = []
        self.payments: list[Row] = []

    def next(self, number: int) -> dict[str, list[Row]]:
        """New rows by topic."""
        chance, begin = self._chance, number * 50 * MINUTE
        orders = [
            {"order": f"o{number}-{i}", "customer": f"c{chance.randrange(40)}",
             "item": chance.choice("xyz"), "pieces": chance.randint(1, 5),
             "ms": begin + chance.randrange(50 * MINUTE)}
            for i in range(300)
        ]  # fmt: skip
        times = chance.sample(range(begin, begin + 50 * MINUTE), 8)  # no two at one moment
        prices = [
            {"item": chance.choice("xyz"), "cents": chance.randint(1, 99), "ms": ms} for ms in times
        ]
        payments = [
            {"customer": f"c{chance.randrange(40)}", "cents": number * 1000 + i,
             "ms": begin + chance.randrange(50 * MINUTE)}
            for i in range(250)
        ]  # fmt: skip
        self.orders += orders
        self.prices += prices
        self.payments += payments
        return {"shop-prices": prices, "shop-payments": payments, "shop-orders": orders}

    def price(self, order: Row) -> int | None:
        """Of the item's newest change at or before the order, None without one."""
        known = [p for p in self.prices if p["item"] == order["item"] and p["ms"] <= order["ms"]]
        return max(known, key=lambda p: p["ms"])["cents"] if known else None

    def met(self) -> list[tuple[str, int, int]]:
        """(order, cents, time of the payment) of each order and payment of an hour."""
        return [
            (order["order"], payment["cents"], payment["ms"])
            for order in self.orders
            for payment in self.payments
            if order["customer"] == payment["customer"]
            and order["ms"] // HOUR == payment["ms"] // HOUR
        ]


def orders_meet_the_price_of_their_time_and_the_payments_of_their_hour(
    running: RunningCluster, tmp_path: Path
) -> None:
    topics = ("shop-orders", "shop-prices", "shop-payments")
    for topic in topics:
        running.topic(topic, 1)
    running.do("jobs", "apply", str(example(tmp_path / "orders", "orders", {})))
    shop = Shop(9)
    for part in range(PARTS):
        for topic, found in shop.next(part).items():
            feed(running, topic, found)
        if part == KILL_AFTER:
            running.kill_owner("orders")
        else:
            running.wait_caught_up("orders")
    real = len(shop.orders)
    last = {"customer": "z", "item": "z", "cents": 0, "ms": END_MS}
    feed(running, "shop-prices", [{name: last[name] for name in ("item", "cents", "ms")}])
    feed(running, "shop-payments", [{name: last[name] for name in ("customer", "cents", "ms")}])
    feed(running, "shop-orders", [{**last, "order": "last", "pieces": 1}])
    view = running.wait_job(
        "orders",
        lambda j: (
            (j["watermark_ms"] or 0) >= END_MS - 5000
            and j["committed_epoch"] == j["epoch"]
            and j["lag"] == 0
        ),
        "past all windows",
    )
    assert view["late_records"] == 0

    priced = [row for row in running.rows("shop-orders-priced") if row["order"] != "last"]
    assert len(priced) == real
    assert {row["order"]: row["cents"] for row in priced} == {
        order["order"]: shop.price(order) for order in shop.orders
    }
    paid = Counter(
        (row["order"], row["cents"], row["right_ms"])
        for row in running.rows("shop-orders-paid")
        if row["order"] != "last"
    )
    assert paid == Counter(shop.met())
    newest = sorted(running.rows("shop-join-size"), key=lambda row: row["left"] + row["right"])
    size = {row["partition"]: row for row in newest}  # the newest; the sink's `order` is free
    assert sum(row["left"] for row in size.values()) == real + 1
    assert sum(row["right"] for row in size.values()) == len(shop.payments) + 1
    truth = 1 + sum(o["customer"] == p["customer"] for o in shop.orders for p in shop.payments)
    estimate = sum(row["estimate"] for row in size.values())
    error = sum(row["error"] ** 2 for row in size.values()) ** 0.5
    assert abs(estimate - truth) < 2 * error < truth
    remove(running, "orders", *topics)


JOBS = {
    "audience": visitors_and_hot_pages_are_those_of_all_views,
    "orders": orders_meet_the_price_of_their_time_and_the_payments_of_their_hour,
}


@pytest.mark.drawn
@pytest.mark.parametrize("job", JOBS)
def test_each_of_them_answers_as_plain_loops_do(
    running: RunningCluster, tmp_path: Path, job: str
) -> None:
    JOBS[job](running, tmp_path)
