"""Nexmark: auctions, persons and bids, and the right answers of the shipped queries.

Of 50 events one is a person, three are auctions, 46 are bids, as in Apache Beam's Nexmark; half of
the bids are for one of the hot auctions. `answers` computes each query from the list of all events,
with dictionaries and one event at a time: it shares no code with the jobs.

An event's time is off the order of the events by at most `JITTER_MS`, which is less than the delay
of the jobs' watermark, so no event is late. `Events.closing` is an event of each kind an hour
later: one in every partition lets the watermark pass all windows but its own.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

TOPICS = ("persons", "auctions", "bids")
QUERIES = ("q0", "q1", "q2", "q3", "q5", "q7", "q8")
START_MS = 1_700_000_000_000
STEP_MS = 10  # of event time between two events
JITTER_MS = 1_000
CLOSING_MS = 3_600_000
_HOT_EVERY = 100  # auctions
_STATES = ("OR", "ID", "CA", "AZ", "WA", "WY", "NY", "TX")
_CITIES = ("Phoenix", "Boise", "Portland", "Bend", "Kent", "Seattle", "Redmond", "Cheyenne")
_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter")
Event = tuple[str, dict[str, Any]]  # its topic and its columns
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Events:
    """The first `count` events of a seed."""

    count: int
    seed: int

    def __iter__(self) -> Iterator[Event]:
        chance = random.Random(self.seed)
        persons = auctions = 0
        for number in range(self.count):
            time = START_MS + number * STEP_MS + chance.randrange(-JITTER_MS // 2, JITTER_MS // 2)
            kind = number % 50
            if kind == 0:
                persons += 1
                yield "persons", {
                    "id": persons, "name": chance.choice(_NAMES), "city": chance.choice(_CITIES),
                    "state": chance.choice(_STATES), "time": time,
                }  # fmt: skip
            elif kind < 4:
                auctions += 1
                seller = max(1, persons + 2 - chance.randrange(20))  # some are not known yet
                yield "auctions", {
                    "id": auctions, "seller": seller, "category": chance.randrange(10, 15),
                    "time": time,
                }  # fmt: skip
            else:
                yield "bids", {
                    "auction": self._auction(chance, auctions),
                    "bidder": chance.randint(1, persons), "price": chance.randint(100, 10_000_000),
                    "time": time,
                }  # fmt: skip

    @staticmethod
    def _auction(chance: random.Random, auctions: int) -> int:
        if chance.random() < 0.5:
            return max(1, auctions // _HOT_EVERY * _HOT_EVERY)
        return max(1, auctions - chance.randrange(200))

    @property
    def closing(self) -> list[Event]:
        """Returns one event of each topic, after all others; only q0 and q1 answer to them."""
        time = START_MS + self.count * STEP_MS + CLOSING_MS
        return [
            ("persons", {"id": 0, "name": "", "city": "", "state": "", "time": time}),
            ("auctions", {"id": 0, "seller": -1, "category": 0, "time": time}),
            ("bids", {"auction": 1, "bidder": 0, "price": 0, "time": time}),
        ]


def key_of(topic: str, event: dict[str, Any]) -> bytes:
    """Returns the record's key: a person's or auction's number, and the auction of a bid."""
    return str(event["auction" if topic == "bids" else "id"]).encode()


def value_of(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def answers(query: str, events: Sequence[Event]) -> Counter[Row]:
    """Returns the rows that `query` must emit, in its sink's column order; closed windows only.

    A window is closed when its end is not above the latest event time less the jobs' delay of 2 s.
    """
    bids = [e for topic, e in events if topic == "bids"]
    persons = [e for topic, e in events if topic == "persons"]
    auctions = [e for topic, e in events if topic == "auctions"]
    closed_ms = max(e["time"] for _, e in events) - 2_000
    match query:
        case "q0":
            rows = [_bid(b) for b in bids]
        case "q1":
            rows = [_bid({**b, "price": b["price"] * 908 // 1000}) for b in bids]
        case "q2":
            rows = [(b["auction"], b["price"]) for b in bids if b["auction"] % 123 == 0]
        case "q3":
            rows = list(_local(persons, auctions))
        case "q5":
            rows = list(_hottest(bids, closed_ms))
        case "q7":
            rows = list(_highest(bids, closed_ms))
        case "q8":
            rows = list(_new(persons, auctions, closed_ms))
        case _:
            raise ValueError(f"unknown query {query}, expected one of {', '.join(QUERIES)}")
    return Counter(rows)


def _bid(bid: dict[str, Any]) -> Row:
    return bid["auction"], bid["bidder"], bid["price"], bid["time"]


def _local(persons: list[dict[str, Any]], auctions: list[dict[str, Any]]) -> Iterator[Row]:
    people = {p["id"]: p for p in persons if p["state"] in {"OR", "ID", "CA"}}
    for auction in auctions:
        seller = people.get(auction["seller"])
        if auction["category"] == 10 and seller is not None:
            yield seller["id"], seller["name"], seller["city"], seller["state"], auction["id"]


def _hottest(bids: list[dict[str, Any]], closed_ms: int) -> Iterator[Row]:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in bids:
        for start in range(bid["time"] // 2000 * 2000 - 8000, bid["time"] + 1, 2000):
            counts[start + 10_000][bid["auction"]] += 1
    for end, found in counts.items():
        most = max(found.values())
        if end <= closed_ms:
            yield from ((end, auction, n) for auction, n in found.items() if n == most)


def _highest(bids: list[dict[str, Any]], closed_ms: int) -> Iterator[Row]:
    windows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for bid in bids:
        windows[_end(bid)].append(bid)
    for end, found in windows.items():
        most = max(b["price"] for b in found)
        if end <= closed_ms:
            yield from ((end, *_bid(b)) for b in found if b["price"] == most)


def _new(
    persons: list[dict[str, Any]], auctions: list[dict[str, Any]], closed_ms: int
) -> Iterator[Row]:
    opened = {(a["seller"], _end(a)) for a in auctions}
    for person in persons:
        if (person["id"], _end(person)) in opened and _end(person) <= closed_ms:
            yield person["id"], _end(person), person["name"]


def _end(event: dict[str, Any]) -> int:
    return int((event["time"] // 10_000 + 1) * 10_000)
