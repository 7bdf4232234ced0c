"""The controls of a secure deployment, and the tests that cover them (compose/SECURITY.md).

`@pytest.mark.security("5.3")` names the controls of a test. tests/conftest.py passes the results to
a `Matrix`; a unit test fails when a control has no test.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

MARKER = "security"
CONTROLS = {
    "5.1": "Kafka over TLS, names verified; SCRAM over TLS only",
    "5.2": "one principal for each job, with least rights",
    "5.3": "client configuration is code: a job file sets none",
    "5.4": "ZooKeeper: credentials, ACLs, TLS, no open commands",
    "5.5": "Redis: a user with few commands, TLS, bounded values",
    "5.6": "HTTP API: tokens, roles, loopback, limits, a log",
    "5.7": "job files are data, with limits; code can be forbidden",
    "5.8": "git: pinned commits, nothing of a repository runs",
    "5.9": "no pickles where others can write; formats are checked",
    "5.10": "names and paths are validated",
    "5.11": "no URL of a job file is asked",
    "5.12": "everything has a limit",
    "5.13": "Spark: no settings from jobs, nothing open",
    "5.14": "secrets only in environment and files",
    "5.15": "no injection into logs and metrics, no payloads there",
    "5.16": "locked and verified dependencies",
}
RESULTS = ("failed", "skipped", "passed")  # the worst first


class Matrix:
    """Controls -> tests -> results of one run of pytest, or of several."""

    def __init__(self) -> None:
        self._controls: dict[str, tuple[str, ...]] = {}  # by test
        self._results: dict[str, str] = {}

    def expect(self, test: str, controls: Iterable[str]) -> None:
        """Declares the controls of `test`; ValueError for an unknown one."""
        named = tuple(controls)
        if not named or set(named) - set(CONTROLS):
            raise ValueError(f"{test}: marker {MARKER}{named}: expected some of {list(CONTROLS)}")
        self._controls[test] = named

    def note(self, test: str, result: str) -> None:
        """Records the result of a phase of the test; the worst stays."""
        if test in self._controls:
            known = self._results.get(test, result)
            self._results[test] = min(known, result, key=RESULTS.index)

    def counts(self, control: str) -> dict[str, int]:
        """Returns how many tests of the control had which result."""
        found = [r for t, r in self._results.items() if control in self._controls[t]]
        return {result: found.count(result) for result in RESULTS if result in found}

    def join(self, folder: Path, own: str) -> None:
        """Merges results of other pytest runs in `folder`, and writes this run's results there."""
        mine = {t: [self._controls[t], result] for t, result in self._results.items()}
        for path in sorted(folder.glob("*.json")):
            for test, (controls, result) in json.loads(path.read_text()).items():
                self.expect(test, controls)
                self.note(test, result)
        (folder / f"{own}.json").write_text(json.dumps(mine))

    @property
    def complete(self) -> bool:
        """Whether a test of every control ran."""
        return all(self.counts(control) for control in CONTROLS)

    def lines(self) -> Iterator[str]:
        """Yields one line per control, for a terminal."""
        for control, title in CONTROLS.items():
            counts = ", ".join(f"{n} {result}" for result, n in self.counts(control).items())
            yield f"{control:5} {title}: {counts or 'no test ran'}"

    def markdown(self) -> str:
        """Returns the whole table."""
        rows = ["| control | test | result |", "|---|---|---|"]
        for control, title in CONTROLS.items():
            tests = sorted(t for t in self._results if control in self._controls[t])
            rows += [f"| {control} {title} | `{t}` | {self._results[t]} |" for t in tests]
            if not tests:
                rows.append(f"| {control} {title} | none ran | |")
        return "\n".join(rows) + "\n"


def marked(tests: Path) -> dict[str, list[str]]:
    """Control -> files below `tests` that have a test for it, found in their text."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call))
        for call in calls:
            if ast.unparse(call.func) == f"pytest.mark.{MARKER}":
                for argument in call.args:
                    found.setdefault(ast.literal_eval(argument), []).append(path.name)
    return found
