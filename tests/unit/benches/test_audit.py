"""The figures of `bench audit`: speeds from notes of progress, ratios within a run, CPU time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benches import audit
from perseid.errors import PermanentError


def test_a_speed_is_of_the_epochs_between_the_first_and_the_last_note() -> None:
    records = {1: 7, 2: 100, 3: 0, 4: 300, 5: 9}
    assert audit.speed([(10.0, 1), (12.0, 2), (14.0, 4)], records) == 100.0


@pytest.mark.parametrize("notes", [[], [(1.0, 4)], [(1.0, 4), (6.0, 4)]])
def test_an_audit_too_short_for_a_speed_is_an_error(notes: list[tuple[float, int]]) -> None:
    with pytest.raises(PermanentError, match="--records"):
        audit.speed(notes, {4: 1})


def test_ratios_are_taken_within_a_run() -> None:
    job = [{"rows_per_s": 100_000.0}, {"rows_per_s": 400_000.0}]
    audited = [{"rows_per_s": 90_000.0}, {"rows_per_s": 200_000.0}]
    first, second = audit.rows_of_speed(job, audited)
    assert (first["rows_per_s"], second["rows_per_s"]) == (250_000.0, 145_000.0)
    assert (second["ratio"], second["times_live"]) == (0.7, 7.25)
    alone = [{"cpu_s_per_million": 2.0, "p50_ms": 50.0, "p99_ms": 90.0}]
    cost = [{"cpu_s_per_million": 3.0, "p50_ms": 60.0, "p99_ms": 90.0}]
    live, with_audit = audit.rows_of_cost(alone, cost)
    assert live["p50_ms"] == 50.0
    assert [with_audit[n] for n in ("cpu_ratio", "p50_ratio", "p99_ratio")] == [1.5, 1.2, 1.0]


def test_cpu_seconds_are_of_the_ended_processes_too() -> None:
    before_s = audit.cpu_s([os.getpid()])
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert audit.cpu_s([os.getpid()]) > before_s
