"""What a fragment reports of its operators' states: the sums of their partitions' reports."""

from __future__ import annotations

from perseid.jobs.model.layout import build
from perseid.topics.records import OperatorState
from perseid.worker.epoch.reports import operator_states
from support.coordinator import job_spec


def test_partitions_of_an_operator_are_summed_and_what_has_no_state_is_left_out() -> None:
    layout = build(job_spec(parallelism=2), 1)
    first, second = (task.gid for task in layout.stateful_tasks)
    reported = [
        {"gid": first, "state_bytes": 100, "changed_bytes": 7},
        {"gid": 99, "process_ms": 3},
        {"gid": second, "state_bytes": 20, "changed_bytes": 1},
    ]
    assert operator_states(layout, reported) == (OperatorState("counts", 120, 8),)
    assert operator_states(layout, []) == ()
