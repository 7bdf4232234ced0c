"""Operators that come with perseid: `use: "library:Name"` with their parameters in `with:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseid.jobs.model.spec import OperatorSpec
    from perseid.jobs.operator import Operator


def build(name: str, spec: OperatorSpec) -> type[Operator]:
    """The operator class `library:name` for this use of it; key types come from `with: types`."""
    from perseid.jobs.library import (
        asof,
        decaying,
        distinct,
        grep,
        heavy_hitters,
        joins,
        k_means,
        logistic_regression,
        model_average,
        ripple_join,
        running,
        top_k,
        totals,
        windows,
    )

    builders = {
        "AsOf": asof.as_of,
        "CountByKey": totals.count_by_key,
        "Decaying": decaying.decaying,
        "Distinct": distinct.distinct,
        "Grep": grep.grep,
        "HeavyHitters": heavy_hitters.heavy_hitters,
        "Join": joins.join,
        "KMeans": k_means.k_means,
        "LogisticRegression": logistic_regression.logistic_regression,
        "ModelAverage": model_average.model_average,
        "RippleJoin": ripple_join.ripple_join,
        "RunningSum": running.running_sum,
        "Sum": totals.sum_by_key,
        "TopK": top_k.top_k,
        "Window": windows.window,
    }
    return builders[name](spec)
