"""Verifier, meter and generator must not share code with what they judge."""

from __future__ import annotations

import subprocess
import sys

TOOLS = ("verify", "meter", "generator", "lines", "payments")
OURS = tuple(f"perseid.testing.{tool}" for tool in TOOLS)
PROGRAM = """
import sys
import perseid.testing.generator
import perseid.testing.meter.__main__
import perseid.testing.verify.__main__
print("\\n".join(sorted(m for m in sys.modules if m.split(".")[0] == "perseid")))
"""


def test_judges_import_nothing_of_the_engine() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "perseid.testing.verify.wordcount" in loaded
    allowed = {"perseid", "perseid.testing"}
    strangers = [m for m in loaded if m not in allowed and not m.startswith(OURS)]
    assert strangers == []
