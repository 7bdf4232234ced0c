"""`perseid test`: style, types and layers, then the rings of tests; what CI runs.

The static checks run only when nothing is selected. All rings run in one pytest, so that its
closing lines count everything and one warm cluster serves all; tests/conftest.py adds a line
a ring.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from perseid.cli import output
from perseid.errors import RefusedError, UsageError

RINGS = ("unit", "contract", "simulation", "system")
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
    security: Annotated[
        Path | None, typer.Option("--security", help="Save the security matrix in this file.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Run the tests; without options all that CI runs (style, types, layers and every ring)."""
    from perseid.embedded.paths import repository

    root = repository()
    if root is None:
        raise RefusedError("the tests are in the repository: clone it and type `./perseid test`")
    selected = bool(expression or ring or soak)
    failed = [] if selected else _static(root)
    command = pytest_command(
        root, ring, expression, seeds, soak, seed, matrix=matrix, security=security
    )
    code, rings = _pytest(root, command, failed, quiet=as_json)
    if as_json:
        output.document({"ok": not failed and code == 0, "failed_checks": failed, "rings": rings})
    if failed or code != 0:
        raise typer.Exit(1)


def pytest_command(
    root: Path, ring: str | None, expression: str | None, seeds: int | None, soak: str | None,
    seed: int | None = None, *, matrix: bool = False, security: Path | None = None,
) -> list[str]:  # fmt: skip
    """The arguments after `python`; -I keeps the working directory off the import path."""
    chosen = list(RINGS) if ring is None else [name.strip() for name in ring.split(",")]
    if unknown := sorted(set(chosen) - set(RINGS)):
        raise UsageError(f"no ring {', '.join(unknown)}: there are {', '.join(RINGS)}")
    folders = [f"tests/{name}" for name in RINGS if name in chosen]
    present = [folder for folder in folders if any((root / folder).rglob("test_*.py"))]
    if not present:
        raise RefusedError(f"there are no tests in {', '.join(folders)}")
    command = ["-Im", "pytest", *present]
    saved = None if security is None else security.absolute()
    given = (
        ("-k", expression), ("--seeds", seeds), ("--soak", soak), ("--seed", seed),
        ("--security", saved),
    )  # fmt: skip
    for option, value in given:
        if value is not None:
            command += [option, str(value)]
    return [*command, "--matrix"] if matrix else command


def _static(root: Path) -> list[str]:
    """Runs the static checks, shows what they found, returns the names of those that failed."""
    failed = []
    for name, arguments in CHECKS.items():
        output.note(f"{name} ...")
        ran = subprocess.run(
            [sys.executable, *arguments], check=False, cwd=root, capture_output=True, text=True
        )
        if ran.returncode != 0:
            failed.append(name)
            output.note(ran.stdout + ran.stderr)
    return failed


def _pytest(
    root: Path, command: list[str], failed: list[str], *, quiet: bool
) -> tuple[int, dict[str, dict[str, float]]]:
    """Runs pytest in the foreground; its lines go to stderr when stdout is for a document."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "rings.json"
        ran = subprocess.run(
            [sys.executable, *command],
            check=False,
            cwd=root,
            env={
                **os.environ,
                "PERSEID_FAILED_CHECKS": ",".join(failed),
                "PERSEID_TEST_SUMMARY": str(summary),
            },
            stdout=sys.stderr if quiet else None,
        )
        rings = json.loads(summary.read_text()) if summary.is_file() else {}
    return ran.returncode, rings
