"""Audits in a process that a test starts once (`audit_process`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("audit_process.py")
END_S = 60.0


class Audits:
    """Asks for audits and reads their reports. `log`: what the process wrote on stderr."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self.log = process, log
        self._asked = 0

    def audit(
        self, job: str, epochs: str, revision: Path | None = None, tolerances: Sequence[str] = (),
        mixed: Sequence[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """The report, `{"refused": why}` or `{"error": text}`."""
        order = {
            "job": job, "epochs": epochs, "revision": str(revision) if revision else None,
            "tolerances": list(tolerances), "mixed": list(mixed),
        }  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._asked += 1
        while True:  # past the answers for which a test did not wait
            line = self._process.stdout.readline()
            assert line, f"the process of audits has ended: {self.log.read_text()[-4000:]}"
            found = json.loads(line)
            if found["number"] == self._asked - 1:
                answer: dict[str, Any] = found["answer"]
                return answer


@contextmanager
def audits(data: Path, folder: Path) -> Iterator[Audits]:
    """`data`: of the cluster; `folder`: for the audits' files."""
    log = folder / "audits.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(data), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, text=True,
        )  # fmt: skip
        try:
            yield Audits(process, log)
        finally:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
