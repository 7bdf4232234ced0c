"""The two jobs as the Python peers run them: one payment at a time, in their own ways around it."""

from __future__ import annotations

from typing import Any

Payment = dict[str, Any]


def balance(total: int | None, payment: Payment) -> tuple[int, Payment]:
    """The account's new total, and the payment with it."""
    new = (total or 0) + payment["amount"]
    payment["sum"] = new
    return new, payment


def enrich(payment: Payment) -> Payment | None:
    """The payment with two fields more; None for a small one."""
    amount = payment["amount"]
    if amount < 100:
        return None
    payment["cents"] = amount * 100
    payment["large"] = amount >= 500
    return payment
