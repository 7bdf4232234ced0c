"""Operators that come with perseid: `use: "library:Name"` with their parameters in `with:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseid.jobs.operator import Operator
    from perseid.jobs.spec import OperatorSpec

NAMES: tuple[str, ...] = (
    "AsOf", "CountByKey", "Decaying", "Join", "RunningSum", "Sum", "Window",
)  # fmt: skip


def build(name: str, spec: OperatorSpec) -> type[Operator]:
    """The operator class `library:name` for this use of it; key types come from `with: types`."""
    from perseid.jobs.library import asof, decaying, joins, running, totals, windows

    builders = {
        "AsOf": asof.as_of,
        "CountByKey": totals.count_by_key,
        "Decaying": decaying.decaying,
        "Join": joins.join,
        "RunningSum": running.running_sum,
        "Sum": totals.sum_by_key,
        "Window": windows.window,
    }
    return builders[name](spec)
