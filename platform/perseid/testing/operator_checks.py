"""Checks that every operator must pass, on epochs that its author gives.

    check(Path("my-job"), "spent", [{"customer": ["ann"], "amount": [3]}, None])

Each check runs the same epochs again with an irrelevant change; an AssertionError names the epoch
and the different result. None is an epoch without input; `WithWatermark(5000, rows)` an
epoch whose token has the watermark 5000.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from perseid.jobs.environments import loading
from perseid.jobs.model.spec import MAIN
from perseid.testing.files import Crashed
from perseid.testing.operators import Harness, Inputs

PARALLELISM = 2  # more than one, so that partitions meet; few, so that a failure can be read
HASH_SEEDS = (1, 2)  # of the order of sets of strings, which differs between processes

OTHER = "from perseid.testing.operator_checks import answer_all; answer_all()"

Record = dict[str, Any]


@dataclass(frozen=True)
class WithWatermark:
    """The input of an epoch whose token has this watermark, in milliseconds since 1970."""

    watermark: int
    rows: Inputs = None


Epoch: TypeAlias = "Inputs | WithWatermark"
Question = tuple[Path, str, Sequence[Epoch]]
_others: dict[int, subprocess.Popen[bytes]] = {}  # by seed; they live until this process ends


@dataclass(frozen=True)
class Seen:
    """What one epoch emitted by output, and the state after it by primitive."""

    outputs: dict[str, list[Record]]
    state: dict[str, list[Record]]


def check(folder: Path, operator: str, epochs: Sequence[Epoch]) -> None:
    """Runs all checks that apply to the operator; `order: free` in job.yaml adds its own."""
    check_deterministic(folder, operator, epochs)
    check_recovery(folder, operator, epochs)
    if Harness(folder, operator).spec.order == "free":
        check_order_free(folder, operator, epochs)


def check_deterministic(folder: Path, operator: str, epochs: Sequence[Epoch]) -> None:
    """Checks that two other processes, with sets in another order, give the same bytes."""
    for seed in HASH_SEEDS:
        _ask(seed, (folder, operator, epochs))
    try:
        wanted = run(_harness(folder, operator), epochs)
    finally:  # no answer is left for the next question
        answers = [_answer(seed) for seed in HASH_SEEDS]
    for seen in answers:
        if isinstance(seen, str):
            raise AssertionError(f"{operator} fails in another process:\n{seen}")
        for epoch, (first, again) in enumerate(zip(wanted, seen, strict=True), 1):
            _same(f"{operator}, epoch {epoch}, in another process", first, again)


def check_recovery(folder: Path, operator: str, epochs: Sequence[Epoch]) -> None:
    """Checks that crashes at every step of a log entry, and a change of host, change nothing.

    Finds state that is kept outside of the primitives.
    """
    wanted = run(_harness(folder, operator), epochs)
    crashing, moving = _harness(folder, operator), _harness(folder, operator)
    for epoch, (rows, first) in enumerate(zip(epochs, wanted, strict=True), 1):
        _through_crashes(crashing, rows)
        _same(f"{operator}, epoch {epoch}, after crashes", first, _seen(crashing))
        moving.restore(moving.snapshot())
        _feed(moving, rows)
        _same(f"{operator}, epoch {epoch}, restored", first, _seen(moving))


def check_order_free(
    folder: Path, operator: str, epochs: Sequence[Epoch], *, tries: int = 5, seed: int = 0
) -> None:
    """Checks that shuffled rows in other splits give the same records and state, in any order."""
    wanted = [_unordered(seen) for seen in run(_harness(folder, operator), epochs)]
    chance = np.random.default_rng(seed)
    for attempt in range(tries):
        harness = _harness(folder, operator)
        for epoch, (rows, first) in enumerate(zip(epochs, wanted, strict=True), 1):
            mixed = _shuffled(harness, _rows_of(harness, rows), chance)
            harness.epoch(mixed, int(chance.integers(1, 5)))
            again = _unordered(_seen(harness))
            _same(f"{operator}, epoch {epoch}, shuffle {attempt} of seed {seed}", first, again)


def run(harness: Harness, epochs: Sequence[Epoch]) -> list[Seen]:
    """Returns what each epoch gave, in order."""
    seen = []
    for rows in epochs:
        _feed(harness, rows)
        seen.append(_seen(harness))
    return seen


def _feed(harness: Harness, given: Epoch) -> None:
    harness.epoch(_rows_of(harness, given))


def _rows_of(harness: Harness, given: Epoch) -> Inputs:
    """Sets the harness's watermark to the epoch's; returns the rows."""
    if not isinstance(given, WithWatermark):
        return given
    harness.watermark = given.watermark
    return given.rows


def _harness(folder: Path, operator: str) -> Harness:
    return Harness(folder, operator, parallelism=PARALLELISM)


def _seen(harness: Harness) -> Seen:
    return Seen(harness.outputs, {name: harness.rows(name) for name in harness.state_names})


def _through_crashes(harness: Harness, rows: Epoch) -> None:
    """Runs one epoch, restarted after a crash at its first file step, its second, ..."""
    step = 0
    while True:
        harness.files.crash_at(step)
        try:
            _feed(harness, rows)
            return
        except Crashed:
            harness.crash()
            step += 1
        finally:
            harness.files.crash_at(None)


def _ask(seed: int, question: Question) -> None:
    """Requests a run. Two processes work concurrently if both are asked first."""
    if seed not in _others:
        _others[seed] = subprocess.Popen(
            [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(seed),
                 "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    pipe = _others[seed].stdin
    assert pipe is not None
    pickle.dump(question, pipe)
    pipe.flush()


def _answer(seed: int) -> list[Seen] | str:
    """Returns what each epoch gave, or how it failed."""
    pipe = _others[seed].stdout
    assert pipe is not None
    try:
        found: list[Seen] | str = pickle.load(pipe)
    except EOFError:
        _end(_others.pop(seed))
        return "it died"
    return found


@atexit.register
def _end_all() -> None:
    for other in _others.values():
        _end(other)


def _end(other: subprocess.Popen[bytes]) -> None:
    """Ends a process by closing its input."""
    with contextlib.suppress(BrokenPipeError):
        other.communicate()


def _shuffled(harness: Harness, rows: Inputs, chance: np.random.Generator) -> Inputs:
    if rows is None:
        return None
    names = list(harness.spec.inputs)
    if isinstance(rows, Mapping) and names != ["input"]:
        return {name: _mixed(rows[name], chance) for name in names}
    return _mixed(rows, chance)


def _mixed(rows: Any, chance: np.random.Generator) -> pa.Table:
    """Returns the rows in another order and in chunks of other lengths."""
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
    mixed = table.take(pa.array(chance.permutation(table.num_rows)))
    at = int(chance.integers(0, table.num_rows + 1))
    return pa.concat_tables([mixed.slice(0, at), mixed.slice(at)])


def _unordered(seen: Seen) -> Seen:
    def by_text(found: dict[str, list[Record]]) -> dict[str, list[Record]]:
        return {name: sorted(rows, key=repr) for name, rows in found.items()}

    return Seen(by_text(seen.outputs), by_text(seen.state))


def _same(where: str, wanted: Seen, found: Seen) -> None:
    """Compares as text: then NaN is equal to itself."""
    for name, rows in wanted.outputs.items():
        if repr(rows) != repr(found.outputs[name]):
            to = "" if name == MAIN else f" to {name}"
            raise AssertionError(f"{where}: emitted {found.outputs[name]}{to}, expected {rows}")
    for name, rows in wanted.state.items():
        if repr(rows) != repr(found.state[name]):
            raise AssertionError(f"{where}: state {name} is {found.state[name]}, expected {rows}")


def answer_all() -> None:
    """The other process: reads questions, writes what each epoch gave or how it failed.

    What the operators print goes to standard error.
    """
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    with contextlib.suppress(EOFError):
        while True:
            folder, operator, epochs = pickle.load(sys.stdin.buffer)
            try:
                answer: list[Seen] | str = run(_harness(folder, operator), epochs)
            except Exception:
                answer = traceback.format_exc()
            loading.forget(folder)
            pickle.dump(answer, answers)
            answers.flush()
