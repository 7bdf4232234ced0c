"""The simulator itself: it is deterministic, takes turns as scheduled, and its faults strike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from perseid.testing.impure import pure
from perseid.testing.simulation import approximate
from perseid.testing.simulation.engine import Defect, Signal, Simulation
from perseid.testing.simulation.faults import STRENGTHS
from perseid.testing.simulation.scenario import run


@pytest.mark.parametrize("seed", [3, 13, 23, 33])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert (first.trace_hash, first.lines) == (second.trace_hash, second.lines)
    assert len(first.lines) > 20


def test_processes_with_other_hashes_of_text_give_the_same_histories(seed: int) -> None:
    """So nothing goes by the order of a set. A hash is of all events, not only of reports."""
    code = (
        "from perseid.testing.simulation import approximate, scenario\n"
        f"for seed in range({seed}, {seed} + 10):\n"
        "    print(seed, scenario.run(seed).trace_hash, approximate.run(seed).trace_hash)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": salt},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for salt in ("1", "2")
    ]  # fmt: skip
    (first, error), (second, _) = [child.communicate() for child in running]
    assert len(first.splitlines()) == 10, error
    assert first == second


def test_no_history_looks_at_a_clock_or_draws_by_itself() -> None:
    with pure("the simulation"):
        for seed in (7, 15, 23):  # event time and other layouts, outputs by name, a normal one
            run(seed)
        approximate.run(2)


def test_the_trace_hash_covers_unreported_events() -> None:
    def played(name: str) -> str:
        with Simulation(1) as simulation:
            simulation.spawn(simulation.group("g"), name, lambda: simulation.sleep(1.0))
            simulation.run(2.0)
            return simulation.trace_hash

    assert played("a") == played("a") != played("b")


def test_another_seed_gives_another_history() -> None:
    assert run(3).trace_hash != run(4).trace_hash


def test_every_fault_strikes_in_some_seed() -> None:
    struck: Counter[str] = Counter()
    for seed in range(60):
        struck += run(seed).struck
        if set(STRENGTHS) <= set(struck):
            return
    assert set(STRENGTHS) - set(struck) == set()


def test_processes_take_turns_in_the_order_of_their_times() -> None:
    seen: list[tuple[str, float]] = []
    with Simulation(1) as simulation:
        group = simulation.group("g")

        def work(name: str, pause_s: float) -> None:
            for _ in range(3):
                seen.append((name, simulation.now_s - 1000.0))
                simulation.sleep(pause_s)

        simulation.spawn(group, "a", lambda: work("a", 1.0))
        simulation.spawn(group, "b", lambda: work("b", 1.5))
        simulation.run(10.0)
    assert seen == [("a", 0.0), ("b", 0.0), ("a", 1.0), ("b", 1.5), ("a", 2.0), ("b", 3.0)]


def test_a_killed_group_ends_where_it_stands_and_is_buried_once() -> None:
    seen: list[str] = []
    with Simulation(1) as simulation:
        group = simulation.group("g", lambda: seen.append("buried"))

        def work() -> None:
            seen.append("before")
            simulation.sleep(5.0)
            seen.append("after")

        simulation.spawn(group, "a", work)
        simulation.after(1.0, lambda: simulation.kill(group))
        simulation.after(2.0, lambda: simulation.kill(group))
        simulation.run(10.0)
    assert seen == ["before", "buried"]


def test_a_paused_group_resumes_where_it_was() -> None:
    seen: list[float] = []
    with Simulation(1) as simulation:
        group = simulation.group("g")

        def work() -> None:
            simulation.sleep(1.0)
            seen.append(simulation.now_s - 1000.0)

        simulation.spawn(group, "a", work)
        simulation.after(0.5, lambda: simulation.pause(group, 4.0))
        simulation.run(10.0)
    assert seen == [4.5]


def test_what_waits_for_a_signal_continues_when_it_is_set() -> None:
    seen: list[str] = []
    with Simulation(1) as simulation:
        group, signal = simulation.group("g"), Signal(simulation)

        def waits() -> None:
            signal.wait()
            seen.append("woken")

        simulation.spawn(group, "waits", waits)
        simulation.after(1.0, lambda: seen.append("set"))
        simulation.after(1.0, signal.set)
        simulation.run(2.0)
    assert seen == ["set", "woken"]


def test_a_defect_in_a_process_ends_the_run() -> None:
    def work() -> None:
        raise Defect("as the test wants")

    with Simulation(1) as simulation:
        simulation.spawn(simulation.group("g"), "a", work)
        with pytest.raises(Defect, match="as the test wants"):
            simulation.run(1.0)
