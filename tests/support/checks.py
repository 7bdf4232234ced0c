"""`perseid test`: style, types and layers, and the rings of tests; what CI runs.

The static checks run only when no test is selected. The rings run as two concurrent rows of
pytests: unit and simulation, which compute; and in parallel system, which mostly waits for servers
and has priority on the cores. The row that ends first takes the contract ring, the next one the
deployment ring: the images of this work tree are built meanwhile. The second row prints at once,
the first when it has ended. The closing line counts all tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated

import typer

from perseid.cli import main, output
from perseid.errors import RefusedError, UsageError
from support.container_images import PREFIX, WHY_NOT, images

COMPUTING, DEPLOYMENT = ("unit", "simulation"), "deployment"
RINGS = ("unit", "contract", "simulation", "system", DEPLOYMENT)
# Rows run concurrently; the pytests of a row run in order, each with the folders of its rings.
ROWS = ((COMPUTING,), (("system",),))
LAST = (("contract",), (DEPLOYMENT,))  # pytests that idle rows take, the longest first
SLOWEST = ("--durations=12", "--durations-min=10")  # seconds: shows the slowest tests
NICE = 10  # of rows that compute: those that wait have deadlines
# A test's limit interrupts Python. A test that hangs in a C library, as librdkafka's freeing of a
# client once did, ends its ring after the longest of these limits, with the stacks of all threads.
STUCK = ("-o", "faulthandler_timeout=1200", "-o", "faulthandler_exit_on_timeout=true")
NOTHING_SELECTED = 5  # pytest's exit code; -k may select tests of the other rings alone
_LINT = "import sys; from importlinter.cli import lint_imports"
CHECKS = {
    "ruff": ["-m", "ruff", "check", "--quiet"],
    "mypy": ["-m", "mypy", "--no-error-summary"],
    "layers": ["-c", f"{_LINT}; sys.exit(lint_imports(no_cache=True, no_logo=True))"],
}


def test(
    *,
    expression: Annotated[
        str | None, typer.Option("-k", help="Only tests whose names match, as in pytest.")
    ] = None,
    ring: Annotated[
        str | None, typer.Option("--ring", help=f"Only these rings of {','.join(RINGS)}.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Seeds that each simulation runs.")
    ] = None,
    soak: Annotated[
        str | None, typer.Option("--soak", help="Only the soak tests, for so long, e.g. 30m.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="What is drawn by chance, as a run has printed.")
    ] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Also all kill points, and the search of mutants.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Run in pieces: leave out what passed before.")
    ] = None,
    install_docker: Annotated[
        bool, typer.Option("--install-docker", help="Install Docker first (Debian, as root).")
    ] = False,
    security: Annotated[
        Path | None, typer.Option("--security", help="Save the security matrix in this file.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Run the tests; without options all that CI runs (style, types, layers and every ring)."""
    root = Path(__file__).parents[2]
    rows, last = ring_rows(root, ring, together=soak is not None)
    options = pytest_options(
        expression, seeds, soak, seed, matrix=matrix, security=security, resume=resume
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perseid-test-")))
        made = None
        if [DEPLOYMENT] in last and not expression:  # -k: as Docker is
            made = stack.enter_context(images(root, folder, install=install_docker))
        run = Run(root, options, folder, sys.stderr if as_json else None, made)
        run.at_the_same_time(rows, last, static=not (expression or ring or soak))
    found = run.found
    if as_json:
        output.document({"ok": found.ok, "failed_checks": found.checks, "rings": found.rings})
    else:
        output.lines([found.line])
    if not found.ok:
        raise typer.Exit(1)


@dataclass(slots=True)
class Found:
    """The results of the checks and the rings. `rings`: by name, outcomes and `seconds`."""

    checks: list[str] = field(default_factory=list)  # the static ones that failed
    codes: list[int] = field(default_factory=list)  # of each pytest
    rings: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.checks and 0 in self.codes and set(self.codes) <= {0, NOTHING_SELECTED}

    @property
    def line(self) -> str:
        """One line with all counts."""
        counts: Counter[str] = Counter()
        for outcomes in self.rings.values():
            counts.update({name: int(n) for name, n in outcomes.items() if name != "seconds"})
        shown = ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "no test ran"
        failed = f"; failed checks: {', '.join(self.checks)}" if self.checks else ""
        return f"perseid test: {'ok' if self.ok else 'FAILED'}: {shown}{failed}"


def ring_rows(
    root: Path, ring: str | None, *, together: bool
) -> tuple[list[list[list[str]]], list[list[str]]]:
    """The chosen rings that hold tests: rows, their pytests, the rings of each; and what is last.

    What is last is taken by rows that have ended. `together`: all of it in one pytest.
    """
    chosen = list(RINGS) if ring is None else [name.strip() for name in ring.split(",")]
    if unknown := sorted(set(chosen) - set(RINGS)):
        raise UsageError(f"no ring {', '.join(unknown)}: there are {', '.join(RINGS)}")
    present = [r for r in RINGS if r in chosen and any((root / "tests" / r).rglob("test_*.py"))]
    if not present:
        folders = [f"tests/{name}" for name in RINGS if name in chosen]
        raise RefusedError(f"there are no tests in {', '.join(folders)}")
    if together:
        return [[present]], []
    rows = [[[r for r in rings if r in present] for rings in row] for row in (*ROWS, LAST)]
    *rows, last = [[rings for rings in row if rings] for row in rows]
    return [row for row in rows if row] or [[]], last


def pytest_options(
    expression: str | None, seeds: int | None, soak: str | None, seed: int | None = None,
    *, matrix: bool = False, security: Path | None = None, resume: Path | None = None,
) -> list[str]:  # fmt: skip
    given = (
        ("-k", expression), ("--seeds", seeds), ("--soak", soak), ("--seed", seed),
        ("--security", security and security.absolute()),
    )  # fmt: skip
    options = [
        word for option, value in given if value is not None for word in (option, str(value))
    ]
    if matrix:
        options.append("--matrix")
    if resume is not None:  # one word: pytest looks for its settings above paths it is given
        options.append(f"--resume={resume.absolute()}")
    searching = matrix or soak is not None or seeds is not None  # tests that may take hours
    return options if searching else [*options, *STUCK]


def _environment(made: Future[str] | None) -> dict[str, str]:
    """Of the deployment ring; waits for the images. Without them it uses the embedded cluster."""
    if made is None:
        return {}
    if not made.done():
        output.note("waiting for the images of the deployment ring")
    try:
        return {PREFIX: made.result()}
    except RefusedError as error:
        return {WHY_NOT: str(error)}


def _taken(left: deque[list[str]]) -> list[str] | None:
    """Takes one, of which no other thread has it; None without one."""
    try:
        return left.popleft()
    except IndexError:
        return None


def _static(root: Path, out: IO[str]) -> list[str]:
    """Runs the static checks, prints their results, returns the names of those that failed."""
    failed = []
    for name, arguments in CHECKS.items():
        ran = subprocess.run(
            [sys.executable, *arguments], check=False, cwd=root, capture_output=True, text=True
        )
        if ran.returncode != 0:
            failed.append(name)
            out.write(f"FAILED check: {name}\n{ran.stdout}{ran.stderr}\n")
    out.flush()
    return failed


@dataclass(frozen=True, slots=True)
class Run:
    """One `perseid test`. `folder`: for files of its pytests; `out`: where they print."""

    root: Path
    options: list[str]
    folder: Path
    out: IO[str] | None  # None: to our own output
    made: Future[str] | None = None  # images for the deployment ring
    found: Found = field(default_factory=Found)

    def at_the_same_time(
        self, rows: list[list[list[str]]], last: list[list[str]], *, static: bool
    ) -> None:
        """Runs the last row in the foreground and the others in parallel, each into a file.

        The static checks come first in the first row. `last`: pytests that idle rows take.
        """
        *early, foreground = rows
        left = deque(last)
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(rows), "perseid-row"))
            running = []
            for number, row in enumerate(early):
                kept = stack.enter_context(tempfile.TemporaryFile("w+"))
                checked = static and number == 0
                running.append((pool.submit(self._row, row, left, kept, static=checked), row, kept))
            self._row(foreground, left, self.out, static=static and not early)
            for row_run, row, kept in running:
                if not row_run.done():
                    output.note("waiting for " + ", ".join(r for rings in row for r in rings))
                row_run.result()
                kept.seek(0)
                (self.out or sys.stdout).write(kept.read())

    def _row(
        self, row: list[list[str]], left: deque[list[str]], out: IO[str] | None, *, static: bool
    ) -> None:
        if static:
            self.found.checks += _static(self.root, out or sys.stdout)
        for rings in row:
            self.pytest(rings, out, {})
        while (taken := _taken(left)) is not None:
            self.pytest(taken, out, _environment(self.made) if DEPLOYMENT in taken else {})

    def pytest(
        self, rings: Sequence[str], out: IO[str] | None, environment: Mapping[str, str]
    ) -> None:
        """Runs one pytest, adds to `found`. -I keeps the working directory off the import path."""
        nice = ["nice", "-n", str(NICE)] if set(rings) <= set(COMPUTING) else []
        controls = self.folder / "controls"
        controls.mkdir(exist_ok=True)
        summary = self.folder / f"rings-{'-'.join(rings)}.json"
        folders = [f"tests/{ring}" for ring in rings]
        ran = subprocess.run(
            [*nice, sys.executable, "-Im", "pytest", *SLOWEST, *folders, *self.options],
            check=False,
            cwd=self.root,
            env={
                **os.environ,
                "PERSEID_TEST_SUMMARY": str(summary),
                "PERSEID_TEST_CONTROLS": str(controls),
                **environment,
            },
            stdout=out,
            stderr=subprocess.STDOUT if out is not None else None,
        )
        self.found.codes.append(ran.returncode)
        if summary.is_file():
            self.found.rings.update(json.loads(summary.read_text()))


commands = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
commands.command(epilog="Example: perseid test --ring unit,contract -k ledger")(test)


def run(arguments: list[str]) -> int:
    """Runs `perseid test ARGUMENTS` and returns its exit code."""
    return main.run(arguments, commands, "perseid test")
