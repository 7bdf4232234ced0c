"""Payments: the records of the benchmarks that emit every update, and their right answers.

    key a00042, value {"account": "a00042", "amount": 17, "sent": 0}

Accounts are uniform over 100,000, amounts over 0..999. Kafka's own partitioner chooses a key's
partition. `sent` is the time of sending in ns if the load is stamped, else 0. The right answers are
computed for one payment at a time and with a dictionary, without code of the systems under test.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from perseid.testing.lines import BLOCK_LINES

ACCOUNTS = 100_000
AMOUNTS = 1_000
_POOL_BLOCKS = 200
_UNSTAMPED = b'"sent": 0}'

Answer = dict[str, Any] | None  # what one payment leads to; None: nothing


class Payments:
    """The endless sequence of payments of a seed, in blocks of 1,000 from a pool of 200."""

    keyed = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pool: dict[int, list[dict[str, bytes]]] = {}

    def block(self, number: int) -> list[dict[str, bytes]]:
        """Returns payments as `produce_batch` takes them. The caller must not change them."""
        number %= _POOL_BLOCKS
        if number not in self._pool:
            random = np.random.default_rng([self._seed, number])
            accounts = random.integers(0, ACCOUNTS, BLOCK_LINES).tolist()
            amounts = random.integers(0, AMOUNTS, BLOCK_LINES).tolist()
            self._pool[number] = list(map(_payment, accounts, amounts))
        return self._pool[number]

    @staticmethod
    def stamped(messages: list[dict[str, bytes]]) -> list[dict[str, bytes]]:
        """Returns the payments with the time of sending, a nanosecond apart."""
        now_ns = time.time_ns()
        cut = len(_UNSTAMPED)
        return [
            {"key": m["key"], "value": m["value"][:-cut] + b'"sent": %d}' % (now_ns + i)}
            for i, m in enumerate(messages)
        ]


def _payment(account: int, amount: int) -> dict[str, bytes]:
    key = b"a%05d" % account
    return {"key": key, "value": b'{"account": "%s", "amount": %d, "sent": 0}' % (key, amount)}


def balances() -> Callable[[dict[str, Any]], Answer]:
    """Returns the right answers of the job `balances`, one payment after the other."""
    total: dict[str, int] = {}

    def answer(payment: dict[str, Any]) -> Answer:
        account = payment["account"]
        total[account] = total.get(account, 0) + payment["amount"]
        return {**payment, "sum": total[account]}

    return answer


def enriched() -> Callable[[dict[str, Any]], Answer]:
    """Returns the right answers of the job `enrich`."""

    def answer(payment: dict[str, Any]) -> Answer:
        amount = payment["amount"]
        if amount < 100:
            return None
        return {**payment, "cents": amount * 100, "large": amount >= 500}

    return answer


JOBS = {"balances": balances, "enrich": enriched}
