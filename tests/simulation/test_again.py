"""A failed history prints one command, and the command plays that history in another process."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from perseid.errors import UsageError
from perseid.testing.simulation import again
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scripts import (
    Corrected,
    DamagedLogs,
    LateAnswers,
    LedgerCut,
    Overtaken,
    Rescaled,
    SourceCut,
)
from perseid.testing.simulation.swarm import Script, Swarm
from support.mutants import PLANTED
from support.mutants.planting import Planted, find

WINDOWS = Shape(workers=2, hosts=1, totals=2, relays=0, input_s=10.0, size_timed=True)
# By seed alone, by its shape, by a script, and of another world.
FAILING = {
    "drawn": PLANTED["no_read_back"],
    "shape": Planted(PLANTED["ledger_outside_the_transaction"].mutant, WINDOWS),
    "script": PLANTED["markers_are_forgotten"],
    "approximate": PLANTED["checked_afterwards"],
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("case", FAILING)
def test_the_printed_command_fails_alike(case: str) -> None:
    found = find(FAILING[case], range(20))
    assert found is not None
    *_, last = found[1].explain().splitlines()
    reported, _, command = last.partition("; repeat it: ")
    python, *words = shlex.split(command)
    assert python == "python"
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert f"{found[1].error}; {reported}\n" in ran.stdout


@pytest.mark.parametrize(
    "script",
    [
        Rescaled("leader", 0.15),
        Overtaken(0.5),
        LedgerCut("begin", of_new_owner=True),
        SourceCut(2),
        LateAnswers(0.5),
        Swarm(cut=0.1, asks=True),
        DamagedLogs(0.1),
        Corrected(pause_worker=0.02, where="relay-0"),
    ],
    ids=lambda script: str(script.name),
)
def test_a_command_has_the_whole_history(script: Script) -> None:
    shape = Shape(workers=1, period_s=0.1 + 0.2, sided=True)
    words = shlex.split(again.command(7, shape, script))
    assert again.parsed(Shape, words[words.index("--shape") + 1]) == shape
    assert again.script_of(words[words.index("--script") + 1]) == script
    assert again.parsed(Shape, again.differing(Shape())) == Shape()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nothing", "no script 'nothing': there are ledger-cut"),
        ("rescaled:when=1", "no 'when': there are what, moment_s"),
        ("rescaled:moment_s=soon", "moment_s=soon: expected float"),
    ],
)
def test_what_is_no_script_is_reported(text: str, shown: str) -> None:
    with pytest.raises(UsageError, match=shown):
        again.script_of(text)
