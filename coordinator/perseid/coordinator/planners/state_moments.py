"""When operators' sizes turn, and when their total begins to grow: the input of a policy.

Meteor Shower section 4.3: the dynamic operators report their turning points with their change rates
from there on, and the total begins to grow when the sum of the rates becomes positive.

>>> from perseid.coordinator.planners.state_sizes import Point
>>> saw = Sizes({"window": [Point(0.0, 9.0), Point(2.0, 1.0), Point(4.0, 9.0)]})
>>> [(moment.time_s, moment.total, moment.grows) for moment in moments(saw)]
[(0.0, 9.0, False), (2.0, 1.0, True)]

All is O(turning points * operators).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseid.coordinator.planners.state_sizes import Numbers, Sizes


@dataclass(frozen=True, slots=True)
class Moment:
    """A turning point: whether its operator lost more than half, and the total begins to grow."""

    time_s: float
    total: float
    halved: bool
    grows: bool


def moments(sizes: Sizes) -> list[Moment]:
    """All turning points of all operators, in order of time."""
    rates: dict[str, float] = {}
    last: dict[str, float] = {}
    found, before = [], 0.0
    reports = sizes.reports()
    totals = sizes.at([report.time_s for report in reports])
    for report, total in zip(reports, totals, strict=True):
        halved = report.bytes < last.get(report.operator, 0.0) / 2
        rates[report.operator], last[report.operator] = report.rate, report.bytes
        now = sum(rates.values())
        found.append(Moment(report.time_s, float(total), halved, now > 0 >= before))
        before = now
    return found


def growths(sizes: Sizes) -> Numbers:
    """When the total of the dynamic operators is about to grow: the moments of a policy."""
    return np.array([m.time_s for m in moments(dynamic_of(sizes)) if m.grows])


def dynamic_of(sizes: Sizes) -> Sizes:
    """The dynamic operators; all of them if none is dynamic."""
    dynamic = sizes.dynamic
    return sizes.of(dynamic) if dynamic else sizes
